// Job: what a cluster runs, as far as a scheduler and a network model must know it.
//
// An iteration computes for `compute_ns` and moves, in every collective, `bytes` of that kind:
//
//   kAllReduce   size of the tensors that are summed (gradients)
//   kSharded     size of the parameters that are gathered twice and reduced once (FSDP)
//   kAllToAll    bytes that each GPU sends to all others together (experts, embeddings)
//
// `overlap` of the computation may hide communication, so that alone on its nodes
//
//   T = compute + max(0, communication - overlap * compute)
//
// Traffic inside a node is taken to be part of `compute_ns`. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace jige::cluster {

using JobId = int32_t;  // index in Workload::jobs

inline constexpr int64_t kSecond = 1'000'000'000;

enum class Collective : uint8_t { kAllReduce, kSharded, kAllToAll };
inline constexpr int kCollectiveCount = 3;

struct Job {
  std::string name;  // as the trace calls it
  int32_t model = 0;
  int64_t arrival_ns = 0;
  int32_t gpus = 1;
  int32_t nodes = 0;  // exactly so many with equal shares; 0: however they are free
  int64_t compute_ns = kSecond;
  std::array<double, kCollectiveCount> bytes{};
  double overlap = 0;
  double iterations = 1;
  int64_t start_ns = 0;         // from GPUs to first progress: paid by the first start
  int64_t restart_ns = 0;       // checkpoint, requeue and restore: paid by each start but the first
  bool stoppable = true;        // else no policy stops or moves it once it runs
  std::vector<int32_t> barred;  // nodes where it is not started, ascending; by the driver's choice
};

struct Workload {
  std::vector<std::string> models;  // by Job::model
  std::vector<Job> jobs;            // by arrival
  std::string provenance;           // what is traced and what is assigned
  int64_t skipped = 0;              // records that are no jobs of ours: no GPU, no run time
};

// GPUs on one node. A placement lists nodes in ascending order, each once.
struct NodeShare {
  int32_t node = 0;
  int32_t gpus = 0;
  bool operator==(const NodeShare&) const = default;
};
using Placement = std::vector<NodeShare>;

}  // namespace jige::cluster

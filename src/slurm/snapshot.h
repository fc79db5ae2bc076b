// Snapshot: what Slurm says about its nodes and jobs at one moment, as JSON of 22.05 or later
// (openapi v0.0.38; fields that newer versions wrap as {"set":…,"number":…} are read as well).
//
//   kHeld      pending with priority 0: waits until somebody releases it
//   kReleased  pending otherwise: Slurm may start it any moment
//   kRunning   has its nodes and runs (also while they are configured, or suspended: its GPUs stay)
//   kEnding    completing: its processes go, the nodes listed are still taken
//   kGone      ended, for whatever reason
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::slurm {

enum class SeenState : uint8_t { kHeld, kReleased, kRunning, kEnding, kGone };
std::string_view seen_name(SeenState state);

// What a job asks for on each of its nodes beside GPUs, and which of them it may have.
struct NodeNeeds {
  bool operator==(const NodeNeeds&) const = default;

  int64_t cpus = 0, memory_mb = 0;    // as far as they are known beforehand
  bool whole = false;                 // all of the node, with all its GPUs (--exclusive)
  std::string features, reservation;  // empty: any, none
  std::vector<std::string> excluded;
};

// Of a job array. Tasks that have not been taken out of it are one record of Slurm's.
struct ArrayPart {
  int64_t array = 0;        // its number; 0: none
  int64_t task = -1;        // of a single one
  std::string tasks;        // "0,2-5" of those that are not taken out
  int32_t at_once_max = 0;  // tasks that may run at the same time; 0: all
};

struct SeenJob {
  int64_t id = 0;
  std::string name, user, partition, comment;
  std::string admin_comment;  // without the note
  std::string note;           // why it waits, as Jige told its user (slurm/admin_comment.h)
  std::string reason;         // in Slurm's word, as the next
  std::string slurm_state;    // in Slurm's word
  SeenState state = SeenState::kHeld;
  std::vector<std::string> nodes;  // it has now; while it ends those that it still has
  std::vector<int32_t> node_gpus;  // beside `nodes`
  int32_t node_count = 1;          // it asks for
  int32_t node_count_max = 0;      // it would take; 0: not said
  int32_t gpus_per_node = 0;       // it asks for; 0: in another form, or none
  std::string other_request;       // why the request is none that can be placed; empty: it can
  NodeNeeds needs;
  ArrayPart array;
  int64_t submit_s = 0, start_s = 0, end_s = 0;  // Unix time
  int64_t begin_s = 0;                           // not to start before (Unix time); 0: any time
  int64_t time_limit_s = 0;                      // 0: none
  int32_t restarts = 0;
  bool stoppable =
      true;  // a batch job, requeued without harm: no --no-requeue, no nodes given back
};

struct SeenNode {
  std::string name;
  int32_t gpus = 0;
  bool up = true;     // may run jobs
  std::string state;  // in Slurm's words
  std::vector<std::string> partitions, features;
  bool reserved = false;            // for those who name its reservation
  int64_t cpus = 0, cpus_used = 0;  // 0: not known
  int64_t memory_mb = 0, memory_used_mb = 0;
};

struct Snapshot {
  int64_t taken_ns = 0;  // monotonic, before Slurm was asked
  std::vector<SeenNode> nodes;
  std::vector<SeenJob> jobs;  // by id
  std::string closed;         // the partition's state, where it starts no jobs: down, inactive
};

bool in_partition(const SeenNode& node, std::string_view partition);
// Whether the job may run in the partition: it names that one alone, or several with commas.
bool names_partition(const SeenJob& job, std::string_view partition);

// Fails with kCorrupt, naming what is missing.
Result<std::vector<SeenJob>> parse_jobs(std::string_view squeue_json);
// With kUnsupported where sinfo says groups of nodes and not what each one is. `where` names the
// source.
Result<std::vector<SeenNode>> parse_nodes(std::string_view json, std::string_view where);

// GPUs of "gpu:4", "gpu:a100:4(S:0-1)", "gres:gpu:2", "gres/gpu=2", "gpu", several with commas; 0
// where there are none.
int32_t gpus_in(std::string_view gres);

}  // namespace jige::slurm

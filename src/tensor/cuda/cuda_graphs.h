// CudaGraphs: the graphs of a stream's repeated work, by its fingerprint (tensor/launch_record.h).
//
// Work becomes a graph when it is seen for the second time: what comes once costs nothing more.
// Graphs that were not used for long go. Threads: as the stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>

#include "tensor/launch_record.h"

namespace jige {

class CudaGraphs {
 public:
  CudaGraphs() = default;
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;
  ~CudaGraphs();

  // Puts work with this fingerprint on the stream, by its graph or by `submit`.
  void run(cudaStream_t stream, const LaunchRecord::Fingerprint& fingerprint,
           const std::function<void()>& submit);

 private:
  static constexpr size_t kKept = 64;     // graphs
  static constexpr size_t kKnown = 4096;  // fingerprints without one
  struct Entry {
    cudaGraphExec_t graph = nullptr;  // null: seen once
    uint64_t used = 0;                // a count of runs
  };
  void make_room();

  std::map<LaunchRecord::Fingerprint, Entry> entries_;
  size_t graph_count_ = 0;
  uint64_t runs_ = 0;
};

}  // namespace jige

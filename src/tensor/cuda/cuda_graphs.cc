#include "tensor/cuda/cuda_graphs.h"

#include <algorithm>

#include "tensor/cuda/cuda_check.h"

namespace jige {
namespace {

cudaGraphExec_t capture(cudaStream_t stream, const std::function<void()>& submit) {
  JIGE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  submit();
  cudaGraph_t graph = nullptr;
  JIGE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready = nullptr;
  JIGE_CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
  JIGE_CUDA_CHECK(cudaGraphDestroy(graph));
  return ready;
}

}  // namespace

CudaGraphs::~CudaGraphs() {
  for (const auto& [fingerprint, entry] : entries_) {
    if (entry.graph) JIGE_CUDA_CHECK(cudaGraphExecDestroy(entry.graph));
  }
}

void CudaGraphs::run(cudaStream_t stream, const LaunchRecord::Fingerprint& fingerprint,
                     const std::function<void()>& submit) {
  auto at = entries_.find(fingerprint);
  if (at == entries_.end()) {
    if (entries_.size() >= kKnown) {
      std::erase_if(entries_, [](const auto& entry) { return entry.second.graph == nullptr; });
    }
    entries_[fingerprint].used = ++runs_;
    submit();
    return;
  }
  if (!at->second.graph) {
    make_room();
    at->second.graph = capture(stream, submit);
    ++graph_count_;
  }
  at->second.used = ++runs_;
  JIGE_CUDA_CHECK(cudaGraphLaunch(at->second.graph, stream));
}

void CudaGraphs::make_room() {
  if (graph_count_ < kKept) return;
  auto oldest = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (!it->second.graph) continue;
    if (oldest == entries_.end() || it->second.used < oldest->second.used) oldest = it;
  }
  JIGE_CUDA_CHECK(cudaGraphExecDestroy(oldest->second.graph));
  oldest->second.graph = nullptr;
  --graph_count_;
}

}  // namespace jige

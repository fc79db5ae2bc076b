// Launching kernels: what the host side of a .cu file needs.
//
// Each family has a header without CUDA types (norm.h), which ops call, and a .cu file. The
// argument structs are those of the CPU kernels wherever they fit, so that an op fills them once.
// A .cu file compiles twice: by nvcc for GPUs, and by the host compiler against emulation/, where
// blocks run one after the other on this thread; so kernels are tested on machines without a GPU.
// Threads: a launch is asynchronous on its stream; one thread at a time uses a stream.
#pragma once

#include <cstdint>

#include "tensor/launch_record.h"

namespace jige::cuda {

// The stream that kernels run on.
struct LaunchStream {
  void* handle = nullptr;  // cudaStream_t; of a late stream in emulation, or null
  int multiprocessors = 1;
  bool starts_early = false;  // blocks may start before the kernel before is done (begin_kernel)
  LaunchRecord* record = nullptr;  // where launches are recorded: everything that is launched

  // Records what work is made of. False: it is not to be launched.
  template <typename... Parts>
  bool takes(const Parts&... parts) const {
    if (!record) return true;
    (record->add_value(parts), ...);
    return !record->records_only;
  }
};

// Blocks of `threads` for `count` elements of work, `per_block` of them each.
constexpr unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace jige::cuda

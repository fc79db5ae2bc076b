// The GPU of the calling thread, as the CUDA runtime has one: what is asked of "the GPU" without a
// stream is asked of this one.
//
// Threads: each has its own, GPU 0 at first.
#pragma once

#include <cstdint>

namespace jige::cuda::emulation {

inline int& current_gpu() {
  thread_local int gpu = 0;
  return gpu;
}

// Shared memory that a block may have on a GPU: that of data-centre GPUs, or as many KiB as
// JIGE_EMULATED_SHARED_KIB says: "99" for each, as of GPUs for desktops, "227,99" one by one, the
// last for all others too.
int64_t shared_bytes_of(int gpu);

}  // namespace jige::cuda::emulation

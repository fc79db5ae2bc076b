// LayerComputer: what computes the layers of a machine, as machines tell one another: by it layers
// are divided, and it is told where last bits may differ.
//
// Decoding reads every weight of a layer for a few rows, so a machine is as fast as it reads its
// memory: a GPU by the clock and the width of its memory, a processor 5 GB/s for each thread that
// it computes with, about what the memory of machines of today gives each of their threads where
// all of them read (8 channels of DDR5-4800 give 307 GB/s, to 64 threads). Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/cuda_device.h"

namespace jige::serve {

struct LayerComputer {
  std::string kernels;      // the instruction set that its kernels are for, or the GPU's name
  int64_t bytes_per_s = 0;  // that it reads of its memory, about
  bool is_gpu = false;
};

inline constexpr int64_t kThreadBytesPerS = 5'000'000'000;
// Of a GPU that does not tell.
inline constexpr int64_t kGpuBytesPerS = 500'000'000'000;

// A processor with so many threads.
LayerComputer processor_as_computer(int threads);
LayerComputer gpu_as_computer(const CudaDeviceInfo& gpu);

}  // namespace jige::serve

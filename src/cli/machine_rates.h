// What this machine can do, measured: the rates that `jige bench` and `jige train` compare with.
//
// Each is the best of several short runs with all threads of a device: the rate without the other
// work of the machine.
// Threads: one measurement at a time.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "tensor/cpu_device.h"
#include "tensor/dtype.h"

namespace jige::cli {

// f32 operations per second of the vector units, from registers.
double measure_fma_flops_per_s(CpuDevice& device);

// Bytes per second read from memory, over an array of `bytes` (several times the caches).
// Fails with kExhausted.
Result<double> measure_read_bytes_per_s(CpuDevice& device, int64_t bytes);

struct GemmShape {
  int64_t tokens = 512;
  int64_t inputs = 1024;
  int64_t outputs = 1024;
};

// Operations per second of Jige's own linear layer, forward, weights packed beforehand: the median,
// since a share of it compares a median with it.
// Fails with kExhausted.
Result<double> measure_gemm_flops_per_s(CpuDevice& device, DType compute, const GemmShape& shape,
                                        double seconds);

// Bytes that are surely larger than this processor's caches: four times the last level, at least
// 256 MiB, at most 1 GiB.
int64_t streaming_bytes();

}  // namespace jige::cli

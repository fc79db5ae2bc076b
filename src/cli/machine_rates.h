// What this machine can do, measured: the rates that `jige bench` and `jige train` compare with.
//
// Each is the best of several short runs with all threads of a device: the rate without the other
// work of the machine.
// Threads: one measurement at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"
#include "tensor/dtype.h"
#include "tensor/host_buffer.h"
#include "tensor/view.h"

namespace jige::cli {

// Numbers of -0.5 to 0.5 to measure with, the same each time. They repeat: to draw each would take
// longer than what is measured. REQUIRES: f32.
void fill_random(Stream& stream, const TensorView& view);

// f32 operations per second of the vector units, from registers, in so many seconds and one run.
double measure_fma_flops_per_s(CpuDevice& device, double seconds = 0.3);

// Bytes that are surely larger than this processor's caches: four times the last level, at least
// 256 MiB, at most 1 GiB; the most is taken on a GPU.
int64_t streaming_bytes();
// The least that is still larger than the caches: twice the last level, at least 64 MiB, at most
// streaming_bytes().
int64_t streaming_bytes_min();

// One pass of all threads over an array in memory (several times the caches); on a GPU, a copy of
// one half of the array to the other, which reads and writes its bytes.
class ReadProbe {
 public:
  // The first touch of memory can take many times as long as reading it, above all where others use
  // the processor: after so many seconds the array is what has been touched, but no less than
  // `bytes_min`.
  struct Size {
    int64_t bytes = 0;
    double seconds = 1e9;
    int64_t bytes_min = streaming_bytes_min();
  };
  // Fails with kExhausted.
  static Result<std::unique_ptr<ReadProbe>> create(Device& device, const Size& size);
  void run();
  double bytes() const;  // of a run

 private:
  explicit ReadProbe(Device& device) : arena_(device, "bandwidth probe") {}
  void touch(const Size& size);
  Arena arena_;
  ThreadTeam* team_ = nullptr;      // of a CPU
  std::unique_ptr<Stream> copies_;  // of a GPU
  Tensor array_;
  int64_t count_ = 0;  // of its numbers, touched and read
};

// Bytes per second read from memory, in so many seconds and one run.
double measure_read_bytes_per_s(ReadProbe& probe, double seconds);
// The same over an array of `bytes`. Fails with kExhausted.
Result<double> measure_read_bytes_per_s(Device& device, int64_t bytes);

// Copies from pinned memory of the host to a device.
class CopyProbe {
 public:
  // Fails with kExhausted.
  static Result<std::unique_ptr<CopyProbe>> create(Device& device, int64_t bytes);
  void run();
  double bytes() const { return static_cast<double>(array_.bytes()); }  // of a run

 private:
  explicit CopyProbe(Device& device) : arena_(device, "copies probe") {}
  Arena arena_;
  Tensor array_;
  HostBuffer host_;
  std::unique_ptr<Stream> stream_;
};

struct GemmShape {
  int64_t tokens = 512;
  int64_t inputs = 1024;
  int64_t outputs = 1024;
};

// Jige's own linear layer, forward, once; weights packed beforehand.
class GemmProbe {
 public:
  // Fails with kExhausted.
  static Result<std::unique_ptr<GemmProbe>> create(Device& device, DType compute,
                                                   const GemmShape& shape);
  void run();
  double flops() const;  // of a run

 private:
  GemmProbe(Device& device, const GemmShape& shape)
      : arena_(device, "matrix product probe"), shape_(shape) {}
  Arena arena_;
  GemmShape shape_;
  std::unique_ptr<Stream> stream_;
  Tensor packed_, src_, dst_;
  ops::PackedWeight form_{};
};

// Operations per second of such layers: the median, since a share of it compares a median with it.
// Fails with kExhausted.
Result<double> measure_gemm_flops_per_s(Device& device, DType compute, const GemmShape& shape,
                                        double seconds);

}  // namespace jige::cli

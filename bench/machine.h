// What a benchmark runs on: the processor, memory of it and a stream of work.
//
// Threads: one user at a time.
#pragma once

#include <memory>
#include <utility>

#include "tensor/arena.h"
#include "tensor/cpu_device.h"

namespace jige::bench {

struct Machine {
  // thread_count 0: all cores.
  explicit Machine(int thread_count)
      : device({.thread_count = thread_count}), arena(device, "bench") {
    stream = std::move(*device.make_stream());
  }
  CpuDevice device;
  Arena arena;
  std::unique_ptr<Stream> stream;
};

// Random numbers around zero, f32 or bf16. Ends the program where memory ends.
Tensor random_tensor(Machine& machine, DType dtype, Shape shape);

}  // namespace jige::bench

// The largest of each row of logits, as ops/likeliest.h says. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace jige::cuda {

struct Likeliest {
  int32_t* tokens;  // [rows]
  const float* logits;
  int64_t stride;
  int64_t rows;
  int64_t columns;    // fewer than 2^31
  void* scratch;      // likeliest_bytes(), aligned to 16
  int32_t* counters;  // [rows], zeros before and after
};
int64_t likeliest_bytes(int64_t rows, int64_t columns);
void likeliest(const LaunchStream& stream, const Likeliest& args);

}  // namespace jige::cuda

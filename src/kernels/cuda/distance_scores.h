// Scores by distance from a table of buckets (ops/distance_scores.h). Threads: asynchronous on the
// stream.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// dst[h][i] = table[buckets[i]][h], f32. Buckets are not checked.
struct DistanceScores {
  cpu::Rows dst;  // [heads, count]
  cpu::ConstRows table;
  const int32_t* buckets;  // [count]
  int64_t heads;
  int64_t count;
};
void distance_scores(const LaunchStream& stream, const DistanceScores& args);

}  // namespace jige::cuda

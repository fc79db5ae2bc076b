// Scores by distance, as MPNet has them: what a head's attention scores get besides, by how far a
// key stands behind its query.
//
// Shapes: H heads, B buckets, n tokens of the longest sequence.
//   dst[h][d + n - 1] = table[bucket(d)][h] for distances d from 1 - n to n + kDistancesBeyond
//   bucket(d) = (d > 0 ? B/2 : 0) + (m < E ? m : min(E + floor(E log(m / E) / log(F / E)), B/2 -
//   1)) of m = |d|, E = B/4 and F = kFarDistance, logarithms in f32
// So each of the first E distances to either side has a bucket of its own, and farther ones share
// wider and wider ones. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// Attention reads sixteen keys at a time.
inline constexpr int64_t kDistancesBeyond = 15;
inline constexpr int64_t kFarDistance = 128;

// Columns of dst.
constexpr int64_t distance_count(int64_t tokens) { return 2 * tokens + kDistancesBeyond; }

// The bucket of a distance. REQUIRES: buckets is a multiple of 4, from 4 up.
int64_t distance_bucket(int64_t distance, int64_t buckets);

// dst [H, distance_count(n)] f32, table [B, H] f32.
void distance_scores(Stream& stream, const TensorView& dst, const TensorView& table);

}  // namespace jige::ops

// The weights of a resized side: for each pixel of the result, which pixels of the source count
// and how much (resize.h).
//
// Layout: `taps` weights for each pixel, a multiple of two; those behind its `counts` are 0.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "images/resize.h"

namespace jige::images {

inline constexpr int kWeightBits = 22;

struct ResizeWeights {
  int32_t taps = 0;
  std::vector<int32_t> begins;  // of each pixel of the result: the first of the source
  std::vector<int32_t> counts;
  std::vector<int32_t> values;
};

// REQUIRES: sides of 1 to 65535 pixels; a filter other than kNearest.
ResizeWeights resize_weights(int32_t src_size, int32_t dst_size, ResizeFilter filter);

}  // namespace jige::images

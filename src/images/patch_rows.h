// Images as the rows that a vision tower multiplies: each patch, a square of pixels, is one row of
// numbers around zero.
//
//   value = (byte - mean / factor) / (std / factor)
//
// in f32, the order of transformers' image processors. Patches go by rows from the top; in a row
// stand the red, then the green, then the blue pixels of the patch, as in the weight of a
// convolution [width, 3, patch, patch].
//
// Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "images/image.h"

namespace jige::images {

struct PixelScale {
  std::array<float, 3> mean{};
  std::array<float, 3> std{1, 1, 1};
  double factor = 1.0 / 255;
};

// [rows · columns, 3 · patch · patch]. REQUIRES: sides that are multiples of `patch`, which is at
// least 1; std and factor are not 0.
std::vector<float> patch_rows(const Image& image, int32_t patch, const PixelScale& scale);

}  // namespace jige::images

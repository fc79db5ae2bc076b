#include "images/patch_rows.h"

#include <cstddef>

#include "base/check.h"

namespace jige::images {
namespace {

using ByteValues = std::array<float, 256>;

// What each byte of a colour becomes.
std::array<ByteValues, 3> values_of_bytes(const PixelScale& scale) {
  std::array<ByteValues, 3> values;
  for (size_t c = 0; c < 3; ++c) {
    const auto bytes_of_one = static_cast<float>(1.0 / scale.factor);
    const float mean = scale.mean[c] * bytes_of_one;
    const float std = scale.std[c] * bytes_of_one;
    for (size_t byte = 0; byte < 256; ++byte) {
      values[c][byte] = (static_cast<float>(byte) - mean) / std;
    }
  }
  return values;
}

}  // namespace

std::vector<float> patch_rows(const Image& image, int32_t patch, const PixelScale& scale) {
  JIGE_CHECK(patch >= 1 && image.width % patch == 0 && image.height % patch == 0,
             "an image of {} x {} in patches of {}", image.width, image.height, patch);
  const std::array<ByteValues, 3> values = values_of_bytes(scale);
  const auto side = static_cast<size_t>(patch);
  const size_t colour_values = side * side;
  std::vector<float> rows(image.rgb.size());
  float* dst = rows.data();
  for (size_t top = 0; top < static_cast<size_t>(image.height); top += side) {
    for (size_t left = 0; left < static_cast<size_t>(image.width); left += side) {
      for (size_t y = 0; y < side; ++y) {
        const uint8_t* src = image.rgb.data() + (top + y) * image.row_bytes() + 3 * left;
        float* line = dst + y * side;
        for (size_t x = 0; x < side; ++x) {
          for (size_t c = 0; c < 3; ++c) {
            line[c * colour_values + x] = values[c][src[3 * x + c]];
          }
        }
      }
      dst += 3 * colour_values;
    }
  }
  return rows;
}

}  // namespace jige::images

// A picture in memory: rows from the top, three bytes (red, green, blue) a pixel, no gaps.
//
// Invariant: rgb.size() == 3 · width · height. Threads: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace jige::images {

struct Image {
  int32_t width = 0;
  int32_t height = 0;
  std::vector<uint8_t> rgb;

  size_t row_bytes() const { return 3 * static_cast<size_t>(width); }
};

// A black image. REQUIRES: sides of at least one pixel.
inline Image make_image(int32_t width, int32_t height) {
  Image image{width, height, {}};
  image.rgb.resize(image.row_bytes() * static_cast<size_t>(height));
  return image;
}

}  // namespace jige::images

#include "images/crop.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace jige::images {

Image crop_image(const Image& image, const CropRect& rect) {
  JIGE_CHECK(rect.left >= 0 && rect.top >= 0 && rect.width >= 1 && rect.height >= 1 &&
                 rect.width <= image.width - rect.left && rect.height <= image.height - rect.top,
             "{} x {} pixels from {}, {} of {} x {}", rect.width, rect.height, rect.left, rect.top,
             image.width, image.height);
  Image part = make_image(rect.width, rect.height);
  const uint8_t* src = image.rgb.data() + static_cast<size_t>(rect.top) * image.row_bytes() +
                       3 * static_cast<size_t>(rect.left);
  for (size_t y = 0; y < static_cast<size_t>(rect.height); ++y) {
    std::memcpy(part.rgb.data() + y * part.row_bytes(), src + y * image.row_bytes(),
                part.row_bytes());
  }
  return part;
}

Image pad_image(const Image& image, int32_t width, int32_t height) {
  JIGE_CHECK(image.width <= width && image.height <= height, "{} x {} pixels in {} x {}",
             image.width, image.height, width, height);
  if (image.width == width && image.height == height) return image;
  Image padded = make_image(width, height);
  const auto top = static_cast<size_t>((height - image.height) / 2);
  const auto left = static_cast<size_t>((width - image.width) / 2);
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
    std::memcpy(padded.rgb.data() + (top + y) * padded.row_bytes() + 3 * left,
                image.rgb.data() + y * image.row_bytes(), image.row_bytes());
  }
  return padded;
}

}  // namespace jige::images

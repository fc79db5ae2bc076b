// A part of an image, and an image with black around it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "images/image.h"

namespace jige::images {

struct CropRect {
  int32_t left = 0;
  int32_t top = 0;
  int32_t width = 0;
  int32_t height = 0;
};

// REQUIRES: at least one pixel, all inside the image.
Image crop_image(const Image& image, const CropRect& rect);

// Of this size, the image in its middle: where pixels beside it are odd, one more is right of it
// and below it. REQUIRES: it is no larger.
Image pad_image(const Image& image, int32_t width, int32_t height);

}  // namespace jige::images

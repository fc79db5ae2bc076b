// A part of an image.
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

}  // namespace jige::images

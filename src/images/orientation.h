// How a camera was held, by the numbers of Exif: 1 is upright, 2 to 8 are turned or mirrored.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"
#include "images/image.h"
#include "images/pace.h"

namespace jige::images {

// The orientation that Exif data tell (a TIFF header and its first folder, with or without "Exif"
// and two zeros before it), else XMP data, else 1. Damaged data tell nothing.
int read_orientation(std::span<const std::byte> exif, std::string_view xmp);

// Whether width and height of an image change places where it is turned upright.
inline bool changes_sides(int orientation) { return orientation >= 5 && orientation <= 8; }

// The image upright. Fails where its pace ends it.
Result<Image> turn_upright(Image image, int orientation, Pace& pace);

}  // namespace jige::images

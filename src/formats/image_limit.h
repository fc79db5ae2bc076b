// Images smaller than a folder's own configuration lets them be, to save memory and time.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "formats/image_config.h"

namespace jige::formats {

// Lowers the sides above which an image shrinks, by one factor and to whole steps, or the area
// above which it does, so that an image has so many pixels at most once it has been resized (by
// area, one that is a single step high may have more; of tiles, those of the whole image behind
// them do not count); where it has no more anyway, nothing changes. Fails with kInvalidArgument
// where a row of the model takes more, and kUnsupported on families whose images have one size.
Status limit_image_pixels(ImageConfig& config, int64_t pixels_max);

}  // namespace jige::formats

// Images of another size, with the bytes that Pillow's Image.resize gives.
//
// A pixel of the result is a weighted sum of pixels around its place in the source. Where the image
// shrinks, the filter is as much wider, so that every pixel of the source counts. Rows are done
// first, rounded to bytes, then columns. Weights are whole numbers of 2^-22, each rounded by
// itself; sums of them stay below 2^31 for every filter here.
//
//   centre(x) = (x + 0.5) · scale        scale = source / result        wide = max(scale, 1)
//   weight(x, i) = f((i + 0.5 - centre(x)) / wide), divided by their sum over i
//   over i from ⌊centre - r · wide + 0.5⌋ to before ⌊centre + r · wide + 0.5⌋, inside the image
//
// f and its reach r: a triangle and 1 (bilinear), Keys' cubic with a = -1/2 and 2 (bicubic), a
// windowed sinc and 3 (Lanczos). kNearest takes the pixel of the place itself.
//
// Threads: pure functions; `go_on` is asked on the caller's.
#pragma once

#include <cstdint>

#include "base/go_on.h"
#include "base/result.h"
#include "images/image.h"

namespace jige::images {

enum class ResizeFilter { kNearest, kBilinear, kBicubic, kLanczos };

// Fails with what `go_on` gives, which is asked every some hundred thousand pixels. REQUIRES: sides
// of 1 to 65535 pixels, in `image` and as wanted.
Result<Image> resize_image(const Image& image, int32_t width, int32_t height, ResizeFilter filter,
                           const GoOn& go_on = {});

}  // namespace jige::images

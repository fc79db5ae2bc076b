// Files of images as pixels: PNG, JPEG, WebP and GIF, told apart by their first bytes.
//
//   JIGE_TRY(const Image image, decode_image(bytes, "photo.jpg"));
//
// Pixels are those that Pillow's exif_transpose and convert("RGB") give, as `load_image` of
// transformers does: turned as their Exif or XMP orientation says, alpha dropped,
// palettes and greys expanded, the high byte of 16 bits, CMYK as Adobe stores it, of animations the
// first picture. Colour profiles are not looked at. One thing differs: greys of 16 bits above 255,
// which Pillow makes white.
//
// A file that ends too early is refused, even where only its last bytes are missing.
//
// Threads: pure functions; `go_on` is asked on the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/go_on.h"
#include "base/result.h"
#include "images/image.h"

namespace jige::images {

struct DecodeLimits {
  int64_t file_bytes_max = 32 << 20;
  int64_t pixels_max = 64'000'000;
  int32_t side_max = 65'535;
};

// The image of a file; `where` names the file in errors. What it says of its size is held against
// the limits before memory is taken for it. Fails with kInvalidArgument where it is larger than
// `limits` or no image, kUnsupported where it is of a kind that is not read, kCorrupt; and with
// what `go_on` gives, which is asked every some hundred thousand pixels (of WebP: decode_webp.cc).
Result<Image> decode_image(std::span<const std::byte> file, std::string_view where,
                           const DecodeLimits& limits = {}, const GoOn& go_on = {});

struct ImageSize {
  int32_t width = 0;
  int32_t height = 0;
};

// The size of the image that decode_image gives, by what the file says of it: no pixel is read, and
// no memory taken for one. Fails likewise, but for pixels that are damaged.
Result<ImageSize> image_size(std::span<const std::byte> file, std::string_view where,
                             const DecodeLimits& limits = {});

}  // namespace jige::images

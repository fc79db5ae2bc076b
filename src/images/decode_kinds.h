// What decode.cc calls, one function for each kind of file.
//
// Each checks the size that the file tells before it takes memory for pixels, prints nothing, asks
// its pace on the way, and fails as decode_image does. The libraries of PNG and JPEG leave by
// longjmp: it passes only over functions without objects that have destructors. Threads: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "images/decode.h"
#include "images/image.h"
#include "images/pace.h"

namespace jige::images {

// How much of a file is wanted: what it says of its size and orientation, or the pixels, too.
enum class DecodePart { kHead, kAll };

// An image as it is stored, and how it has to be turned (orientation.h). Of a head it has no bytes.
struct StoredImage {
  Image image;
  int orientation = 1;
};

Result<StoredImage> decode_png(std::span<const std::byte> file, std::string_view where,
                               const DecodeLimits& limits, DecodePart part, Pace& pace);
Result<StoredImage> decode_jpeg(std::span<const std::byte> file, std::string_view where,
                                const DecodeLimits& limits, DecodePart part, Pace& pace);
Result<StoredImage> decode_webp(std::span<const std::byte> file, std::string_view where,
                                const DecodeLimits& limits, DecodePart part, Pace& pace);
Result<StoredImage> decode_gif(std::span<const std::byte> file, std::string_view where,
                               const DecodeLimits& limits, DecodePart part, Pace& pace);

// What there is of an image whose pixels are not wanted.
inline StoredImage stored_head(int32_t width, int32_t height, int orientation) {
  return {.image = {.width = width, .height = height, .rgb = {}}, .orientation = orientation};
}

// That an image of this size may be read. Fails with kInvalidArgument, with kCorrupt where a side
// is none.
Status check_size(int64_t width, int64_t height, std::string_view where,
                  const DecodeLimits& limits);

}  // namespace jige::images

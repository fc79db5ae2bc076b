#include "images/decode.h"

#include <algorithm>
#include <string>
#include <utility>

#include "images/decode_kinds.h"
#include "images/orientation.h"
#include "images/pace.h"

namespace jige::images {
namespace {

// What kind of file other first bytes are, or nothing.
std::string_view unread_kind(std::string_view start) {
  constexpr std::pair<std::string_view, std::string_view> kStarts[] = {
      {"BM", "a BMP"},
      {{"II*\0", 4}, "a TIFF"},
      {{"MM\0*", 4}, "a TIFF"},
      {"\xff\x0a", "a JPEG XL"},
      {{"\0\0\0\x0cJXL ", 8}, "a JPEG XL"},
      {{"\0\0\0\x0cjP  ", 8}, "a JPEG 2000"},
      {"%PDF", "a PDF"},
      {"<svg", "an SVG"},
      {"<?xml", "XML, as an SVG is"},
  };
  for (const auto& [first, name] : kStarts) {
    if (start.starts_with(first)) return name;
  }
  if (start.size() < 12 || start.substr(4, 4) != "ftyp") return {};
  const std::string_view brand = start.substr(8, 4);
  if (brand == "avif" || brand == "avis") return "an AVIF";
  return brand.starts_with("hei") || brand.starts_with("hev") || brand.starts_with("mif1")
             ? "a HEIF"
             : "a video";
}

Result<StoredImage> decode_stored(std::span<const std::byte> file, std::string_view where,
                                  const DecodeLimits& limits, DecodePart part, Pace& pace) {
  if (std::cmp_greater(file.size(), limits.file_bytes_max)) {
    return fail(Code::kInvalidArgument,
                "{}: an image of {} bytes is larger than the limit of {}; make it smaller", where,
                file.size(), limits.file_bytes_max);
  }
  const std::string_view start(reinterpret_cast<const char*>(file.data()),
                               std::min<size_t>(file.size(), 12));
  if (start.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(file, where, limits, part, pace);
  if (start.starts_with("\xff\xd8\xff")) return decode_jpeg(file, where, limits, part, pace);
  if (start.starts_with("RIFF") && start.ends_with("WEBP")) {
    return decode_webp(file, where, limits, part, pace);
  }
  if (start.starts_with("GIF87a") || start.starts_with("GIF89a")) {
    return decode_gif(file, where, limits, part, pace);
  }
  if (const std::string_view kind = unread_kind(start); !kind.empty()) {
    return fail(Code::kUnsupported, "{}: is {}, which is not read; convert it to PNG or JPEG",
                where, kind);
  }
  return fail(Code::kInvalidArgument,
              "{}: is no image of a kind that is read: PNG, JPEG, WebP and GIF are", where);
}

}  // namespace

Status check_size(int64_t width, int64_t height, std::string_view where,
                  const DecodeLimits& limits) {
  if (width < 1 || height < 1) {
    return fail(Code::kCorrupt, "{}: an image of {} x {} pixels", where, width, height);
  }
  if (width > limits.side_max || height > limits.side_max || width > limits.pixels_max / height) {
    return fail(Code::kInvalidArgument,
                "{}: an image of {} x {} pixels is larger than the limit of {} pixels, {} a side; "
                "make it smaller",
                where, width, height, limits.pixels_max, limits.side_max);
  }
  return {};
}

Result<Image> decode_image(std::span<const std::byte> file, std::string_view where,
                           const DecodeLimits& limits, const GoOn& go_on) {
  Pace pace(go_on);
  JIGE_TRY(StoredImage stored, decode_stored(file, where, limits, DecodePart::kAll, pace));
  return turn_upright(std::move(stored.image), stored.orientation, pace);
}

Result<ImageSize> image_size(std::span<const std::byte> file, std::string_view where,
                             const DecodeLimits& limits) {
  const GoOn nothing_ends_it;
  Pace pace(nothing_ends_it);
  JIGE_TRY(const StoredImage stored, decode_stored(file, where, limits, DecodePart::kHead, pace));
  ImageSize size{stored.image.width, stored.image.height};
  if (changes_sides(stored.orientation)) std::swap(size.width, size.height);
  return size;
}

}  // namespace jige::images

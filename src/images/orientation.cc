#include "images/orientation.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

namespace jige::images {
namespace {

constexpr uint16_t kOrientationTag = 0x0112;
constexpr int kOrientationMax = 8;

// Numbers of a TIFF file, in the order of bytes that it begins with.
class TiffBytes {
 public:
  TiffBytes(std::span<const std::byte> bytes, bool is_big) : bytes_(bytes), is_big_(is_big) {}

  bool has(size_t at, size_t size) const {
    return at <= bytes_.size() && size <= bytes_.size() - at;
  }
  // REQUIRES: has(at, size).
  uint32_t number(size_t at, size_t size) const {
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const auto byte = std::to_integer<uint32_t>(bytes_[at + (is_big_ ? i : size - 1 - i)]);
      value = value << 8 | byte;
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool is_big_;
};

// Bytes of a whole number of a TIFF type, zero for other types.
size_t whole_number_bytes(uint32_t type) {
  switch (type) {
    case 3:
      return 2;
    case 4:
      return 4;
    default:
      return 0;
  }
}

std::optional<int> orientation_of_exif(std::span<const std::byte> exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  while (exif.size() >= kPrefix.size() &&
         std::memcmp(exif.data(), kPrefix.data(), kPrefix.size()) == 0) {
    exif = exif.subspan(kPrefix.size());
  }
  if (exif.size() < 8) return std::nullopt;
  const bool is_big = exif[0] == std::byte{'M'};
  if (exif[0] != exif[1] || (!is_big && exif[0] != std::byte{'I'})) return std::nullopt;
  const TiffBytes tiff(exif, is_big);
  if (tiff.number(2, 2) != 42) return std::nullopt;
  const size_t folder = tiff.number(4, 4);
  if (!tiff.has(folder, 2)) return std::nullopt;
  const uint32_t count = tiff.number(folder, 2);
  constexpr size_t kEntryBytes = 12;
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = folder + 2 + i * kEntryBytes;
    if (!tiff.has(entry, kEntryBytes)) break;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const size_t bytes = whole_number_bytes(tiff.number(entry + 2, 2));
    if (bytes == 0 || tiff.number(entry + 4, 4) != 1) return 1;  // as good as none
    const uint32_t value = tiff.number(entry + 8, bytes);
    return value <= kOrientationMax ? static_cast<int>(value) : 1;
  }
  return std::nullopt;
}

std::optional<int> orientation_of_xmp(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != xmp.npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with('>')) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

}  // namespace

int read_orientation(std::span<const std::byte> exif, std::string_view xmp) {
  std::optional<int> told = orientation_of_exif(exif);
  if (!told) told = orientation_of_xmp(xmp);
  return told && *told >= 1 && *told <= kOrientationMax ? *told : 1;
}

Result<Image> turn_upright(Image image, int orientation, Pace& pace) {
  if (orientation <= 1 || orientation > kOrientationMax) return image;
  const bool is_swapped = orientation >= 5;  // rows become columns
  // Whether the stored rows, and the pixels in them, run backwards.
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const int64_t width = image.width;
  const int64_t height = image.height;
  const int64_t begin = (from_below ? (height - 1) * width : 0) + (from_right ? width - 1 : 0);
  const int64_t right = from_right ? -1 : 1;
  const int64_t down = from_below ? -width : width;
  Image turned =
      is_swapped ? make_image(image.height, image.width) : make_image(image.width, image.height);
  const int64_t step_x = is_swapped ? down : right;
  const int64_t step_y = is_swapped ? right : down;
  constexpr int64_t kTile = 32;  // so that what is read down the columns stays in the cache
  for (int64_t tile_y = 0; tile_y < turned.height; tile_y += kTile) {
    if (!pace.step(kTile * turned.width)) return tl::unexpected(pace.status().error());
    for (int64_t tile_x = 0; tile_x < turned.width; tile_x += kTile) {
      const int64_t end_y = std::min<int64_t>(tile_y + kTile, turned.height);
      const int64_t end_x = std::min<int64_t>(tile_x + kTile, turned.width);
      for (int64_t y = tile_y; y < end_y; ++y) {
        for (int64_t x = tile_x; x < end_x; ++x) {
          const uint8_t* src = image.rgb.data() + 3 * (begin + x * step_x + y * step_y);
          uint8_t* dst = turned.rgb.data() + 3 * (y * turned.width + x);
          for (int c = 0; c < 3; ++c) dst[c] = src[c];
        }
      }
    }
  }
  return turned;
}

}  // namespace jige::images

// PNG by libpng. Everything that it is told to do stands between a setjmp and its return, in
// functions whose locals have no destructors.
#include <png.h>
#include <setjmp.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "images/decode_kinds.h"
#include "images/orientation.h"

namespace jige::images {
namespace {

// One file being read. Owns what libpng keeps.
struct PngReading {
  PngReading(std::span<const std::byte> bytes, Pace& with) : file(bytes), pace(with) {}
  ~PngReading() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReading(const PngReading&) = delete;
  PngReading& operator=(const PngReading&) = delete;

  std::span<const std::byte> file;
  Pace& pace;
  size_t at = 0;
  bool is_short = false;
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[160] = "no memory";
};

void keep_png_error(png_structp png, png_const_charp text) {
  auto* reading = static_cast<PngReading*>(png_get_error_ptr(png));
  const size_t size = std::min(std::strlen(text), sizeof(reading->message) - 1);
  std::memcpy(reading->message, text, size);
  reading->message[size] = 0;
  png_longjmp(png, 1);
}

void ignore_png_warning(png_structp, png_const_charp) {}

void give_png_bytes(png_structp png, png_bytep dst, size_t size) {
  auto* reading = static_cast<PngReading*>(png_get_io_ptr(png));
  if (size > reading->file.size() - reading->at) {
    reading->is_short = true;
    png_error(png, "the file ends before the image does");
  }
  std::memcpy(dst, reading->file.data() + reading->at, size);
  reading->at += size;
}

// What stands before the pixels. False: `message` says why.
bool read_png_header(PngReading& reading) {
  if (setjmp(png_jmpbuf(reading.png))) return false;
  png_structp png = reading.png;
  png_set_read_fn(png, &reading, give_png_bytes);
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size says it better
  // Texts and profiles would be unpacked for nothing.
  static const png_byte kExif[] = "eXIf";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_AS_DEFAULT, kExif, 1);
  png_read_info(png, reading.info);
  return true;
}

// The pixels as three bytes each, and what stands behind them. An image takes the memory of the
// rows that were read, so that one which ends early has not been black as a whole before.
// REQUIRES: room for all rows is reserved.
bool read_png_rows(PngReading& reading, Image& image) {
  if (setjmp(png_jmpbuf(reading.png))) return false;
  const auto height = static_cast<size_t>(image.height);
  const size_t row_bytes = image.row_bytes();
  png_structp png = reading.png;
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, reading.info);
  if (png_get_rowbytes(png, reading.info) != row_bytes) png_error(png, "rows of another size");
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < height; ++y) {
      if (!reading.pace.step(image.width)) return false;
      if (pass == 0) image.rgb.resize((y + 1) * row_bytes);
      png_read_row(png, image.rgb.data() + y * row_bytes, nullptr);
    }
  }
  png_read_end(png, reading.info);
  return true;
}

// The Exif data, which may stand behind the pixels: chunks are a length, a name, data and a sum.
std::span<const std::byte> find_exif_chunk(std::span<const std::byte> file) {
  constexpr size_t kSignature = 8;
  constexpr size_t kFraming = 12;
  for (size_t at = kSignature; at + kFraming <= file.size();) {
    size_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | std::to_integer<size_t>(file[at + i]);
    if (size > file.size() - at - kFraming) return {};
    if (std::memcmp(file.data() + at + 4, "eXIf", 4) == 0) return file.subspan(at + 8, size);
    at += kFraming + size;
  }
  return {};
}

tl::unexpected<Error> png_failure(const PngReading& reading, std::string_view where) {
  if (!reading.pace.status()) return tl::unexpected(reading.pace.status().error());
  return fail(Code::kCorrupt, "{}: this PNG is {}: {}; save the image anew", where,
              reading.is_short ? "cut off" : "damaged", reading.message);
}

}  // namespace

Result<StoredImage> decode_png(std::span<const std::byte> file, std::string_view where,
                               const DecodeLimits& limits, DecodePart part, Pace& pace) {
  PngReading reading(file, pace);
  reading.png =
      png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, keep_png_error, ignore_png_warning);
  if (reading.png) reading.info = png_create_info_struct(reading.png);
  if (!reading.info) return fail(Code::kExhausted, "{}: no memory to read a PNG", where);
  if (!read_png_header(reading)) return png_failure(reading, where);
  const uint32_t width = png_get_image_width(reading.png, reading.info);
  const uint32_t height = png_get_image_height(reading.png, reading.info);
  JIGE_DO(check_size(width, height, where, limits));
  if (part == DecodePart::kHead) {
    return stored_head(static_cast<int32_t>(width), static_cast<int32_t>(height),
                       read_orientation(find_exif_chunk(file), {}));
  }
  Image image{static_cast<int32_t>(width), static_cast<int32_t>(height), {}};
  image.rgb.reserve(image.row_bytes() * static_cast<size_t>(height));
  if (!read_png_rows(reading, image)) return png_failure(reading, where);
  png_bytep exif = nullptr;
  png_uint_32 exif_bytes = 0;
  png_get_eXIf_1(reading.png, reading.info, &exif_bytes, &exif);
  const int orientation =
      read_orientation(std::as_bytes(std::span(exif, exif ? exif_bytes : 0)), {});
  return StoredImage{std::move(image), orientation};
}

}  // namespace jige::images

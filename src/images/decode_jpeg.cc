// JPEG by libjpeg-turbo. Everything that it is told to do stands between a setjmp and its return,
// in functions whose locals have no destructors.
#include <setjmp.h>
#include <stdio.h>  // jpeglib.h needs it before

#include <jpeglib.h>

#include <cstring>
#include <string>
#include <vector>

#include "images/decode_kinds.h"
#include "images/orientation.h"

namespace jige::images {
namespace {

// Each scan of a progressive file goes through the whole image, and takes but a few bytes. Encoders
// write at most a few dozen.
constexpr int kScansMax = 100;

// One file being read. Owns what libjpeg keeps.
struct JpegReading {
  explicit JpegReading(Pace& with) : pace(with) {}
  ~JpegReading() { jpeg_destroy_decompress(&info); }
  JpegReading(const JpegReading&) = delete;
  JpegReading& operator=(const JpegReading&) = delete;

  Pace& pace;
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  jmp_buf escape{};
  bool is_short = false;
  char message[JMSG_LENGTH_MAX] = "";
};

JpegReading& reading_of(j_common_ptr info) { return *static_cast<JpegReading*>(info->client_data); }

[[noreturn]] void leave_jpeg(j_common_ptr info) {
  JpegReading& reading = reading_of(info);
  info->err->format_message(info, reading.message);
  longjmp(reading.escape, 1);
}

[[noreturn]] void leave_jpeg_with(JpegReading& reading, const char* text) {
  std::strncpy(reading.message, text, sizeof(reading.message) - 1);
  longjmp(reading.escape, 1);
}

void ignore_jpeg_message(j_common_ptr, int) {}
void ignore_jpeg_call(j_decompress_ptr) {}

// All of the file is there from the start, so that wanting more is the end.
boolean end_jpeg_bytes(j_decompress_ptr info) {
  JpegReading& reading = reading_of(reinterpret_cast<j_common_ptr>(info));
  reading.is_short = true;
  leave_jpeg_with(reading, "the file ends before the image does");
}

void skip_jpeg_bytes(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  jpeg_source_mgr& source = *info->src;
  if (static_cast<size_t>(count) > source.bytes_in_buffer) end_jpeg_bytes(info);
  source.next_input_byte += count;
  source.bytes_in_buffer -= static_cast<size_t>(count);
}

// Before each row of pixels and, of progressive files, each row of blocks of each scan.
void watch_jpeg(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (!reading_of(info).pace.step(decompress->image_width)) {
    leave_jpeg_with(reading_of(info), "it was to end");
  }
  if (decompress->input_scan_number > kScansMax) {
    leave_jpeg_with(reading_of(info), "it has more than a hundred scans");
  }
}

// What stands before the pixels. False: `message` says why.
bool read_jpeg_header(JpegReading& reading, const std::byte* file, size_t size) {
  jpeg_decompress_struct& info = reading.info;
  info.err = jpeg_std_error(&reading.errors);
  info.client_data = &reading;
  reading.errors.error_exit = leave_jpeg;
  reading.errors.emit_message = ignore_jpeg_message;
  if (setjmp(reading.escape)) return false;
  jpeg_create_decompress(&info);
  info.src = &reading.source;
  reading.source.init_source = ignore_jpeg_call;
  reading.source.fill_input_buffer = end_jpeg_bytes;
  reading.source.skip_input_data = skip_jpeg_bytes;
  reading.source.resync_to_restart = jpeg_resync_to_restart;
  reading.source.term_source = ignore_jpeg_call;
  reading.source.next_input_byte = reinterpret_cast<const JOCTET*>(file);
  reading.source.bytes_in_buffer = size;
  info.progress = &reading.progress;
  reading.progress.progress_monitor = watch_jpeg;
  jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);  // Exif and XMP
  jpeg_read_header(&info, TRUE);
  return true;
}

// A row of CMYK as Adobe stores it, 255 for no ink: red, green and blue are what the ink leaves.
void convert_cmyk_row(const uint8_t* cmyk, uint8_t* rgb, size_t width) {
  for (size_t x = 0; x < width; ++x) {
    const int light = cmyk[4 * x + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[4 * x + c]) * light + 128;
      rgb[3 * x + c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8));
    }
  }
}

// The pixels as three bytes each, and all up to the end of the image. `ink_row`: room for a row of
// CMYK, where the file has that.
bool read_jpeg_rows(JpegReading& reading, uint8_t* rgb, uint8_t* ink_row) {
  jpeg_decompress_struct& info = reading.info;
  if (setjmp(reading.escape)) return false;
  info.out_color_space = ink_row ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  const size_t row_bytes = 3 * static_cast<size_t>(info.output_width);
  while (info.output_scanline < info.output_height) {
    uint8_t* dst = rgb + info.output_scanline * row_bytes;
    JSAMPROW row = ink_row ? ink_row : dst;
    jpeg_read_scanlines(&info, &row, 1);
    if (ink_row) convert_cmyk_row(ink_row, dst, info.output_width);
  }
  jpeg_finish_decompress(&info);
  return true;
}

// Orientation by the segments that were kept: those of Exif are one text, of XMP the last counts.
int orientation_of_segments(const jpeg_decompress_struct& info) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  std::string exif;
  std::string_view xmp;
  for (jpeg_saved_marker_ptr it = info.marker_list; it; it = it->next) {
    const std::string_view text(reinterpret_cast<const char*>(it->data), it->data_length);
    if (text.starts_with(kExif)) exif += text.substr(kExif.size());
    if (text.starts_with(kXmp)) xmp = text.substr(kXmp.size());
  }
  return read_orientation(std::as_bytes(std::span(exif)), xmp);
}

tl::unexpected<Error> jpeg_failure(const JpegReading& reading, std::string_view where) {
  if (!reading.pace.status()) return tl::unexpected(reading.pace.status().error());
  return fail(Code::kCorrupt, "{}: this JPEG is {}: {}; save the image anew", where,
              reading.is_short ? "cut off" : "damaged", reading.message);
}

}  // namespace

Result<StoredImage> decode_jpeg(std::span<const std::byte> file, std::string_view where,
                                const DecodeLimits& limits, DecodePart part, Pace& pace) {
  JpegReading reading(pace);
  if (!read_jpeg_header(reading, file.data(), file.size())) return jpeg_failure(reading, where);
  const jpeg_decompress_struct& info = reading.info;
  JIGE_DO(check_size(info.image_width, info.image_height, where, limits));
  const int colours = info.num_components;
  if (colours != 1 && colours != 3 && colours != 4) {
    return fail(Code::kUnsupported,
                "{}: this JPEG has {} colours; grey, RGB and CMYK are read: save the image anew",
                where, colours);
  }
  const int orientation = orientation_of_segments(info);  // reading to the end frees them
  if (part == DecodePart::kHead) {
    return stored_head(static_cast<int32_t>(info.image_width),
                       static_cast<int32_t>(info.image_height), orientation);
  }
  Image image =
      make_image(static_cast<int32_t>(info.image_width), static_cast<int32_t>(info.image_height));
  std::vector<uint8_t> ink_row(colours == 4 ? 4 * static_cast<size_t>(info.image_width) : 0);
  if (!read_jpeg_rows(reading, image.rgb.data(), ink_row.empty() ? nullptr : ink_row.data())) {
    return jpeg_failure(reading, where);
  }
  return StoredImage{std::move(image), orientation};
}

}  // namespace jige::images

// Work on pixels that is told to end: every kind of file, turning and resizing. The files are as
// large as it takes to be asked several times, and made here.
#include "images/pace.h"

#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "images/decode.h"
#include "images/orientation.h"
#include "images/resize.h"
#include "images/test_files.h"
#include "images/test_support.h"

namespace jige::images {
namespace {

constexpr int32_t kWidth = 1200;
constexpr int32_t kHeight = 900;
constexpr int64_t kAskedPixels = int64_t{1} << 18;

// Gradients: what the libraries write and read quickly.
Image smooth_image() {
  Image image = make_image(kWidth, kHeight);
  for (size_t i = 0; i < image.rgb.size(); ++i) {
    image.rgb[i] = static_cast<uint8_t>(i / 40 + i / image.row_bytes());
  }
  return image;
}

std::string png_of(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png.flags = PNG_IMAGE_FLAG_FAST;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(png), 0);
  png_alloc_size_t size = file.size();
  EXPECT_TRUE(png_image_write_to_memory(&png, file.data(), &size, 0, image.rgb.data(), 0, nullptr));
  file.resize(size);
  return file;
}

std::string jpeg_of(const Image& image, bool is_progressive) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  if (is_progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(image.rgb.data()) + info.next_scanline * image.row_bytes();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return file;
}

std::string webp_of(const Image& image, bool is_lossless) {
  WebPConfig config;
  EXPECT_TRUE(WebPConfigInit(&config));
  config.lossless = is_lossless ? 1 : 0;
  config.method = 0;
  config.quality = 10;
  WebPPicture picture;
  EXPECT_TRUE(WebPPictureInit(&picture));
  picture.use_argb = config.lossless;
  picture.width = image.width;
  picture.height = image.height;
  WebPMemoryWriter writer;
  WebPMemoryWriterInit(&writer);
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer;
  EXPECT_TRUE(
      WebPPictureImportRGB(&picture, image.rgb.data(), static_cast<int>(image.row_bytes())));
  EXPECT_TRUE(WebPEncode(&config, &picture));
  WebPPictureFree(&picture);
  std::string file(reinterpret_cast<const char*>(writer.mem), writer.size);
  WebPMemoryWriterClear(&writer);
  return file;
}

// Greys, each pixel a code of nine bits: the table is cleared before it would take ten.
std::string gif_of(const Image& image) {
  std::string codes;
  uint32_t bits = 0;
  int bit_count = 0;
  const auto put = [&](uint32_t code) {
    bits |= code << bit_count;
    for (bit_count += 9; bit_count >= 8; bit_count -= 8, bits >>= 8) {
      codes += static_cast<char>(bits & 255);
    }
  };
  for (size_t i = 0; i < image.rgb.size() / 3; ++i) {
    if (i % 200 == 0) put(256);
    put(image.rgb[3 * i]);
  }
  put(257);
  codes += static_cast<char>(bits & 255);
  std::string file =
      gif_that_says(static_cast<uint16_t>(image.width), static_cast<uint16_t>(image.height));
  file.resize(file.size() - 2);  // its blocks
  for (size_t at = 0; at < codes.size(); at += 255) {
    const std::string block = codes.substr(at, 255);
    file += static_cast<char>(block.size()) + block;
  }
  return file + std::string("\0;", 2);
}

// Runs work that nothing ends, and counts how often it asks; then ends it at each of the first
// questions and at the last.
void expect_ends_when_told(const std::function<Result<Image>(const GoOn&)>& work,
                           int64_t asked_min) {
  int64_t asked = 0;
  const Result<Image> whole = work([&]() -> Status {
    ++asked;
    return {};
  });
  ASSERT_TRUE(whole) << whole.error().message;
  const int64_t all = asked;
  EXPECT_GE(all, asked_min);
  for (int64_t last : {int64_t{1}, int64_t{2}, all / 2, all}) {
    SCOPED_TRACE(last);
    asked = 0;
    const Result<Image> ended = work([&]() -> Status {
      if (++asked < last) return {};
      return fail(Code::kCancelled, "enough");
    });
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, Code::kCancelled);
    EXPECT_EQ(ended.error().message, "enough");
    EXPECT_EQ(asked, last);  // and was not asked again
  }
}

TEST(Pace, EndsDecodingOfEveryKindOfFile) {
  const Image image = smooth_image();
  struct Kind {
    const char* name;
    std::string file;
    int turns = 1;  // that are asked in: a GIF is read, then its ground is drawn, then its picture
  };
  const Kind kinds[] = {{"PNG", png_of(image)},
                        {"JPEG", jpeg_of(image, false)},
                        {"progressive JPEG", jpeg_of(image, true)},
                        {"WebP", webp_of(image, false)},
                        {"lossless WebP", webp_of(image, true)},
                        {"GIF", gif_of(image), 3}};
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    expect_ends_when_told(
        [&](const GoOn& go_on) { return decode_image(bytes_of(kind.file), "photo", {}, go_on); },
        kind.turns * (kWidth * kHeight / kAskedPixels));
  }
  EXPECT_TRUE(text_of(image_of(decode_image(bytes_of(png_of(image)), "photo"))) == text_of(image));
}

// What a file of some bytes becomes is asked for once at least.
TEST(Pace, EndsDecodingOfTheSmallestWebp) {
  for (const bool is_lossless : {false, true}) {
    const std::string file = webp_of(make_image(16, 16), is_lossless);
    int asked = 0;
    EXPECT_TRUE(decode_image(bytes_of(file), "photo", {}, [&]() -> Status {
      ++asked;
      return {};
    }));
    EXPECT_GE(asked, 1);
    EXPECT_LE(asked, 3);
  }
}

TEST(Pace, EndsTurning) {
  const Image image = smooth_image();
  for (const int orientation : {2, 6}) {
    expect_ends_when_told(
        [&](const GoOn& go_on) {
          Pace pace(go_on);
          return turn_upright(image, orientation, pace);
        },
        3);
  }
}

TEST(Pace, EndsResizing) {
  const Image image = smooth_image();
  for (const ResizeFilter filter : {ResizeFilter::kNearest, ResizeFilter::kBicubic}) {
    for (const auto& [width, height] : {std::pair(1000, 800), {kWidth, 850}, {1100, kHeight}}) {
      expect_ends_when_told(
          [&, width = width, height = height](const GoOn& go_on) {
            return resize_image(image, width, height, filter, go_on);
          },
          width * height / kAskedPixels);
    }
  }
}

}  // namespace
}  // namespace jige::images

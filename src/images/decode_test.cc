// Files of images against Pillow's pixels, recorded by tests/tools/record_images.py, and files that
// are damaged, cut off, too large or of another kind.
#include "images/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "images/test_files.h"
#include "images/test_support.h"

namespace jige::images {
namespace {

using ::testing::HasSubstr;

Result<Image> decode(std::string_view file, const DecodeLimits& limits = {}) {
  return decode_image(bytes_of(file), "photo", limits);
}

void expect_failure(const Result<Image>& image, Code code, std::string_view text) {
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().code, code) << image.error().message;
  EXPECT_THAT(image.error().message, HasSubstr(std::string(text)));
  EXPECT_THAT(image.error().message, HasSubstr("photo"));
}

TEST(Decode, GivesThePixelsOfPillow) {
  std::set<std::string> kinds;
  for (const auto& recording : recorded("decoded.json")) {
    const std::string name = recording.at("file");
    SCOPED_TRACE(name);
    kinds.insert(name.substr(name.find('.')));
    const Result<Image> image = decode(read_or_fail(fixture("files/" + name)));
    ASSERT_TRUE(image) << image.error().message;
    EXPECT_EQ(image->width, recording.at("width"));
    EXPECT_EQ(image->height, recording.at("height"));
    EXPECT_TRUE(text_of(*image) == recorded_bytes(recording.at("rgb")));
  }
  EXPECT_EQ(kinds, (std::set<std::string>{".gif", ".jpg", ".png", ".webp"}));
}

TEST(Decode, KnowsTheSizeWithoutThePixels) {
  for (const auto& [name, file] : image_files()) {
    SCOPED_TRACE(name);
    const Result<Image> image = decode(file);
    const Result<ImageSize> size = image_size(bytes_of(file), "photo");
    ASSERT_TRUE(image && size);
    EXPECT_EQ(size->width, image->width);
    EXPECT_EQ(size->height, image->height);
    const int64_t pixels = int64_t{image->width} * image->height;
    const auto refused = image_size(bytes_of(file), "photo", {.pixels_max = pixels - 1});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_FALSE(image_size(bytes_of(file.substr(0, 20)), "photo"));
  }
}

// What is cut off at any place; of a GIF, where its first picture is not there in full.
TEST(Decode, RefusesWhatEndsTooEarly) {
  for (const auto& [name, file] : image_files()) {
    SCOPED_TRACE(name);
    size_t needed = file.size();
    if (name == "trailing.jpg") needed = file.find("behind the end");
    if (name.ends_with(".gif")) {
      while (decode(file.substr(0, needed))) --needed;
      ++needed;
      EXPECT_TRUE(name == "animated.gif" || needed + 6 >= file.size());
    }
    for (size_t size = 0; size < needed; size += std::max<size_t>(1, needed / 200)) {
      ASSERT_FALSE(decode(file.substr(0, size))) << size << " of " << needed;
    }
    EXPECT_FALSE(decode(file.substr(0, needed - 1)));
    EXPECT_TRUE(decode(file.substr(0, needed)));
  }
}

TEST(Decode, NamesWhatItDoesNotRead) {
  const auto padded = [](std::string_view start) {
    return std::string(start) + std::string(40, 0);
  };
  expect_failure(decode(padded("BM")), Code::kUnsupported, "is a BMP");
  expect_failure(decode(padded({"II*\0", 4})), Code::kUnsupported, "is a TIFF");
  expect_failure(decode(padded({"\0\0\0\x20"
                                "ftypavif",
                                12})),
                 Code::kUnsupported, "is an AVIF");
  expect_failure(decode(padded({"\0\0\0\x18"
                                "ftypheic",
                                12})),
                 Code::kUnsupported, "is a HEIF");
  expect_failure(decode(padded({"\0\0\0\x18"
                                "ftypisom",
                                12})),
                 Code::kUnsupported, "is a video");
  expect_failure(decode("<svg xmlns=\"http://www.w3.org/2000/svg\"/>"), Code::kUnsupported,
                 "an SVG");
  expect_failure(decode("RIFF"), Code::kInvalidArgument, "is no image");
  expect_failure(decode(""), Code::kInvalidArgument, "PNG, JPEG, WebP and GIF are");
  expect_failure(decode("{\"not\": \"an image\"}"), Code::kInvalidArgument, "is no image");
}

// A kilobyte that says of itself to be of many gigabytes is refused by its words alone.
TEST(Decode, HoldsSizesAgainstTheLimits) {
  const std::string file = png_that_says(60'000, 60'000);
  EXPECT_LT(file.size(), 1000u);
  expect_failure(decode(file), Code::kInvalidArgument, "60000 x 60000");
  expect_failure(decode(png_that_says(100'000, 1)), Code::kInvalidArgument, "65535 a side");
  expect_failure(decode(png_that_says(0x7fffffff, 0x7fffffff)), Code::kInvalidArgument,
                 "2147483647");
  expect_failure(decode(gif_that_says(65'535, 65'535)), Code::kInvalidArgument, "65535 x 65535");
  for (const char* name : {"rgb8.png", "sampled420.jpg", "lossy.webp", "photo.gif"}) {
    SCOPED_TRACE(name);
    const std::string good = read_or_fail(fixture(std::string("files/") + name));
    const Result<Image> image = decode(good);
    ASSERT_TRUE(image);
    const int64_t pixels = int64_t{image->width} * image->height;
    EXPECT_TRUE(decode(good, {.pixels_max = pixels}));
    expect_failure(decode(good, {.pixels_max = pixels - 1}), Code::kInvalidArgument,
                   "make it smaller");
    EXPECT_TRUE(decode(good, {.side_max = image->width}));
    expect_failure(decode(good, {.side_max = image->width - 1}), Code::kInvalidArgument, "a side");
    const auto size = static_cast<int64_t>(good.size());
    EXPECT_TRUE(decode(good, {.file_bytes_max = size}));
    expect_failure(decode(good, {.file_bytes_max = size - 1}), Code::kInvalidArgument, "bytes");
  }
}

TEST(Decode, PassesOverTextsAndProfiles) {
  const std::string good = read_or_fail(fixture("files/rgb8.png"));
  constexpr size_t kHeaderEnd = 33;
  const auto with = [&](const std::string& chunk) {
    return good.substr(0, kHeaderEnd) + chunk + good.substr(kHeaderEnd);
  };
  const Result<Image> image = decode(with(png_chunk("zTXt", "Title\0 not of zlib")));
  ASSERT_TRUE(image) << image.error().message;
  EXPECT_EQ(text_of(*image), text_of(*decode(good)));
  EXPECT_TRUE(decode(with(png_chunk("iCCP", "damaged"))));
  expect_failure(decode(with(png_chunk("ABCD", "must be understood"))), Code::kCorrupt, "PNG");
}

// What the libraries find odd but read is not told, least of all on the terminal.
TEST(Decode, PrintsNothing) {
  testing::internal::CaptureStderr();
  std::string png = read_or_fail(fixture("files/gamma.png"));
  png[png.find("gAMA") + 4] ^= 1;  // its checksum is wrong now
  EXPECT_TRUE(decode(png));
  std::string jpeg = read_or_fail(fixture("files/grey.jpg"));
  jpeg.insert(jpeg.find("\xff\xda"), "between markers");
  EXPECT_TRUE(decode(jpeg));
  EXPECT_FALSE(decode(jpeg.substr(0, jpeg.size() / 2)));
  EXPECT_FALSE(decode(png.substr(0, png.size() / 2)));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Decode, BoundsTheScansOfAJpeg) {
  const std::string good = read_or_fail(fixture("files/grey_progressive.jpg"));
  // A scan that changes nothing can come again and again: the last one is doubled.
  const size_t scan = good.rfind(std::string("\xff\xda", 2));
  ASSERT_NE(scan, std::string::npos);
  const std::string last = good.substr(scan, good.size() - 2 - scan);
  std::string many = good.substr(0, scan);
  for (int i = 0; i < 200; ++i) many += last;
  many += "\xff\xd9";
  expect_failure(decode(many), Code::kCorrupt, "scans");
}

TEST(Decode, ReadsJpegsOfTheseColoursAlone) {
  std::string file = read_or_fail(fixture("files/grey.jpg"));
  // From one colour to two: the frame and the scan tell both.
  const size_t frame = file.find(std::string("\xff\xc0", 2));
  ASSERT_NE(frame, std::string::npos);
  file[frame + 3] = 14;
  file[frame + 9] = 2;
  file.insert(frame + 13, std::string("\x02\x11\x00", 3));
  expect_failure(decode(file), Code::kUnsupported, "2 colours");
}

TEST(Decode, SaysWhatIsDamaged) {
  std::string png = read_or_fail(fixture("files/rgb8.png"));
  png[png.find("IDAT") + 8] ^= 1;
  expect_failure(decode(png), Code::kCorrupt, "damaged");
  std::string jpeg = read_or_fail(fixture("files/sampled444.jpg"));
  expect_failure(decode(jpeg.substr(0, jpeg.size() - 2)), Code::kCorrupt, "cut off");
  jpeg[jpeg.find("\xff\xc0") + 4] = 12;  // bits a sample
  expect_failure(decode(jpeg), Code::kCorrupt, "damaged");
  std::string webp = read_or_fail(fixture("files/lossless.webp"));
  webp[20] = 0;  // the mark of VP8L
  expect_failure(decode(webp), Code::kCorrupt, "WebP");
  std::string gif = read_or_fail(fixture("files/whole.gif"));
  gif[gif.rfind('\x08')] = 1;
  expect_failure(decode(gif), Code::kCorrupt, "GIF");
}

}  // namespace
}  // namespace jige::images

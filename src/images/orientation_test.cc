#include "images/orientation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "images/test_support.h"

namespace jige::images {
namespace {

const std::string kExif("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);

Image upright_of(Image image, int orientation) {
  const GoOn nothing_ends_it;
  Pace pace(nothing_ends_it);
  return image_of(turn_upright(std::move(image), orientation, pace));
}

TEST(Orientation, IsReadFromExifThenXmp) {
  EXPECT_EQ(read_orientation(bytes_of(kExif), {}), 6);
  EXPECT_EQ(read_orientation(bytes_of(std::string("Exif\0\0", 6) + kExif), {}), 6);
  EXPECT_EQ(read_orientation(bytes_of(kExif), "tiff:Orientation=\"3\""), 6);
  EXPECT_EQ(read_orientation({}, "<a tiff:Orientation=\"3\">"), 3);
  EXPECT_EQ(read_orientation({}, "tiff:Orientation='2' tiff:Orientation>8<"), 8);
  EXPECT_EQ(read_orientation({}, "tiff:Orientation=\"9\""), 1);
  EXPECT_EQ(read_orientation({}, "tiff:Orientation"), 1);
  EXPECT_EQ(read_orientation({}, {}), 1);
}

TEST(Orientation, OfDamagedExifIsUpright) {
  for (size_t size = 0; size < 22; ++size) {
    EXPECT_EQ(read_orientation(bytes_of(kExif.substr(0, size)), {}), 1) << size;
  }
  for (const uint8_t value : {0, 9, 255}) {
    std::string exif = kExif;
    exif[19] = static_cast<char>(value);
    EXPECT_EQ(read_orientation(bytes_of(exif), {}), 1);
  }
  std::string far = kExif;
  far[4] = far[5] = far[6] = far[7] = '\xff';  // where its first folder stands
  EXPECT_EQ(read_orientation(bytes_of(far), {}), 1);
  std::string several = kExif;  // numbers
  several[17] = 2;
  EXPECT_EQ(read_orientation(bytes_of(several), {}), 1);
  std::string bytes = kExif;  // of a type for other things
  bytes[13] = 7;
  EXPECT_EQ(read_orientation(bytes_of(bytes), "tiff:Orientation=\"3\""), 1);
  std::string many = kExif;
  many[8] = '\xff';  // more entries than there are
  many[11] = '\x13';
  EXPECT_EQ(read_orientation(bytes_of(many), {}), 1);
}

// a b c
// d e f
TEST(Orientation, TurnsAsItsNumberSays) {
  const std::vector<std::string> turned = {"abc/def",  "cba/fed",  "fed/cba",  "def/abc",
                                           "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    Image image = make_image(3, 2);
    for (size_t i = 0; i < image.rgb.size(); ++i) {
      image.rgb[i] = static_cast<uint8_t>("abcdef"[i / 3] + 32 * (i % 3));
    }
    const Image upright = upright_of(image, orientation);
    std::string text;
    for (size_t i = 0; i < upright.rgb.size(); i += 3) {
      if (i > 0 && i % upright.row_bytes() == 0) text += '/';
      text += static_cast<char>(upright.rgb[i]);
      EXPECT_EQ(upright.rgb[i + 2], static_cast<uint8_t>(upright.rgb[i] + 64));
    }
    EXPECT_EQ(text, turned[static_cast<size_t>(orientation - 1)]) << orientation;
  }
}

TEST(Orientation, TurnsBackInImagesOfManyTiles) {
  const Image image = drawn_image(77, 101, 5);
  for (const auto& [there, back] : {std::pair{2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 8}, {7, 7}}) {
    const Image turned = upright_of(image, there);
    EXPECT_NE(turned.rgb, image.rgb);
    EXPECT_EQ(upright_of(turned, back).rgb, image.rgb) << there;
  }
}

}  // namespace
}  // namespace jige::images

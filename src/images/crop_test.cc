#include "images/crop.h"

#include <gtest/gtest.h>

namespace jige::images {
namespace {

TEST(CropImage, HasThePixelsOfItsPart) {
  Image image = make_image(5, 4);
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i);
  const Image part = crop_image(image, {.left = 2, .top = 1, .width = 3, .height = 2});
  ASSERT_EQ(part.width, 3);
  ASSERT_EQ(part.height, 2);
  for (size_t y = 0; y < 2; ++y) {
    for (size_t x = 0; x < 9; ++x) {
      EXPECT_EQ(part.rgb[y * 9 + x], image.rgb[(y + 1) * 15 + 6 + x]) << y << " " << x;
    }
  }
  EXPECT_EQ(crop_image(image, {.width = 5, .height = 4}).rgb, image.rgb);
  EXPECT_EQ(crop_image(image, {.left = 4, .top = 3, .width = 1, .height = 1}).rgb,
            (std::vector<uint8_t>{57, 58, 59}));
}

TEST(PadImage, HasTheImageInItsMiddle) {
  Image image = make_image(3, 1);
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(i + 1);
  const Image padded = pad_image(image, 6, 4);
  ASSERT_EQ(padded.rgb.size(), 6u * 4 * 3);
  // Two of three lines and columns beside it are behind it.
  EXPECT_EQ(crop_image(padded, {.left = 1, .top = 1, .width = 3, .height = 1}).rgb, image.rgb);
  size_t black = 0;
  for (const uint8_t byte : padded.rgb) black += byte == 0 ? 1 : 0;
  EXPECT_EQ(black, padded.rgb.size() - image.rgb.size());
  EXPECT_EQ(pad_image(image, 3, 1).rgb, image.rgb);
}

}  // namespace
}  // namespace jige::images

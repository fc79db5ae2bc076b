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

}  // namespace
}  // namespace jige::images

#include "formats/image_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace jige::formats {
namespace {

ImageConfig config_of_sides(int64_t width, int64_t height) {
  ImageConfig config;
  config.patch_size = 14;
  config.merge = 2;
  config.width_max = width;
  config.height_max = height;
  return config;
}

TEST(ImageLimit, BoundsThePixelsOfEveryImage) {
  for (const auto& [width, height] : {std::pair(1540, 1540), {1024, 700}, {560, 2800}}) {
    const ImageConfig whole = config_of_sides(width, height);
    for (const int64_t pixels : {200'000, 410'000, 1'000'000, 1'003'520}) {
      SCOPED_TRACE(pixels);
      ImageConfig config = whole;
      ASSERT_TRUE(limit_image_pixels(config, pixels));
      EXPECT_LE(config.patches_max() * 14 * 14, pixels);
      int64_t most = 0;
      for (int32_t x = 100; x < 4000; x += 391) {
        for (int32_t y = 100; y < 4000; y += 391) {
          const ImageLayout layout = image_layout(config, x, y);
          most = std::max(most, int64_t{layout.width} * layout.height);
        }
      }
      EXPECT_LE(most, pixels);
      // It is not smaller than it has to be.
      EXPECT_GT(most, std::min(pixels, int64_t{width} * height) * 8 / 10);
    }
  }
}

TEST(ImageLimit, IsTheAreaOfFamiliesThatGoByIt) {
  ImageConfig whole = config_of_sides(0, 0);
  whole.family = ImageFamily::kQwen25;
  whole.pixels_min = 3136;
  whole.pixels_max = 12845056;
  for (const int64_t pixels : {784, 3000, 200'000, 1'003'520}) {
    SCOPED_TRACE(pixels);
    ImageConfig config = whole;
    ASSERT_TRUE(limit_image_pixels(config, pixels));
    EXPECT_LT(config.patches_max(), whole.patches_max());
    int64_t most = 0;
    for (int32_t x = 100; x < 4000; x += 391) {
      for (int32_t y = x / 3; y < 3 * x; y += 391) {
        const ImageLayout layout = image_layout(config, x, y);
        most = std::max(most, int64_t{layout.width} * layout.height);
      }
    }
    EXPECT_LE(most, std::max<int64_t>(pixels, 3 * 784));  // a step beside three
    EXPECT_GT(most, pixels * 7 / 10);
  }
  ImageConfig config = whole;
  ASSERT_TRUE(limit_image_pixels(config, whole.pixels_max));
  EXPECT_EQ(config, whole);
  EXPECT_FALSE(limit_image_pixels(config, 783));
}

TEST(ImageLimit, KeepsTheShapeAndWhatIsSmaller) {
  const ImageConfig whole = config_of_sides(1540, 1540);
  ImageConfig config = whole;
  ASSERT_TRUE(limit_image_pixels(config, 784 * 784));
  EXPECT_EQ(config.width_max, 784);
  EXPECT_EQ(config.height_max, 784);
  EXPECT_EQ(image_layout(config, 700, 300), image_layout(whole, 700, 300));
  const ImageLayout layout = image_layout(config, 4000, 2000);
  EXPECT_EQ(layout.width, 784);
  EXPECT_EQ(layout.height, 392);
}

TEST(ImageLimit, ChangesNothingWhereImagesAreSmaller) {
  const ImageConfig whole = config_of_sides(1540, 1540);
  ImageConfig config = whole;
  EXPECT_TRUE(limit_image_pixels(config, 1540 * 1540));
  EXPECT_EQ(config, whole);
  EXPECT_TRUE(limit_image_pixels(config, 1540 * 1540 - 1));
  EXPECT_EQ(config.width_max, 1512);
}

TEST(ImageLimit, RefusesLessThanARow) {
  ImageConfig config = config_of_sides(1540, 1540);
  const ImageConfig whole = config;
  const Status refused = limit_image_pixels(config, 28 * 28 - 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("28 x 28"), std::string::npos);
  EXPECT_EQ(config, whole);
  EXPECT_TRUE(limit_image_pixels(config, 28 * 28));
  EXPECT_EQ(config.rows_max(), 1);
}

TEST(ImageLimit, IsNoneOfOtherFamilies) {
  ImageConfig config = config_of_sides(896, 896);
  config.family = ImageFamily::kGemma3;
  const Status refused = limit_image_pixels(config, 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_EQ(config.width_max, 896);
}

// By square images: others of the same number of tiles along the longer side have fewer.
TEST(ImageLimit, IsInWholeTiles) {
  for (const int64_t tile : {512, 33}) {
    ImageConfig whole = config_of_sides(4 * tile - 1, 4 * tile - 1);
    whole.family = ImageFamily::kIdefics3;
    whole.patch_size = tile == 33 ? 11 : 16;
    whole.merge = 1;
    whole.tile_side = tile;
    EXPECT_EQ(whole.tiles_max(), 17);
    for (int64_t side = 1; side <= 6; ++side) {
      SCOPED_TRACE(side);
      for (const int64_t more : {int64_t{0}, (2 * side + 1) * tile * tile - 1}) {
        ImageConfig config = whole;
        const int64_t pixels = side * side * tile * tile + more;
        ASSERT_TRUE(limit_image_pixels(config, pixels));
        const int64_t tiles = std::min<int64_t>(side, 4);
        EXPECT_EQ(config.tiles_max(), tiles == 1 ? 1 : tiles * tiles + 1);
        for (const auto& [x, y] : {std::pair(900, 900), {1, 1}, {70, 900}, {900, 70}}) {
          const ImageLayout layout = image_layout(config, x, y);
          EXPECT_LE(int64_t{layout.width} * layout.height, pixels);
          EXPECT_LE(layout.tile_count(), config.tiles_max());
        }
        EXPECT_EQ(image_layout(config, 900, 900).tile_count(), config.tiles_max());
        EXPECT_EQ(config == whole, side >= 4);
      }
    }
    ImageConfig config = whole;
    const Status refused = limit_image_pixels(config, tile * tile - 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    // All images are one tile.
    config.cuts = false;
    EXPECT_FALSE(limit_image_pixels(config, int64_t{1} << 28));
  }
}

TEST(ImageLimit, ShrinksOneSideWhereTheOtherIsShort) {
  ImageConfig config = config_of_sides(28, 2800);
  EXPECT_TRUE(limit_image_pixels(config, 2 * 28 * 28));
  EXPECT_EQ(config.width_max, 28);
  EXPECT_EQ(config.height_max, 56);
}

}  // namespace
}  // namespace jige::formats

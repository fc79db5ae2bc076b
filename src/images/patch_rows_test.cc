#include "images/patch_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "images/test_support.h"

namespace jige::images {
namespace {

TEST(PatchRows, HaveTheBitsOfTransformers) {
  const nlohmann::json recording = recorded("patches.json");
  const Image image = drawn_image(recording.at("width"), recording.at("height"), 1);
  PixelScale scale;
  for (size_t c = 0; c < 3; ++c) {
    scale.mean[c] = recording.at("mean")[c];
    scale.std[c] = recording.at("std")[c];
  }
  const std::vector<float> rows = patch_rows(image, recording.at("patch"), scale);
  const std::string expected = recorded_bytes(recording.at("rows"));
  ASSERT_EQ(expected.size(), rows.size() * sizeof(float));
  for (size_t i = 0; i < rows.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, expected.data() + i * sizeof(bits), sizeof(bits));
    ASSERT_EQ(std::bit_cast<uint32_t>(rows[i]), bits) << i;
  }
}

TEST(PatchRows, StandColourByColour) {
  const Image image = drawn_image(6, 4, 2);
  const std::vector<float> rows = patch_rows(image, 2, {.mean = {}, .std = {1, 1, 1}, .factor = 1});
  for (int32_t y = 0; y < 4; ++y) {
    for (int32_t x = 0; x < 6; ++x) {
      for (int32_t c = 0; c < 3; ++c) {
        const int32_t row = y / 2 * 3 + x / 2;
        const int32_t column = c * 4 + y % 2 * 2 + x % 2;
        EXPECT_EQ(rows[static_cast<size_t>(row * 12 + column)],
                  image.rgb[static_cast<size_t>(3 * (6 * y + x) + c)]);
      }
    }
  }
}

}  // namespace
}  // namespace jige::images

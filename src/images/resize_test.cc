#include "images/resize.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "images/resize_weights.h"
#include "images/test_support.h"

namespace jige::images {
namespace {

const std::map<std::string, ResizeFilter> kFilters = {{"nearest", ResizeFilter::kNearest},
                                                      {"bilinear", ResizeFilter::kBilinear},
                                                      {"bicubic", ResizeFilter::kBicubic},
                                                      {"lanczos", ResizeFilter::kLanczos}};

TEST(Resize, GivesTheBytesOfPillow) {
  std::map<std::string, int> counts;
  uint32_t seed = 0;
  for (const auto& recording : recorded("resized.json")) {
    const auto& from = recording.at("from");
    const auto& to = recording.at("to");
    const std::string filter = recording.at("filter");
    SCOPED_TRACE(recording.at("from").dump() + " to " + to.dump() + " " + filter);
    const Image image = drawn_image(from[0], from[1], seed++);
    const Image resized = image_of(resize_image(image, to[0], to[1], kFilters.at(filter)));
    EXPECT_EQ(resized.width, to[0]);
    EXPECT_EQ(resized.height, to[1]);
    EXPECT_TRUE(text_of(resized) == recorded_bytes(recording.at("rgb")));
    ++counts[filter];
  }
  EXPECT_EQ(counts.size(), kFilters.size());
  for (const auto& [filter, count] : counts) EXPECT_GT(count, 15) << filter;
}

TEST(Resize, OfTheSameSizeChangesNothing) {
  const Image image = drawn_image(19, 7, 1);
  for (const auto& [name, filter] : kFilters) {
    EXPECT_EQ(image_of(resize_image(image, 19, 7, filter)).rgb, image.rgb) << name;
  }
}

// The ends of what is allowed: the widest, and one pixel of it.
TEST(Resize, GoesToTheLargestSides) {
  const Image line = drawn_image(65'535, 1, 1);
  const Image one = drawn_image(1, 1, 1);
  for (const auto& [name, filter] : kFilters) {
    SCOPED_TRACE(name);
    EXPECT_EQ(image_of(resize_image(line, 1, 1, filter)).rgb.size(), 3u);
    EXPECT_EQ(image_of(resize_image(line, 1, 65'535, filter)).rgb.size(), line.rgb.size());
    const Image wide = image_of(resize_image(one, 65'535, 1, filter));
    for (size_t i = 0; i < wide.rgb.size(); ++i) ASSERT_EQ(wide.rgb[i], one.rgb[i % 3]);
  }
}

// What resize.h says of sums: of no weights can they leave 31 bits, whatever the pixels are.
TEST(Resize, SumsOfWeightsStayInRange) {
  for (const auto filter :
       {ResizeFilter::kBilinear, ResizeFilter::kBicubic, ResizeFilter::kLanczos}) {
    for (int32_t src = 1; src <= 40; ++src) {
      for (int32_t dst = 1; dst <= 120; ++dst) {
        const ResizeWeights weights = resize_weights(src, dst, filter);
        ASSERT_EQ(weights.taps % 2, 0);
        for (int32_t x = 0; x < dst; ++x) {
          int64_t size = 0;
          int64_t sum = 0;
          for (int32_t i = 0; i < weights.taps; ++i) {
            const int32_t weight = weights.values[static_cast<size_t>(x * weights.taps + i)];
            ASSERT_TRUE(weight == 0 || i < weights.counts[static_cast<size_t>(x)]);
            size += std::abs(weight);
            sum += weight;
          }
          ASSERT_LT(255 * size + (1 << 21), int64_t{1} << 31) << src << " to " << dst;
          ASSERT_NEAR(static_cast<double>(sum), 1 << kWeightBits, weights.taps);
        }
      }
    }
  }
}

}  // namespace
}  // namespace jige::images

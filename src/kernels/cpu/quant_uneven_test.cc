// Uneven levels: that blocks of them come back, that the nearest one is taken, and what they leave
// of the squares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "kernels/cpu/gemm_test_support.h"
#include "kernels/cpu/quant_test_support.h"

namespace jige::cpu {
namespace {

using quant_test::checked_block;
using quant_test::weight_of;

// GGUF's table of IQ4_NL.
constexpr int kLevels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                           1,    13,   25,  38,  53,  69,  89,  113};

double squares_left(QuantFormat format, const std::vector<float>& values) {
  const PlainWeightBlock block = checked_block(format, values);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += std::pow(values[i] - weight_of(block, i), 2);
  return sum;
}

TEST(QuantUneven, BlocksOfGgufComeBack) {
  Rng rng(41);
  for (int trial = 0; trial < 500; ++trial) {
    // Of either sign, also where few bits of f16 are left.
    const auto scale = static_cast<uint16_t>((0x40 + rng.below(0x5800)) | rng.below(2) << 15);
    const float d = to_float(Float16{scale});
    std::vector<int> levels(32);
    for (int& level : levels) level = kLevels[rng.below(16)];
    levels[rng.below(32)] = rng.below(2) == 0 ? -127 : 113;  // as whoever quantises makes sure
    std::vector<float> values, rounded;
    for (const int level : levels) {
      values.push_back(d * static_cast<float>(level));
      rounded.push_back(to_float(to_bfloat16(values.back())));
    }
    const PlainWeightBlock block = checked_block(QuantFormat::kUneven4, values);
    EXPECT_EQ(block.scale, scale);
    const PlainWeightBlock of_rounded = checked_block(QuantFormat::kUneven4, rounded);
    EXPECT_NEAR(to_float(Float16{of_rounded.scale}), d, std::fabs(d) * 0x1p-8f + 0x1p-24f);
    for (size_t i = 0; i < levels.size(); ++i) {
      EXPECT_EQ(block.values[i], levels[i]) << trial << ", " << i;
      EXPECT_EQ(of_rounded.values[i], levels[i]) << trial << ", " << i;
    }
  }
}

// Every whole number between the extreme ones of a block whose scale is one.
TEST(QuantUneven, TheNearestLevelIsTaken) {
  for (int whole = -127; whole <= 113; ++whole) {
    std::vector<float> values(32, -127.0f);
    for (size_t i = 16; i < 31; ++i) values[i] = 113;
    values[31] = static_cast<float>(whole);
    const PlainWeightBlock block = checked_block(QuantFormat::kUneven4, values);
    int nearest = kLevels[0];
    for (const int level : kLevels) {
      if (std::abs(level - whole) < std::abs(nearest - whole)) nearest = level;
    }
    EXPECT_EQ(std::abs(block.values[31] - whole), std::abs(nearest - whole)) << whole;
    EXPECT_NEAR(to_float(Float16{block.scale}), 1.0f, 0.01f);
  }
}

// What the best of many scales leaves of the squares.
double least_squares_left(const std::vector<float>& values) {
  const double most = quant_test::largest_of(values);
  double least = -1;
  for (int place = 80; place <= 160; ++place) {
    for (const double scale : {most / place, -most / place}) {
      double sum = 0;
      for (const float x : values) {
        double nearest = kLevels[0];
        for (const double level : kLevels) {
          if (std::fabs(x - scale * level) < std::fabs(x - scale * nearest)) nearest = level;
        }
        sum += std::pow(x - scale * nearest, 2);
      }
      if (least < 0 || sum < least) least = sum;
    }
  }
  return least;
}

TEST(QuantUneven, FewPlacesLeaveLittleMoreThanManyScales) {
  Rng rng(42);
  double left = 0, least = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> values(32);
    for (float& x : values) x = static_cast<float>(rng.normal());
    left += squares_left(QuantFormat::kUneven4, values);
    least += least_squares_left(values);
  }
  EXPECT_LT(left, 1.02 * least);
}

TEST(QuantUneven, LeavesLessThanEvenLevelsDo) {
  Rng rng(43);
  double even = 0, uneven = 0, total = 0, even_tails = 0, uneven_tails = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> values(32);
    for (float& x : values) x = static_cast<float>(rng.normal());
    even += squares_left(QuantFormat::kQ4, values);
    uneven += squares_left(QuantFormat::kUneven4, values);
    for (const float x : values) total += std::pow(x, 2);
    for (float& x : values) {  // Laplace's distribution
      x = static_cast<float>(std::log(1 - rng.uniform()) * (rng.below(2) == 0 ? 1 : -1));
    }
    even_tails += squares_left(QuantFormat::kQ4, values);
    uneven_tails += squares_left(QuantFormat::kUneven4, values);
  }
  EXPECT_LT(uneven, 0.85 * even);
  EXPECT_LT(uneven_tails, 0.72 * even_tails);
  EXPECT_LT(std::sqrt(uneven / total), 0.075);
}

TEST(QuantUneven, NoBlockOfNumbersIsFarOff) {
  Rng rng(44);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<float> values(32);
    const float size = std::ldexp(1.0f, static_cast<int>(rng.below(25)) - 12);
    for (float& x : values) {
      x = size * static_cast<float>(rng.uniform() - (trial % 2 == 0 ? 0.5 : 0));
    }
    const float most = quant_test::largest_of(values);
    const PlainWeightBlock block = checked_block(QuantFormat::kUneven4, values);
    for (size_t i = 0; i < values.size(); ++i) {
      // Half of the widest gap, or what is beyond the last level.
      EXPECT_LE(std::fabs(values[i] - weight_of(block, i)), 0.2f * most + 127 * 0x1p-25f);
    }
  }
}

}  // namespace
}  // namespace jige::cpu

// The choice between even and uneven levels.
#include "kernels/cpu/quant_levels.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cpu/gemm_test_support.h"
#include "kernels/cpu/quant_plain.h"

namespace jige::cpu {
namespace {

QuantFormat levels_of(const std::vector<float>& row, const std::vector<uint16_t>& scales = {}) {
  const auto depth = static_cast<int64_t>(row.size());
  return quant_levels({row.data(), ElementType::kF32, depth}, depth,
                      {scales.empty() ? nullptr : scales.data(), 0});
}

std::vector<float> normal_row(Rng& rng, int64_t depth) {
  std::vector<float> row;
  for (int64_t i = 0; i < depth; ++i) row.push_back(static_cast<float>(rng.normal()));
  return row;
}

// What blocks of a format stand for, rounded to bf16.
std::vector<float> row_of_blocks(QuantFormat format, const std::vector<float>& row) {
  const auto blocks = plain_weight_blocks(format, row.data(), static_cast<int64_t>(row.size()));
  std::vector<float> numbers;
  for (size_t i = 0; i < row.size(); ++i) {
    const PlainWeightBlock& block = blocks[i / kQuantBlock];
    const float value = to_float(Float16{block.scale}) * block.values[i % kQuantBlock];
    numbers.push_back(to_float(to_bfloat16(value)));
  }
  return numbers;
}

TEST(QuantLevels, AreUnevenButForNumbersOfEvenOnes) {
  Rng rng(51);
  for (const int64_t depth : {40, 576, 2048, 5000}) {
    const std::vector<float> row = normal_row(rng, depth);
    EXPECT_EQ(levels_of(row), QuantFormat::kUneven4) << depth;
    EXPECT_EQ(levels_of(row_of_blocks(QuantFormat::kUneven4, row)), QuantFormat::kUneven4) << depth;
    EXPECT_EQ(levels_of(row_of_blocks(QuantFormat::kQ4, row)), QuantFormat::kQ4) << depth;
  }
  EXPECT_EQ(levels_of(std::vector<float>(100)), QuantFormat::kUneven4);
}

// Multiples of a scale that cannot be found again, as few of a block's numbers are large.
TEST(QuantLevels, AreEvenWhereGivenScalesKeepTheNumbers) {
  Rng rng(52);
  std::vector<float> row;
  for (int64_t i = 0; i < 96; ++i) row.push_back(0.5f * (static_cast<float>(rng.below(7)) - 3));
  const std::vector<uint16_t> scales(3, to_float16(0.5f).bits);
  EXPECT_EQ(levels_of(row), QuantFormat::kUneven4);
  EXPECT_EQ(levels_of(row, scales), QuantFormat::kQ4);
}

// Blocks that are spread over a long row decide, also where the first ones are of another kind.
TEST(QuantLevels, AreThoseOfMostOfARow) {
  Rng rng(53);
  std::vector<float> row = normal_row(rng, 6400);
  const std::vector<float> even = row_of_blocks(QuantFormat::kQ4, row);
  std::copy(even.begin(), even.begin() + 640, row.begin());
  EXPECT_EQ(levels_of(row), QuantFormat::kUneven4);
  std::vector<float> other = even;
  const std::vector<float> small = normal_row(rng, 640);
  for (size_t i = 0; i < small.size(); ++i) other[i] = 0.01f * small[i];
  EXPECT_EQ(levels_of(other), QuantFormat::kQ4);
}

TEST(QuantLevels, OfBlocksThatAreNoNumbersDoNotCount) {
  Rng rng(54);
  std::vector<float> row = row_of_blocks(QuantFormat::kQ4, normal_row(rng, 320));
  row[5] = std::numeric_limits<float>::infinity();
  row[300] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(levels_of(row), QuantFormat::kQ4);
}

TEST(QuantLevels, AreTheSameForEveryTypeOfTheSameNumbers) {
  Rng rng(55);
  for (const QuantFormat format : {QuantFormat::kQ4, QuantFormat::kUneven4}) {
    const std::vector<float> row = row_of_blocks(format, normal_row(rng, 320));
    std::vector<BFloat16> in_bf16;
    std::vector<Float16> in_f16;
    for (const float x : row) {
      in_bf16.push_back(to_bfloat16(x));
      in_f16.push_back(to_float16(x));
    }
    EXPECT_EQ(quant_levels({in_bf16.data(), ElementType::kBf16, 320}, 320, {}), format);
    EXPECT_EQ(quant_levels({in_f16.data(), ElementType::kF16, 320}, 320, {}), format);
  }
}

}  // namespace
}  // namespace jige::cpu

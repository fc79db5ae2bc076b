#include "ops/dropout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;
constexpr DType kDropoutTypes[] = {DType::kF32, DType::kBF16};
constexpr int64_t kDropoutWidths[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 65, 129};
constexpr uint64_t kKey = 0x1234567890abcdef;

// As the header of the kernel defines it, an element at a time.
bool stays(const Dropout& dropout, uint64_t site, int64_t row, int64_t column, int64_t columns) {
  const auto token = static_cast<uint64_t>(dropout.token_begin + row);
  const auto groups = static_cast<uint64_t>((columns + 31) / 32);
  const auto c = static_cast<uint64_t>(column);
  const uint64_t counter = token * 8 * groups + c / 32 * 8 + c % 8;
  const auto words = philox(dropout.key, site, counter);
  return static_cast<double>(words[c % 32 / 8]) >= std::round(dropout.rate * 0x1p32);
}

// 1 where an element stays.
std::vector<int> mask_of(const Dropout& dropout, uint64_t site, int64_t rows, int64_t columns) {
  test::TestStream stream;
  Matrix ones(DType::kF32, rows, columns, 0);
  ones.fill(1);
  ops::dropout(*stream, ones.view(), ones.view(), dropout, site);
  std::vector<int> mask;
  for (const double value : ones.values()) mask.push_back(value != 0);
  return mask;
}

// The number of elements that two masks agree on.
double agreement(const std::vector<int>& a, const std::vector<int>& b) {
  double same = 0;
  for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return same;
}

// Whether a count of successes is one of `draws` with this probability, within five deviations.
void expect_binomial(double count, double draws, double probability, const std::string& what) {
  const double deviation = std::sqrt(draws * probability * (1 - probability));
  EXPECT_LT(std::fabs(count - draws * probability), 5 * deviation)
      << what << ": " << count << " of " << draws;
}

TEST(Dropout, AgreesWithItsDefinition) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const DType src_type : kDropoutTypes) {
      for (const DType dst_type : kDropoutTypes) {
        for (const int64_t width : kDropoutWidths) {
          // The largest counters that runs reach, too.
          for (const int64_t begin : {int64_t{0}, int64_t{5}, int64_t{1} << 36}) {
            const Dropout dropout{.rate = 0.3, .key = kKey, .token_begin = begin};
            Rng rng(1);
            Matrix src(src_type, 5, width);
            src.fill_normal(rng);
            Matrix dst(dst_type, 5, width, 2);
            ops::dropout(*stream, dst.view(), src.view(), dropout, 77);
            Values expected;
            for (int64_t r = 0; r < 5; ++r) {
              for (int64_t c = 0; c < width; ++c) {
                expected.push_back(stays(dropout, 77, r, c, width) ? src.get(r, c) / 0.7 : 0);
              }
            }
            test::expect_near(dst, expected, 2e-7, 0, fmt::format("width {}", width));
          }
        }
      }
    }
  });
}

TEST(Dropout, HasTheSameBitsEverywhereAndInPlace) {
  test::expect_same_bits_everywhere([](Stream& stream) {
    Rng rng(2);
    Matrix data(DType::kF32, 900, 67);
    data.fill_normal(rng);
    dropout(stream, data.view(), data.view(), {.rate = 0.1, .key = kKey, .token_begin = 3}, 4);
    return data;
  });
}

TEST(Dropout, DoesNotDependOnTheCutIntoBatches) {
  test::TestStream stream;
  Rng rng(3);
  Matrix whole(DType::kF32, 40, 50, 0);
  whole.fill_normal(rng);
  Matrix parts = whole;
  const Dropout step{.rate = 0.4, .key = kKey};
  dropout(*stream, whole.view(), whole.view(), step, 1);
  for (int64_t begin = 0, end = 0; begin < 40; begin = end) {
    end = std::min<int64_t>(begin + 1 + static_cast<int64_t>(rng.below(9)), 40);
    Dropout part = step;
    part.token_begin = begin;
    dropout(*stream, parts.view().row_range(begin, end), parts.view().row_range(begin, end), part,
            1);
  }
  EXPECT_TRUE(parts == whole);
}

TEST(Dropout, IsItsOwnGradient) {
  test::TestStream stream;
  test::for_each_isa([&] {
    const Dropout dropout{.rate = 0.25, .key = kKey, .token_begin = 9};
    Rng rng(4);
    Matrix src(DType::kF32, 3, 37), grad(DType::kF32, 3, 37), grad_src(DType::kF32, 3, 37);
    src.fill_normal(rng);
    grad.fill_normal(rng);
    ops::dropout(*stream, grad_src.view(), grad.view(), dropout, 5);
    const Values dy = grad.values();
    // Σ dy · dropout(x), in double, the mask held fixed.
    const auto loss = [&](const Values& at) {
      double sum = 0;
      for (size_t i = 0; i < at.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / 37;
        const auto column = static_cast<int64_t>(i) % 37;
        if (stays(dropout, 5, row, column, 37)) sum += dy[i] * at[i] / 0.75;
      }
      return sum;
    };
    test::expect_near(grad_src, test::finite_difference(loss, src.values()), 1e-6, 1e-6, "grad");
  });
}

TEST(Dropout, KeepsAsManyAsItShould) {
  constexpr int64_t kRows = 2000, kColumns = 200;
  const double draws = static_cast<double>(kRows * kColumns);
  for (const double rate : {0.001, 0.1, 0.5, 0.9, 0.999}) {
    const auto mask = mask_of({.rate = rate, .key = kKey}, 0, kRows, kColumns);
    double kept = 0;
    std::vector<double> by_column(kColumns), by_row(kRows);
    for (size_t i = 0; i < mask.size(); ++i) {
      kept += mask[i];
      by_column[i % kColumns] += mask[i];
      by_row[i / kColumns] += mask[i];
    }
    expect_binomial(kept, draws, 1 - rate, fmt::format("rate {}", rate));
    if (rate < 0.05 || rate > 0.95) continue;
    for (const double count : by_column) expect_binomial(count, kRows, 1 - rate, "a column");
    for (const double count : by_row) expect_binomial(count, kColumns, 1 - rate, "a row");
  }
}

TEST(Dropout, MasksOfOtherKeysSitesTokensAndColumnsAreIndependent) {
  constexpr int64_t kRows = 1000, kColumns = 96;
  const Dropout step{.rate = 0.3, .key = kKey};
  const auto mask = mask_of(step, 6, kRows, kColumns);
  Dropout other_key = step;
  other_key.key = kKey + 1;
  Dropout other_tokens = step;
  other_tokens.token_begin = 1;
  const double alike = 0.7 * 0.7 + 0.3 * 0.3;
  const auto draws = static_cast<double>(mask.size());
  for (const auto& other :
       {mask_of(other_key, 6, kRows, kColumns), mask_of(other_tokens, 6, kRows, kColumns),
        mask_of(step, 7, kRows, kColumns),
        mask_of(step, 6 + (uint64_t{1} << 32), kRows, kColumns)}) {
    expect_binomial(agreement(mask, other), draws, alike, "agreement");
  }
  for (const size_t distance : {1, 8, 32, 96}) {
    const std::vector<int> shifted(mask.begin() + static_cast<std::ptrdiff_t>(distance),
                                   mask.end());
    expect_binomial(agreement(shifted, mask), static_cast<double>(shifted.size()), alike,
                    fmt::format("distance {}", distance));
  }
  EXPECT_EQ(mask, mask_of(step, 6, kRows, kColumns));
}

TEST(Dropout, OneMaskIsThatOfTheFirstRowInAllOfThem) {
  test::TestStream stream;
  test::for_each_isa([&] {
    const Dropout first{.rate = 0.4, .key = kKey, .token_begin = 6};
    Dropout one_mask = first;
    one_mask.one_mask = true;
    Matrix all(DType::kF32, 7, 41);
    all.fill(1);
    dropout(*stream, all.view(), all.view(), one_mask, 2);
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t c = 0; c < 41; ++c) {
        EXPECT_EQ(all.get(r, c) != 0, stays(first, 2, 0, c, 41)) << r << ", " << c;
      }
    }
  });
}

TEST(Dropout, AtRateZeroConverts) {
  test::TestStream stream;
  Rng rng(5);
  Matrix src(DType::kF32, 3, 21);
  src.fill_normal(rng);
  Matrix dst(DType::kF32, 3, 21);
  dropout(*stream, dst.view(), src.view(), {}, 3);
  EXPECT_TRUE(dst == src);
}

TEST(Dropout, WhatIsNotFiniteStaysSo) {
  test::TestStream stream;
  Matrix src(DType::kF32, 8, 64);
  src.fill(std::numeric_limits<double>::quiet_NaN());
  dropout(*stream, src.view(), src.view(), {.rate = 0.5, .key = kKey}, 0);
  for (const double value : src.values()) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace jige::ops

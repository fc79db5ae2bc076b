#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/rng.h"

namespace jige {
namespace {

double sum_of(const std::vector<float>& values) {
  ExactSum sum;
  sum.add(values);
  return sum.value();
}

TEST(ExactSum, OfNothingIsZero) { EXPECT_EQ(ExactSum().value(), 0.0); }

TEST(ExactSum, GoesThroughWordsWithAllItHolds) {
  Rng rng(17);
  ExactSum whole;
  ExactSum merged;
  for (int part = 0; part < 20; ++part) {
    ExactSum sum;
    for (int i = 0; i < 50; ++i) {
      const auto value =
          static_cast<float>(std::ldexp(rng.normal(), static_cast<int>(rng.below(80)) - 40));
      sum.add(value);
      whole.add(value);
    }
    merged.merge(ExactSum::from_words(sum.words()));
    EXPECT_EQ(merged.value(), whole.value());
  }
  merged.add(std::numeric_limits<float>::infinity());
  EXPECT_EQ(ExactSum::from_words(merged.words()).refused_count(), 1);
}

TEST(ExactSum, LosesNothingWhereDoubleWould) {
  // 2^46 + 2^-41 - 2^46: a running double would drop the middle one.
  const float big = std::ldexp(1.0f, 46);
  EXPECT_EQ(sum_of({big, std::ldexp(1.0f, -41), -big}), std::ldexp(1.0, -41));
}

TEST(ExactSum, AgreesWithLongDoubleOnLosses) {
  Rng rng(7);
  std::vector<float> values;
  long double expected = 0;
  for (int i = 0; i < 5000; ++i) {
    values.push_back(static_cast<float>(rng.uniform() * 12));
    expected += static_cast<long double>(values.back());
  }
  EXPECT_EQ(sum_of(values), static_cast<double>(expected));
}

TEST(ExactSum, HasTheSameBitsInAnyOrderAndGrouping) {
  Rng rng(11);
  std::vector<float> values;
  for (int i = 0; i < 3001; ++i) {
    const double magnitude = std::exp2(rng.uniform() * 90 - 60);
    values.push_back(static_cast<float>((rng.uniform() - 0.5) * magnitude));
  }
  const auto expected = std::bit_cast<uint64_t>(sum_of(values));
  for (int round = 0; round < 5; ++round) {
    rng.shuffle(std::span<float>(values));
    ExactSum whole;
    for (size_t begin = 0; begin < values.size();) {
      const size_t size = std::min<size_t>(1 + rng.below(97), values.size() - begin);
      ExactSum part;
      part.add(std::span(values).subspan(begin, size));
      whole.merge(part);
      begin += size;
    }
    EXPECT_EQ(std::bit_cast<uint64_t>(whole.value()), expected);
  }
}

TEST(ExactSum, CutsTinyValuesOneByOneWhateverTheirOrder) {
  EXPECT_EQ(sum_of({std::ldexp(1.0f, -65), std::ldexp(1.0f, -65)}), 0.0);
  EXPECT_EQ(sum_of({std::ldexp(1.5f, -64)}), std::ldexp(1.0, -64));
  EXPECT_EQ(sum_of({-std::ldexp(1.5f, -64)}), -std::ldexp(1.0, -64));
  EXPECT_EQ(sum_of({std::numeric_limits<float>::denorm_min(), -0.0f}), 0.0);
}

TEST(ExactSum, TurnsNaNWhenAValueIsNotFiniteOrTooLarge) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), std::ldexp(1.0f, 47)}) {
    ExactSum sum;
    sum.add(1.0f);
    sum.add(bad);
    EXPECT_TRUE(std::isnan(sum.value()));
    EXPECT_EQ(sum.refused_count(), 1);
  }
}

}  // namespace
}  // namespace jige

#include "ops/clamp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

constexpr float kClampInfinity = std::numeric_limits<float>::infinity();

// Rows of `columns` in memory of rows that are longer.
template <typename T>
void expect_held(DType dtype, T (*make)(float), float (*read)(T), float low, float high) {
  constexpr int64_t kRows = 37;
  constexpr int64_t kColumns = 13;
  constexpr int64_t kStride = 17;
  Rng rng(derive_key(3, "numbers to hold"));
  std::vector<T> before(kRows * kStride);
  for (T& value : before) value = make(static_cast<float>(rng.below(4001)) / 1000 - 2);
  before[2] = make(std::nanf(""));
  before[3] = make(kClampInfinity);
  for (const int threads : {1, 3}) {
    CpuDevice device({.thread_count = threads});
    const auto stream = device.make_stream();
    ASSERT_TRUE(stream);
    std::vector<T> after = before;
    const TensorView whole = TensorView::of(after.data(), dtype, Shape{kRows, kStride});
    clamp(**stream, whole.column_range(0, kColumns), TensorView::of(&low, DType::kF32, Shape{1}),
          TensorView::of(&high, DType::kF32, Shape{1}));
    (*stream)->synchronize();
    for (size_t i = 0; i < after.size(); ++i) {
      const float was = read(before[i]);
      const float is = read(after[i]);
      if (std::isnan(was)) {
        EXPECT_TRUE(std::isnan(is));
        continue;
      }
      const bool beside = static_cast<int64_t>(i) % kStride >= kColumns;
      const float held = std::fmin(std::fmax(was, read(make(low))), read(make(high)));
      EXPECT_EQ(is, beside ? was : held) << i;
    }
  }
}

TEST(Clamp, HoldsNumbersWithinBounds) {
  for (const auto& [low, high] : {std::pair(-0.71f, 1.13f),
                                  {0.0f, 0.0f},
                                  {-kClampInfinity, 0.3f},
                                  {-kClampInfinity, kClampInfinity}}) {
    expect_held<float>(
        DType::kF32, [](float value) { return value; }, [](float value) { return value; }, low,
        high);
    expect_held<BFloat16>(DType::kBF16, to_bfloat16, to_float, low, high);
  }
}

}  // namespace
}  // namespace jige::ops

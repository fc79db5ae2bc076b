#include "ops/add_blended_rows.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

TEST(AddBlendedRows, AddsWeightedSumsOfATablesRows) {
  Rng rng(derive_key(7, "blended rows"));
  const auto number = [&] { return static_cast<float>(rng.below(2000)) / 1000 - 1; };
  for (const int64_t columns : {1, 7, 33}) {
    for (const int64_t count : {1, 5, 100}) {
      std::vector<float> table(static_cast<size_t>(9 * columns));
      std::vector<float> before(static_cast<size_t>(count * columns));
      for (float& value : table) value = number();
      for (float& value : before) value = number();
      std::vector<Blend> blends(static_cast<size_t>(count));
      for (Blend& blend : blends) {
        for (size_t i = 0; i < 4; ++i) {
          blend.rows[i] = static_cast<int32_t>(rng.below(9));
          blend.weights[i] = number();
        }
      }
      std::vector<float> alone;
      for (const int threads : {1, 3}) {
        CpuDevice device({.thread_count = threads});
        const auto stream = device.make_stream();
        ASSERT_TRUE(stream);
        std::vector<float> after = before;
        add_blended_rows(**stream, TensorView::of(after.data(), DType::kF32, Shape{count, columns}),
                         TensorView::of(table.data(), DType::kF32, Shape{9, columns}), blends);
        (*stream)->synchronize();
        for (int64_t t = 0; t < count; ++t) {
          const Blend& blend = blends[static_cast<size_t>(t)];
          for (int64_t j = 0; j < columns; ++j) {
            const auto at = static_cast<size_t>(t * columns + j);
            double expected = before[at];
            for (size_t i = 0; i < 4; ++i) {
              const auto row = static_cast<int64_t>(blend.rows[i]);
              expected += double{blend.weights[i]} * table[static_cast<size_t>(row * columns + j)];
            }
            EXPECT_NEAR(after[at], expected, 1e-6);
          }
        }
        if (alone.empty()) alone = after;
        EXPECT_EQ(after, alone) << "the same bits on any threads";
      }
    }
  }
}

}  // namespace
}  // namespace jige::ops

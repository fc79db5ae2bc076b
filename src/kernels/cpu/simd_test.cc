// The rules of simd.h, seen through kernels that rest on them.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/rough_normal.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/norm.h"
#include "tensor/dtype.h"

namespace jige::cpu {
namespace {

// Σ x² by the rule of row reductions, a lane at a time.
float sum_of_squares_by_rule(const std::vector<float>& x) {
  float lanes[16] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  for (int half = 8; half >= 1; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

TEST(Simd, RowSumsFollowTheSixteenLaneRule) {
  Rng rng(1);
  for (const Isa isa : supported_isas()) {
    for (int64_t width = 1; width <= 100; ++width) {
      std::vector<float> x(static_cast<size_t>(width));
      for (float& value : x) value = rough_normal(rng);
      std::vector<float> weight(x.size(), 1.0f);
      std::vector<float> dst(x.size());
      float rstd = 0;
      NormForwardArgs args = {};
      args.dst = {dst.data(), ElementType::kF32, width};
      args.src = {x.data(), ElementType::kF32, width};
      args.weight = weight.data();
      args.rstd = {&rstd, 1};
      args.group_count = 1;
      args.width = width;
      norm_kernels(isa).rms_forward(args, 0, 1);
      const float expected =
          1.0f / std::sqrt(sum_of_squares_by_rule(x) / static_cast<float>(width) + 0.0f);
      ASSERT_EQ(std::bit_cast<uint32_t>(rstd), std::bit_cast<uint32_t>(expected))
          << isa_name(isa) << ", width " << width;
    }
  }
}

TEST(Simd, RoundsToBf16AsTheScalarConversionDoes) {
  // Every upper half, with the lower halves around which rounding turns.
  constexpr uint32_t kLower[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (const Isa isa : supported_isas()) {
    for (const uint32_t lower : kLower) {
      std::vector<float> src(65536);
      for (uint32_t upper = 0; upper < 65536; ++upper) {
        src[upper] = std::bit_cast<float>(upper << 16 | lower);
      }
      std::vector<uint16_t> dst(65536);
      elementwise_kernels(isa).scale({dst.data(), ElementType::kBf16},
                                     {src.data(), ElementType::kF32}, 1.0f, 65536);
      for (size_t i = 0; i < 65536; ++i) {
        const float product = src[i] * 1.0f;  // quiets a signalling NaN, as the kernel does
        ASSERT_EQ(dst[i], to_bfloat16(product).bits) << std::hex << i << " " << lower;
      }
    }
  }
}

TEST(Simd, WidensEverySixteenBitFloatExactly) {
  std::vector<uint16_t> src(65536);
  for (uint32_t i = 0; i < 65536; ++i) src[i] = static_cast<uint16_t>(i);
  for (const Isa isa : supported_isas()) {
    for (const ElementType type : {ElementType::kBf16, ElementType::kF16}) {
      std::vector<float> dst(65536);
      const int32_t token = 0;
      embedding_kernels(isa).forward({dst.data(), 65536, {src.data(), type, 65536}, &token, 65536},
                                     0, 1);
      for (size_t i = 0; i < 65536; ++i) {
        const float expected =
            type == ElementType::kBf16 ? to_float(BFloat16{src[i]}) : to_float(Float16{src[i]});
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(dst[i]));
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(dst[i]), std::bit_cast<uint32_t>(expected));
        }
      }
    }
  }
}

TEST(Simd, TouchesNothingBeyondAShortRow) {
  for (const Isa isa : supported_isas()) {
    for (const ElementType dst_type : {ElementType::kF32, ElementType::kBf16}) {
      for (const ElementType src_type : {ElementType::kF32, ElementType::kBf16}) {
        const size_t dst_bytes = dst_type == ElementType::kF32 ? 4 : 2;
        const size_t src_bytes = src_type == ElementType::kF32 ? 4 : 2;
        for (size_t count = 0; count < 40; ++count) {
          // The source ends where the allocation does, so that an address sanitizer sees a read
          // beyond it; writes beyond the target show in its guard.
          std::vector<unsigned char> src(count * src_bytes, 0);
          std::vector<unsigned char> dst(count * dst_bytes + 64, 0xab);
          elementwise_kernels(isa).scale({dst.data(), dst_type}, {src.data(), src_type}, 2.0f,
                                         static_cast<int64_t>(count));
          for (size_t i = 0; i < dst.size(); ++i) {
            ASSERT_EQ(dst[i], i < count * dst_bytes ? 0 : 0xab);
          }
        }
      }
    }
  }
}

TEST(Simd, FindsTheMaximumAndItsFirstIndexAtEveryPlace) {
  for (const Isa isa : supported_isas()) {
    for (int64_t count = 1; count < 70; ++count) {
      for (int64_t place = 0; place < count; ++place) {
        std::vector<float> x(static_cast<size_t>(count), -2.0f);
        x[static_cast<size_t>(place)] = -1.0f;
        x.back() = place % 2 ? x.back() : -1.0f;
        ASSERT_EQ(logits_kernels(isa).max(x.data(), count), -1.0f);
        ASSERT_EQ(logits_kernels(isa).first_index(x.data(), count, -1.0f), place);
      }
    }
    EXPECT_EQ(logits_kernels(isa).max(nullptr, 0), -INFINITY);
  }
}

TEST(Simd, FindsWhatIsAboveABarOfEveryLength) {
  Rng rng(7);
  for (const Isa isa : supported_isas()) {
    for (size_t count = 0; count < 200; ++count) {
      // As often few as many are above, zero is at times; the row ends where its memory does.
      const uint64_t one_of = 1 + rng.below(20);
      const float bar = rng.below(2) == 0 ? 1.0f : -1.0f;
      std::vector<float> row(count, bar);
      std::vector<int32_t> expected;
      for (size_t i = 0; i < count; ++i) {
        if (rng.below(7) == 0) row[i] = NAN;
        if (rng.below(5) == 0) row[i] = -INFINITY;
        if (rng.below(one_of) != 0) continue;
        row[i] = rng.below(2) == 0 ? std::nextafter(bar, 2.0f) : INFINITY;
        expected.push_back(static_cast<int32_t>(i));
      }
      std::vector<int32_t> found(count);
      found.resize(static_cast<size_t>(
          logits_kernels(isa).above(found.data(), row.data(), static_cast<int64_t>(count), bar)));
      ASSERT_EQ(found, expected) << count << " numbers";
    }
  }
}

}  // namespace
}  // namespace jige::cpu

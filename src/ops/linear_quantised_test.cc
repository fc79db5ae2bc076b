// Linear layers with quantised weights through the interface of linear.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/cpu.h"
#include "ops/linear_test_support.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

using test::Numbers;

constexpr WeightFormat kQuantised[] = {WeightFormat::kQ8, WeightFormat::kQ4};

class QuantisedLinear : public ::testing::Test, protected test::LinearDevice {
 protected:
  ~QuantisedLinear() override { set_active_isa(supported_isas().back()); }

  PackedWeight pack(const TensorView& weight, WeightFormat format, int64_t parts = 1) {
    const PackedWeight packed = {.n = weight.rows(), .k = weight.columns(), .format = format};
    return packed_in_parts(packed, weight, parts);
  }
};

// The largest magnitude of the block that an element is in.
double block_extreme(const Numbers& numbers, int64_t row, int64_t k, int64_t depth) {
  double most = 0;
  for (int64_t i = k / 32 * 32; i < std::min(k / 32 * 32 + 32, depth); ++i) {
    most = std::max(most, std::fabs(numbers.at(row, i)));
  }
  return most;
}

TEST_F(QuantisedLinear, IsWithinTheErrorOfQuantisingOfTheDoubleProduct) {
  Rng rng(21);
  const int64_t tokens = 5, n = 50, k = 200;
  for (const WeightFormat format : kQuantised) {
    for (const DType type : {DType::kF32, DType::kBF16}) {
      const Numbers src(type, tokens, k, rng), weight(type, n, k, rng);
      const Numbers bias(DType::kF32, 1, n, rng);
      Numbers dst(type, tokens, n, rng);
      linear_forward(*stream_,
                     {dst.view(), src.view(), pack(weight.view(), format, 3), bias.vector()});
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = bias.at(0, j), bound = 0;
          for (int64_t i = 0; i < k; ++i) {
            const double x = src.at(t, i), w = weight.at(j, i);
            const double step = format == WeightFormat::kQ8 ? 1.0 / 127 * 0.501 : 1.76 / 8.75;
            const double x_error = block_extreme(src, t, i, k) / 127 * 0.501;
            const double w_error = block_extreme(weight, j, i, k) * step;
            sum += x * w;
            bound += std::fabs(x) * w_error + x_error * (std::fabs(w) + w_error);
          }
          bound += (type == DType::kBF16 ? 0x1p-8 : 0x1p-20) * (1 + std::fabs(sum) + bound);
          EXPECT_NEAR(dst.at(t, j), sum, bound) << t << ", " << j;
          if (format == WeightFormat::kQ8) {  // errors of both signs: far less than the bound
            EXPECT_NEAR(dst.at(t, j), sum, 0.5 + 0x1p-8 * std::fabs(sum));
          }
        }
      }
    }
  }
}

TEST_F(QuantisedLinear, ARowOfABatchIsTheRowAlone) {
  Rng rng(22);
  for (const WeightFormat format : kQuantised) {
    const Numbers src(DType::kBF16, 45, 100, rng), weight(DType::kBF16, 90, 100, rng);
    const PackedWeight packed = pack(weight.view(), format);
    Numbers batch(DType::kF32, 45, 90, rng);
    linear_forward(*stream_, {batch.view(), src.view(), packed, {}});
    for (const int64_t step : {1, 3, 5, 9, 15}) {
      Numbers parts(DType::kF32, 45, 90, rng);
      for (int64_t t = 0; t < 45; t += step) {
        linear_forward(
            *stream_,
            {parts.view().row_range(t, t + step), src.view().row_range(t, t + step), packed, {}});
      }
      EXPECT_TRUE(parts.bytes() == batch.bytes()) << step;
    }
  }
}

TEST_F(QuantisedLinear, GivesTheSameBitsOnEveryInstructionSetAndForAnyThreads) {
  Rng rng(23);
  for (const WeightFormat format : kQuantised) {
    const Numbers src(DType::kF32, 40, 777, rng), weight(DType::kF32, 190, 777, rng);
    std::vector<std::byte> bits;
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      for (const int threads : {1, 3}) {
        use_threads(threads, threads == 3);
        const PackedWeight packed = pack(weight.view(), format, threads);
        set_active_isa(threads == 1 ? isa : Isa::kAvx2);  // packed for any
        Numbers dst(DType::kBF16, 40, 190, rng);
        linear_forward(*stream_, {dst.view(), src.view(), packed, {}});
        stream_->synchronize();
        if (bits.empty()) bits = dst.bytes();
        EXPECT_TRUE(dst.bytes() == bits) << isa_name(isa) << ", " << threads << " threads";
      }
    }
  }
}

Numbers copy_of(const Numbers& from) {
  Rng rng(1);
  Numbers copy(DType::kF32, from.view().rows(), from.view().columns(), rng);
  std::memcpy(copy.view().data, from.view().data, from.bytes().size());
  return copy;
}

// The numbers that a packed weight stands for: its product with the unit matrix.
std::vector<float> numbers_of(Stream& stream, const PackedWeight& packed) {
  const int64_t n = packed.n, k = packed.k;
  std::vector<std::byte> strip(static_cast<size_t>(linear_strip_bytes(DType::kF32, n, k)));
  std::vector<float> unit(static_cast<size_t>(k * k)), columns(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < k; ++i) unit[static_cast<size_t>(i * k + i)] = 1;
  linear_forward(stream, {.dst = TensorView::of(columns.data(), DType::kF32, Shape{k, n}),
                          .src = TensorView::of(unit.data(), DType::kF32, Shape{k, k}),
                          .weight = packed,
                          .strip = TensorView::of(strip.data(), DType::kU8,
                                                  Shape{static_cast<int64_t>(strip.size())})});
  stream.synchronize();
  std::vector<float> numbers(columns.size());
  for (int64_t i = 0; i < n * k; ++i) {
    numbers[static_cast<size_t>(i)] = columns[static_cast<size_t>(i % k * n + i / k)];
  }
  return numbers;
}

TEST_F(QuantisedLinear, KeepsMultiplesOfKnownScalesOnEveryInstructionSetAndForAnyThreads) {
  const int64_t n = 75, k = 100, blocks = 4;
  Rng rng(26);
  std::vector<Float16> scales;
  std::vector<float> exact;
  for (int64_t i = 0; i < n * k; ++i) {
    if (i % k % kWeightBlock == 0) {
      scales.push_back(to_float16(0.01f + 0.001f * static_cast<float>(rng.below(50))));
    }
    exact.push_back(to_float(scales.back()) * (static_cast<float>(rng.below(16)) - 8));
  }
  Numbers rounded(DType::kBF16, n, k, rng);
  for (int64_t i = 0; i < n * k; ++i) {
    rounded.view().as<BFloat16>()[i] = to_bfloat16(exact[static_cast<size_t>(i)]);
  }
  const TensorView known = TensorView::of(scales.data(), DType::kF16, Shape{n, blocks});
  for (const WeightFormat format : kQuantised) {
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      for (const int threads : {1, 3}) {
        use_threads(threads, threads == 3);
        const PackedWeight packed = pack(rounded.view(), format);
        EXPECT_NE(numbers_of(*stream_, packed), exact);
        for (const auto& [begin, end] : {std::pair{0, 21}, {21, 75}}) {
          pack_weight(*stream_, packed, rounded.view().row_range(begin, end), begin,
                      known.row_range(begin, end));
        }
        EXPECT_EQ(numbers_of(*stream_, packed), exact) << isa_name(isa) << ", " << threads;
      }
    }
  }
}

// Of q4 the first row says whether levels are even, whatever comes with it and after it.
TEST_F(QuantisedLinear, ChoosesTheLevelsByTheFirstRowHoweverManyComeAtOnce) {
  const int64_t n = 70, k = 96;
  Rng rng(27);
  const Numbers normal(DType::kF32, n, k, rng);
  Numbers mixed = copy_of(normal);  // the first row of even levels, which are kept
  for (int64_t i = 0; i < k; ++i) {
    mixed.view().as<float>()[i] = i % 32 == 5 ? -8.0f : static_cast<float>(rng.below(16)) - 8;
  }
  std::vector<std::vector<float>> found;
  for (const Numbers* weight : {&normal, static_cast<const Numbers*>(&mixed)}) {
    const std::vector<float> whole = numbers_of(*stream_, pack(weight->view(), WeightFormat::kQ4));
    for (const int64_t parts : {2, 7, 70}) {
      const PackedWeight packed = pack(weight->view(), WeightFormat::kQ4, parts);
      EXPECT_EQ(numbers_of(*stream_, packed), whole) << parts;
      for (const auto& [begin, end] : {std::pair{30, 70}, {0, 30}}) {  // another one begins
        pack_weight(*stream_, packed, weight->view().row_range(begin, end), begin);
      }
      const bool same = numbers_of(*stream_, packed) == whole;
      EXPECT_EQ(same, weight == &normal);
    }
    found.push_back(whole);
  }
  for (int64_t i = 0; i < k; ++i) EXPECT_EQ(found[1][static_cast<size_t>(i)], mixed.at(0, i));
  double squares[2] = {};
  for (int64_t i = k; i < n * k; ++i) {
    for (size_t j = 0; j < 2; ++j) {
      squares[j] += std::pow(found[j][static_cast<size_t>(i)] - normal.at(i / k, i % k), 2);
    }
  }
  EXPECT_LT(squares[0], 0.9 * squares[1]);  // uneven levels suit the other rows better
}

TEST_F(QuantisedLinear, TakesEightAndAHalfOrFourAndAHalfBitsAWeight) {
  const auto bytes = [](WeightFormat format) {
    return packed_weight_bytes(DType::kBF16, PackUse::kForward, 768, 2048, format);
  };
  EXPECT_EQ(bytes(WeightFormat::kQ8), 64 + 768 * 2048 * 17 / 16);
  EXPECT_EQ(bytes(WeightFormat::kQ4), 64 + 768 * 2048 * 9 / 16);
}

TEST_F(QuantisedLinear, TakesTheScratchThatIsStated) {
  Rng rng(24);
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    const Numbers weight(DType::kF32, 300, 4000, rng);
    for (const WeightFormat format : kQuantised) {
      for (const int64_t tokens : {1, 7, 40, 300}) {
        use_threads(1);
        const Numbers src(DType::kBF16, tokens, 4000, rng);
        Numbers dst(DType::kF32, tokens, 300, rng);
        linear_forward(*stream_, {dst.view(), src.view(), pack(weight.view(), format), {}});
        EXPECT_EQ(device_->scratch_bytes(),
                  CpuDevice::scratch_bytes_held(
                      linear_thread_scratch_bytes(DType::kBF16, tokens, 300, 4000, 1, format)))
            << tokens << " tokens";
        memory_.clear();
      }
    }
  }
}

using QuantisedLinearDeathTest = QuantisedLinear;

TEST_F(QuantisedLinearDeathTest, RefusesAWeightOfAnotherFormat) {
  Rng rng(25);
  const Numbers src(DType::kF32, 3, 20, rng), weight(DType::kF32, 50, 20, rng);
  Numbers dst(DType::kF32, 3, 50, rng);
  use_threads(1);
  PackedWeight packed = pack(weight.view(), WeightFormat::kQ8);
  packed.format = WeightFormat::kQ4;
  EXPECT_DEATH(linear_forward(*stream_, {dst.view(), src.view(), packed, {}}),
               "was not packed in this format");
}

}  // namespace
}  // namespace jige::ops

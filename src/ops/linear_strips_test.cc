// Linear layers that multiply by the numbers of a quantised weight, forward and backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "kernels/cpu/quant_levels.h"
#include "kernels/cpu/quant_plain.h"
#include "ops/kernel_rows.h"
#include "ops/linear_test_support.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

using test::Numbers;

struct StripCase {
  int64_t tokens, n, k;
};

cpu::QuantFormat levels_of(WeightFormat format, const Numbers& weight) {
  if (format == WeightFormat::kQ8) return cpu::QuantFormat::kQ8;
  return cpu::quant_levels(const_rows_of(weight.view()), weight.view().columns(), {});
}

// What the blocks of a weight stand for, by the plain model.
Numbers numbers_of_blocks(cpu::QuantFormat quant, const Numbers& weight) {
  const int64_t n = weight.view().rows(), k = weight.view().columns();
  const Numbers numbers(DType::kF32, n, k);
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j)
      row[static_cast<size_t>(j)] = static_cast<float>(weight.at(i, j));
    const auto blocks = cpu::plain_weight_blocks(quant, row.data(), k);
    for (int64_t j = 0; j < k; ++j) {
      const cpu::PlainWeightBlock& block = blocks[static_cast<size_t>(j / cpu::kQuantBlock)];
      numbers.view().as<float>()[i * k + j] =
          to_float(Float16{block.scale}) * static_cast<float>(block.values[j % cpu::kQuantBlock]);
    }
  }
  return numbers;
}

class StripLinear : public ::testing::Test, protected test::LinearDevice {
 protected:
  ~StripLinear() override { set_active_isa(supported_isas().back()); }

  PackedWeight pack(const Numbers& weight, DType compute, WeightFormat format,
                    PackUse use = PackUse::kForward) {
    return packed_in_parts({.compute = compute,
                            .use = use,
                            .n = weight.view().rows(),
                            .k = weight.view().columns(),
                            .format = format},
                           weight.view(), 2);
  }

  // Just as many bytes as are asked for, of garbage.
  TensorView strip_for(const PackedWeight& weight) {
    const int64_t bytes = linear_strip_bytes(weight.compute, weight.n, weight.k);
    memory_.emplace_back(static_cast<size_t>(bytes + 64), static_cast<std::byte>(0xff));
    const auto at = reinterpret_cast<uintptr_t>(memory_.back().data());
    return TensorView::of(memory_.back().data() + (64 - at % 64) % 64, DType::kU8, Shape{bytes});
  }

  // Both products with a quantised weight, and with an ordinary one of its numbers.
  void expect_same_bits(WeightFormat format, DType compute, DType type, const StripCase& c,
                        bool even = false) {
    Rng rng(31);
    const Numbers src(type, c.tokens, c.k, rng), grad(type, c.tokens, c.n, rng);
    const Numbers random(DType::kBF16, c.n, c.k, rng), bias(DType::kF32, 1, c.n, rng);
    const Numbers weight = even ? numbers_of_blocks(cpu::QuantFormat::kQ4, random) : random;
    const cpu::QuantFormat quant = levels_of(format, weight);
    if (even) {
      EXPECT_EQ(quant, cpu::QuantFormat::kQ4);
    }
    const Numbers numbers = numbers_of_blocks(quant, weight);
    const PackedWeight blocks = pack(weight, compute, format);
    const TensorView strip = strip_for(blocks);
    const std::string name = fmt::format("{} {} {} [{}, {}, {}] on {}", weight_format_name(format),
                                         dtype_info(compute).name, dtype_info(type).name, c.tokens,
                                         c.n, c.k, isa_name(active_isa()));
    Numbers dst(type, c.tokens, c.n, rng), dst_expected(type, c.tokens, c.n, rng);
    linear_forward(*stream_, {.dst = dst.view(),
                              .src = src.view(),
                              .weight = blocks,
                              .bias = bias.vector(),
                              .strip = strip});
    linear_forward(*stream_, {.dst = dst_expected.view(),
                              .src = src.view(),
                              .weight = pack(numbers, compute, WeightFormat::kCompute),
                              .bias = bias.vector()});
    Numbers back(type, c.tokens, c.k, rng), back_expected(type, c.tokens, c.k, rng);
    linear_backward_input(
        *stream_,
        {.grad_src = back.view(), .grad_dst = grad.view(), .weight = blocks, .strip = strip});
    linear_backward_input(*stream_, {.grad_src = back_expected.view(),
                                     .grad_dst = grad.view(),
                                     .weight = pack(numbers, compute, WeightFormat::kCompute,
                                                    PackUse::kInputGradient)});
    stream_->synchronize();
    EXPECT_TRUE(dst.bytes() == dst_expected.bytes()) << "forward, " << name;
    EXPECT_TRUE(back.bytes() == back_expected.bytes()) << "input gradient, " << name;
    memory_.clear();
  }
};

constexpr WeightFormat kBlockFormats[] = {WeightFormat::kQ8, WeightFormat::kQ4};
constexpr StripCase kStripCases[] = {{1, 1, 1},    {3, 33, 31},   {70, 50, 97},
                                     {9, 160, 33}, {37, 34, 300}, {130, 130, 64}};

TEST_F(StripLinear, GivesTheBitsOfAWeightOfTheNumbersOnEveryInstructionSet) {
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const int threads : {1, 3}) {
      use_threads(threads, threads == 3);
      for (const StripCase& c : kStripCases) {
        for (const WeightFormat format : kBlockFormats) {
          expect_same_bits(format, DType::kF32, DType::kF32, c);
          expect_same_bits(format, DType::kBF16, DType::kBF16, c);
          expect_same_bits(format, DType::kBF16, DType::kF32, c);
        }
        expect_same_bits(WeightFormat::kQ4, DType::kBF16, DType::kBF16, c, /*even=*/true);
      }
    }
  }
}

// Large enough that neither use has all its numbers in one strip.
constexpr StripCase kManyStrips = {2, 65'537, 96};

TEST_F(StripLinear, GivesTheSameBitsHoweverManyStripsThereAre) {
  const StripCase& c = kManyStrips;
  ASSERT_LT(linear_strip_bytes(DType::kF32, c.n, c.k), 3 * c.n * c.k);
  expect_same_bits(WeightFormat::kQ8, DType::kF32, DType::kF32, c);
}

// The measure is in double precision throughout: Σ grad · (bias + src Wᵀ) of the numbers W.
TEST_F(StripLinear, InputGradientIsTheDerivativeOfTheForwardProduct) {
  Rng rng(32);
  const int64_t tokens = 5, n = 45, k = 70;
  for (const WeightFormat format : kBlockFormats) {
    const Numbers src(DType::kF32, tokens, k, rng), grad(DType::kF32, tokens, n, rng);
    const Numbers weight(DType::kF32, n, k, rng), bias(DType::kF32, 1, n, rng);
    const Numbers numbers = numbers_of_blocks(levels_of(format, weight), weight);
    const PackedWeight blocks = pack(weight, DType::kF32, format);
    const TensorView strip = strip_for(blocks);
    Numbers dst(DType::kF32, tokens, n, rng), grad_src(DType::kF32, tokens, k, rng);
    linear_forward(*stream_, {.dst = dst.view(),
                              .src = src.view(),
                              .weight = blocks,
                              .bias = bias.vector(),
                              .strip = strip});
    linear_backward_input(
        *stream_,
        {.grad_src = grad_src.view(), .grad_dst = grad.view(), .weight = blocks, .strip = strip});
    stream_->synchronize();
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<double> row;
      for (int64_t i = 0; i < k; ++i) row.push_back(src.at(t, i));
      const auto forward = [&](int64_t j) {
        double sum = bias.at(0, j);
        for (int64_t i = 0; i < k; ++i) sum += row[static_cast<size_t>(i)] * numbers.at(j, i);
        return sum;
      };
      const auto total = [&] {
        double sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += grad.at(t, j) * forward(j);
        return sum;
      };
      for (int64_t j = 0; j < n; ++j) EXPECT_NEAR(dst.at(t, j), forward(j), 2e-5);
      for (int64_t i = 0; i < k; ++i) {
        double& x = row[static_cast<size_t>(i)];
        const double before = x, step = 1e-3;
        x = before + step;
        const double more = total();
        x = before - step;
        const double less = total();
        x = before;
        EXPECT_NEAR(grad_src.at(t, i), (more - less) / (2 * step), 2e-5) << t << ", " << i;
      }
    }
  }
}

TEST_F(StripLinear, ABlockThatIsNoNumberMakesItsOutputsNone) {
  Rng rng(33);
  Numbers weight(DType::kF32, 40, 70, rng);
  weight.view().as<float>()[17 * 70 + 40] = INFINITY;
  const Numbers src(DType::kF32, 2, 70, rng), grad(DType::kF32, 2, 40, rng);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const PackedWeight blocks = pack(weight, compute, WeightFormat::kQ4);
    const TensorView strip = strip_for(blocks);
    Numbers dst(DType::kF32, 2, 40, rng), back(DType::kF32, 2, 70, rng);
    linear_forward(*stream_,
                   {.dst = dst.view(), .src = src.view(), .weight = blocks, .strip = strip});
    linear_backward_input(
        *stream_,
        {.grad_src = back.view(), .grad_dst = grad.view(), .weight = blocks, .strip = strip});
    stream_->synchronize();
    for (int64_t j = 0; j < 40; ++j) EXPECT_EQ(std::isnan(dst.at(1, j)), j == 17) << j;
    for (int64_t i = 0; i < 70; ++i) {
      EXPECT_EQ(std::isnan(back.at(1, i)), i >= 32 && i < 64) << i;
    }
  }
}

TEST_F(StripLinear, TakesNoMoreScratchThanIsStated) {
  Rng rng(34);
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const StripCase& c : {StripCase{300, 90, 2000}, kManyStrips}) {
      const Numbers weight(DType::kBF16, c.n, c.k, rng);
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        use_threads(1);
        const Numbers src(compute, c.tokens, c.k, rng), grad(compute, c.tokens, c.n, rng);
        Numbers dst(compute, c.tokens, c.n, rng), back(compute, c.tokens, c.k, rng);
        const PackedWeight blocks = pack(weight, compute, WeightFormat::kQ4);
        const TensorView strip = strip_for(blocks);
        linear_forward(*stream_,
                       {.dst = dst.view(), .src = src.view(), .weight = blocks, .strip = strip});
        linear_backward_input(
            *stream_,
            {.grad_src = back.view(), .grad_dst = grad.view(), .weight = blocks, .strip = strip});
        stream_->synchronize();
        EXPECT_LE(device_->scratch_bytes(),
                  CpuDevice::scratch_bytes_held(
                      linear_thread_scratch_bytes(compute, c.tokens, c.n, c.k, 1)))
            << isa_name(isa);
        memory_.clear();
      }
    }
  }
}

using StripLinearDeathTest = StripLinear;

TEST_F(StripLinearDeathTest, RefusesAGradientWithoutAStripAndAShortOne) {
  Rng rng(35);
  const Numbers grad(DType::kF32, 3, 50, rng), weight(DType::kF32, 50, 20, rng);
  Numbers back(DType::kF32, 3, 20, rng);
  use_threads(1);
  const PackedWeight blocks = pack(weight, DType::kF32, WeightFormat::kQ8);
  EXPECT_DEATH(linear_backward_input(
                   *stream_, {.grad_src = back.view(), .grad_dst = grad.view(), .weight = blocks}),
               "no strip");
  const TensorView strip = strip_for(blocks);
  EXPECT_DEATH(linear_backward_input(*stream_, {.grad_src = back.view(),
                                                .grad_dst = grad.view(),
                                                .weight = blocks,
                                                .strip = TensorView::of(strip.data, DType::kU8,
                                                                        Shape{strip.count() - 1})}),
               "a strip of");
}

}  // namespace
}  // namespace jige::ops

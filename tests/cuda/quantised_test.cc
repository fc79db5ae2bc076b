// Weights of few bits on a GPU: blocks beside those of the CPU, products beside sums in double.
#include <algorithm>
#include <cmath>

#include "cuda/test_device.h"
#include "kernels/cpu/quant_levels.h"
#include "kernels/cpu/quant_plain.h"
#include "kernels/cuda/quant.h"
#include "ops/elementwise.h"
#include "ops/kernel_rows.h"
#include "ops/linear.h"

namespace jige {
namespace {

using ops::WeightFormat;

constexpr WeightFormat kFormats[] = {WeightFormat::kQ8, WeightFormat::kQ4};
// That of experts, too (quantised_experts_test.cc has their products).
constexpr WeightFormat kAllFormats[] = {WeightFormat::kQ8, WeightFormat::kQ4, WeightFormat::kMxfp4};

class CudaQuantised : public CudaTest {
 protected:
  struct Weight {
    ops::PackedWeight packed;
    std::vector<float> numbers;  // that the blocks of the CPU stand for, [n, k]
    float at(int64_t row, int64_t column) const {
      return numbers[static_cast<size_t>(row * packed.k + column)];
    }
  };

  // The numbers of the rows by the plain model. Levels are those of the first row.
  static std::vector<float> plain_numbers(WeightFormat format, const TensorView& rows,
                                          const std::vector<uint16_t>& scales) {
    const int64_t k = rows.columns();
    const int64_t blocks = (k + ops::kWeightBlock - 1) / ops::kWeightBlock;
    const cpu::QuantScales given = {scales.empty() ? nullptr : scales.data(), blocks};
    const std::vector<float> all = values(rows);
    const cpu::QuantFormat kind =
        format == WeightFormat::kQ8 ? cpu::QuantFormat::kQ8
        : format == WeightFormat::kMxfp4
            ? cpu::QuantFormat::kFp4
            : cpu::quant_levels({all.data(), cpu::ElementType::kF32, k}, k, given);
    std::vector<float> numbers;
    for (int64_t row = 0; row < rows.rows(); ++row) {
      const auto made = cpu::plain_weight_blocks(
          kind, all.data() + row * k, k, scales.empty() ? nullptr : given.data + row * blocks);
      for (int64_t i = 0; i < k; ++i) {
        const auto& block = made[static_cast<size_t>(i / ops::kWeightBlock)];
        numbers.push_back(to_float(Float16{block.scale}) *
                          static_cast<float>(block.values[i % ops::kWeightBlock]));
      }
    }
    return numbers;
  }

  // Quantises on the GPU, in two parts.
  Weight quantise(WeightFormat format, const Pair& rows, DType compute,
                  const std::vector<uint16_t>& scales = {}) {
    const int64_t n = rows.host.rows();
    const int64_t k = rows.host.columns();
    const int64_t bytes =
        ops::packed_weight_bytes(compute, ops::PackUse::kForward, n, k, format, DeviceKind::kCuda);
    const Weight weight = {{.data = filled(DType::kU8, {bytes}).gpu.data,
                            .compute = compute,
                            .n = n,
                            .k = k,
                            .format = format,
                            .device = DeviceKind::kCuda},
                           plain_numbers(format, rows.host, scales)};
    TensorView given;
    if (!scales.empty()) {
      const Pair pair = filled(DType::kF16, {n, static_cast<int64_t>(scales.size()) / n});
      std::memcpy(pair.host.data, scales.data(), scales.size() * sizeof(uint16_t));
      to_gpu(pair);
      given = pair.gpu;
    }
    for (const auto& [begin, end] : {std::pair{int64_t{0}, n / 3}, std::pair{n / 3, n}}) {
      if (begin == end) continue;
      ops::pack_weight(*gpu_stream_, weight.packed, rows.gpu.row_range(begin, end), begin,
                       given ? given.row_range(begin, end) : TensorView{});
    }
    return weight;
  }
  TensorView strip_for(const Weight& weight, int64_t bytes = 0) {
    const int64_t whole = ops::linear_strip_bytes(weight.packed.compute, weight.packed.n,
                                                  weight.packed.k, DeviceKind::kCuda);
    return filled(DType::kU8, {bytes > 0 ? bytes : whole}).gpu;
  }

  void expect_numbers(const Weight& weight, const std::string& what) {
    const int64_t n = weight.packed.n, k = weight.packed.k;
    const Pair numbers = filled(DType::kF32, {n, k});
    cuda::quant_numbers(ops::launch_stream(*gpu_stream_),
                        {.weight = {.data = static_cast<unsigned char*>(weight.packed.data),
                                    .n = n,
                                    .k = k,
                                    .halves = weight.packed.format != WeightFormat::kQ8},
                         .rows = n,
                         .columns = k,
                         .dst = ops::rows_of(numbers.gpu)});
    const std::vector<float> got = gpu_values(numbers.gpu);
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t column = 0; column < k; ++column) {
        const float number = got[static_cast<size_t>(row * k + column)];
        const float expected = weight.at(row, column);
        ASSERT_TRUE(number == expected || (std::isnan(number) && std::isnan(expected)))
            << what << " row " << row << " column " << column << ": " << number << ", not "
            << expected;
      }
    }
  }

  // src · numbersᵀ + bias in double, of src as rounded to bf16; across: src · numbers.
  static double exact(const Weight& weight, const Pair& src, int64_t token, int64_t column,
                      bool across, double* size) {
    double sum = 0;
    const int64_t depth = src.host.columns();
    for (int64_t i = 0; i < depth; ++i) {
      const float x = to_float(to_bfloat16(get(src.host, token * depth + i)));
      const double product = double{x} * (across ? weight.at(i, column) : weight.at(column, i));
      sum += product;
      *size += std::fabs(product);
    }
    return sum;
  }
};

TEST_F(CudaQuantised, BlocksAreThoseOfTheCpu) {
  for (const WeightFormat format : kAllFormats) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Pair rows = random(type, {19, 77});
      expect_numbers(quantise(format, rows, DType::kF32), "normal");
      tensors_.clear();
    }
  }
}

// Zeros, numbers too small and too large for f16, infinities and NaN; and numbers on even levels,
// which stay as they are, with scales that are known or not.
TEST_F(CudaQuantised, BlocksOfSpecialNumbersAreThoseOfTheCpu) {
  for (const WeightFormat format : kAllFormats) {
    const Pair rows = random(DType::kF32, {6, 96});
    for (int64_t i = 0; i < 6 * 96; ++i) {
      const float special[] = {0, 1e-38f, 3e9f, std::numeric_limits<float>::infinity(), NAN, -4.5f};
      if (i / 96 > 0 && i % 96 < 40) {
        set(rows.host, i, get(rows.host, i) * (i / 96 == 1 ? 1e-36f : i / 96 == 2 ? 1e7f : 1));
      }
      if (i % 96 == 50) set(rows.host, i, special[i / 96]);
      if (i / 96 == 5 && i % 96 < 32) set(rows.host, i, i % 2 == 0 ? 0.0f : -0.0f);
    }
    to_gpu(rows);
    expect_numbers(quantise(format, rows, DType::kF32), "special");

    const Pair even = random(DType::kF32, {5, 64});
    std::vector<uint16_t> scales(10, to_float16(0.375f).bits);
    scales[3] = 0;
    for (int64_t i = 0; i < 5 * 64; ++i) {
      set(even.host, i, 0.375f * static_cast<float>(i * 7 % 13 - 5) + (i == 4 ? 0.01f : 0.0f));
    }
    to_gpu(even);
    expect_numbers(quantise(format, even, DType::kF32, scales), "given scales");
    expect_numbers(quantise(format, even, DType::kF32), "even levels");
    tensors_.clear();
  }
}

// As the experts of gpt-oss are stored: numbers of FP4 times powers of two, which stay.
TEST_F(CudaQuantised, NumbersOfMxfp4AreKept) {
  const Pair rows = filled(DType::kBF16, {16, 96});
  const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  for (int64_t i = 0; i < 16 * 96; ++i) {
    const float number = i % 32 == 5 ? 6 : numbers[random_.below(std::size(numbers))];
    set(rows.host, i, std::ldexp(number, static_cast<int>(i / 32 % 27) - 20));
  }
  to_gpu(rows);
  const Weight weight = quantise(WeightFormat::kMxfp4, rows, DType::kF32);
  expect_numbers(weight, "of FP4");
  EXPECT_EQ(weight.numbers, values(rows.host));
}

// Rows by the kernel for few and by strips, whole ones and parts, with and without what is added.
TEST_F(CudaQuantised, ProductsAreThoseOfTheNumbers) {
  struct Case {
    int64_t tokens, n, k;
    DType src, dst;
    int64_t strip_bytes = 0;
  };
  std::vector<Case> cases = {{1, 16, 64, DType::kBF16, DType::kF32},
                             {3, 40, 1160, DType::kBF16, DType::kF32},
                             {8, 33, 77, DType::kF32, DType::kBF16},
                             {9, 48, 136, DType::kBF16, DType::kBF16},
                             {16, 21, 200, DType::kF32, DType::kF32},
                             {2, 391, 40, DType::kBF16, DType::kF32},
                             {17, 50, 96, DType::kBF16, DType::kF32},
                             {20, 50, 77, DType::kF32, DType::kBF16, 2 * 16 * 80 * 2}};
  if (!test_device_is_emulated()) {
    cases.push_back({5, 2100, 2048, DType::kBF16, DType::kF32});
    cases.push_back({16, 2101, 1024, DType::kBF16, DType::kBF16});
    cases.push_back({100, 2101, 2048, DType::kBF16, DType::kF32});
  }
  for (const WeightFormat format : kFormats) {
    for (const Case& test : cases) {
      const Weight weight = quantise(format, random(DType::kF32, {test.n, test.k}), DType::kBF16);
      const Pair src = random(test.src, {test.tokens, test.k});
      const Pair bias = random(DType::kF32, {test.n});
      const Pair dst = filled(test.dst, {test.tokens, test.n});
      const Pair addend = random(DType::kF32, {test.tokens, test.n});
      const bool adds = test.dst == DType::kF32;
      ops::linear_forward(*gpu_stream_, {.dst = dst.gpu,
                                         .src = src.gpu,
                                         .weight = weight.packed,
                                         .bias = bias.gpu,
                                         .strip = strip_for(weight, test.strip_bytes),
                                         .addend = adds ? addend.gpu : TensorView{}});
      const std::vector<float> got = gpu_values(dst.gpu);
      // Of large ones one in 101, in all columns modulo any tile.
      const int64_t step = test.n * test.k > (int64_t{1} << 20) ? 101 : 1;
      for (int64_t i = 0; i < test.tokens * test.n; i += step) {
        double size = 1;
        const double expected = exact(weight, src, i / test.n, i % test.n, false, &size) +
                                get(bias.host, i % test.n) + (adds ? get(addend.host, i) : 0);
        // A strip's numbers are rounded to bf16, as is a bias beside a result in bf16.
        const double rounding = test.tokens > 16 ? 0x1p-9 : 0x1p-20;
        const double limit = rounding * size + (adds ? 0 : 0x1p-7 * (1 + std::fabs(expected)));
        ASSERT_NEAR(got[static_cast<size_t>(i)], expected, limit)
            << ops::weight_format_name(format) << " T " << test.tokens << " n " << test.n << " k "
            << test.k << " element " << i;
      }
      tensors_.clear();
    }
  }
}

TEST_F(CudaQuantised, InputGradientIsThatOfTheNumbers) {
  for (const WeightFormat format : kFormats) {
    for (const int64_t strip_bytes : {0, 35 * 128 * 2}) {
      for (const auto& [tokens, k] : {std::pair<int64_t, int64_t>{3, 300}, {18, 77}}) {
        const int64_t n = 35;
        const Weight weight = quantise(format, random(DType::kF32, {n, k}), DType::kBF16);
        const Pair grad_dst = random(DType::kBF16, {tokens, n});
        const Pair grad_src = filled(DType::kF32, {tokens, k});
        ops::linear_backward_input(*gpu_stream_, {.grad_src = grad_src.gpu,
                                                  .grad_dst = grad_dst.gpu,
                                                  .weight = weight.packed,
                                                  .strip = strip_for(weight, strip_bytes)});
        const std::vector<float> got = gpu_values(grad_src.gpu);
        for (int64_t i = 0; i < tokens * k; ++i) {
          double size = 1;
          const double expected = exact(weight, grad_dst, i / k, i % k, true, &size);
          ASSERT_NEAR(got[static_cast<size_t>(i)], expected, 0x1p-9 * size) << "element " << i;
        }
        tensors_.clear();
      }
    }
  }
}

TEST_F(CudaQuantised, GatesAndNormsWithinTheProductHaveTheBitsOfTwoSteps) {
  for (const WeightFormat format : kFormats) {
    for (const int64_t tokens : {1, 8, 16}) {
      const int64_t width = 32, k = 264;
      const Weight weight = quantise(format, random(DType::kF32, {2 * width, k}), DType::kBF16);
      const Pair src = random(DType::kF32, {tokens, k});
      const Pair normed = filled(DType::kBF16, {tokens, k});
      const ops::NormForward norm = {
          .dst = normed.gpu, .src = src.gpu, .weight = {}, .eps = 1e-6, .width = k};
      const Pair both = filled(DType::kBF16, {tokens, 2 * width});
      ops::LinearForward product = {
          .dst = both.gpu, .src = normed.gpu, .weight = weight.packed, .strip = strip_for(weight)};
      const Pair expected = filled(DType::kBF16, {tokens, width});
      ops::rms_norm_forward(*gpu_stream_, norm);
      ops::linear_forward(*gpu_stream_, product);
      ops::swiglu_forward(*gpu_stream_, expected.gpu, both.gpu);
      const Pair got = filled(DType::kBF16, {tokens, width});
      product.norm = &norm;
      ASSERT_TRUE(ops::linear_gated_forward(*gpu_stream_, {.dst = got.gpu, .product = product}));
      EXPECT_EQ(gpu_values(got.gpu), gpu_values(expected.gpu)) << tokens << " tokens";
      tensors_.clear();
    }
  }
}

TEST_F(CudaQuantised, ATokensBitsDoNotDependOnTheOthersOfAFew) {
  const int64_t tokens = 16, n = 40, k = 1160;
  for (const WeightFormat format : kFormats) {
    const Weight weight = quantise(format, random(DType::kF32, {n, k}), DType::kBF16);
    const Pair src = random(DType::kBF16, {tokens, k});
    const auto rows = [&](int64_t begin, int64_t end) {
      const Pair dst = filled(DType::kF32, {end - begin, n});
      ops::linear_forward(*gpu_stream_, {.dst = dst.gpu,
                                         .src = src.gpu.row_range(begin, end),
                                         .weight = weight.packed,
                                         .strip = strip_for(weight)});
      return gpu_values(dst.gpu);
    };
    const std::vector<float> all = rows(0, tokens);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {7, 15}, {13, 16}}) {
      const std::vector<float> some(all.begin() + begin * n, all.begin() + end * n);
      EXPECT_EQ(rows(begin, end), some) << begin << " to " << end;
    }
    tensors_.clear();
  }
}

}  // namespace
}  // namespace jige

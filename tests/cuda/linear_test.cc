// Products of linear layers on a GPU, beside those of the CPU.
#include "ops/linear.h"

#include <algorithm>

#include "cuda/test_device.h"
#include "ops/elementwise.h"
#include "ops/linear_cuda.h"

namespace jige {
namespace {

using ops::PackedWeight;
using ops::PackUse;

// How far sums may be apart: those in f32 by their order, results in bf16 by a rounding.
constexpr double kSumTolerance = 3e-4;
constexpr double kLinearBf16Tolerance = 0.01;

double tolerance(DType dtype) {
  return dtype == DType::kF32 ? kSumTolerance : kLinearBf16Tolerance;
}

class CudaLinear : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    const Status ready = ops::cuda_matmul_ready();
    if (!ready) GTEST_SKIP() << ready.error().message;
  }

  struct Weights {
    PackedWeight host, gpu;
  };
  // Packs the weight on both, in two parts.
  Weights pack(const Pair& weight, DType compute, PackUse use) {
    const int64_t n = weight.host.rows();
    const int64_t k = weight.host.columns();
    const Pair memory = filled(DType::kU8, {ops::packed_weight_bytes(compute, use, n, k)});
    const Weights weights = {{memory.host.data, compute, use, n, k},
                             {memory.gpu.data, compute, use, n, k}};
    for (const auto& [begin, end] : {std::pair{int64_t{0}, n / 2}, std::pair{n / 2, n}}) {
      ops::pack_weight(*cpu_stream_, weights.host, weight.host.row_range(begin, end), begin);
      ops::pack_weight(*gpu_stream_, weights.gpu, weight.gpu.row_range(begin, end), begin);
    }
    return weights;
  }

  // The columns [begin, begin + count) of a wider matrix.
  static Pair columns_of(const Pair& wide, int64_t begin, int64_t count) {
    return {wide.host.column_range(begin, begin + count),
            wide.gpu.column_range(begin, begin + count)};
  }

  struct Case {
    int64_t tokens, n, k;
    DType compute, src, dst;
    bool bias = false;
    int64_t begin = 0;  // of the columns of src and dst in wider matrices
    int64_t wider = 0;
  };
  void expect_sums(const Case& test, const Pair& result, DType dtype) {
    const std::string what =
        fmt::format("T {} n {} k {} {} {} {} bias {} begin {} wider {}", test.tokens, test.n,
                    test.k, dtype_info(test.compute).name, dtype_info(test.src).name,
                    dtype_info(test.dst).name, test.bias, test.begin, test.wider);
    if (test.compute == DType::kF32) {
      expect_equal(result, what);
    } else {
      expect_near(result, tolerance(dtype), what);
    }
  }

  Pair forward(const Case& test, const Weights& weights) {
    const Pair src = random(test.src, {test.tokens, test.k + test.wider});
    const Pair dst = random(test.dst, {test.tokens, test.n + test.wider});
    const Pair bias = test.bias ? random(DType::kF32, {test.n}) : Pair();
    const auto run = [&](Stream& stream, TensorView Pair::*side, const PackedWeight& weight) {
      ops::linear_forward(stream, {.dst = (dst.*side).column_range(test.begin, test.begin + test.n),
                                   .src = (src.*side).column_range(test.begin, test.begin + test.k),
                                   .weight = weight,
                                   .bias = bias.*side});
    };
    run(*cpu_stream_, &Pair::host, weights.host);
    run(*gpu_stream_, &Pair::gpu, weights.gpu);
    return dst;
  }
  void expect_forward(const Case& test) {
    const Pair weight = random(DType::kF32, {test.n, test.k});
    const Pair dst = forward(test, pack(weight, test.compute, PackUse::kForward));
    expect_sums(test, dst, test.dst);
    tensors_.clear();
  }
  void expect_input_gradient(const Case& test) {
    const Pair weight = random(DType::kF16, {test.n, test.k});
    const Weights weights = pack(weight, test.compute, PackUse::kInputGradient);
    const Pair grad_dst = random(test.src, {test.tokens, test.n + test.wider});
    const Pair grad_src = random(test.dst, {test.tokens, test.k + test.wider});
    const auto run = [&](Stream& stream, TensorView Pair::*side, const PackedWeight& packed) {
      ops::linear_backward_input(
          stream, {.grad_src = (grad_src.*side).column_range(test.begin, test.begin + test.k),
                   .grad_dst = (grad_dst.*side).column_range(test.begin, test.begin + test.n),
                   .weight = packed});
    };
    run(*cpu_stream_, &Pair::host, weights.host);
    run(*gpu_stream_, &Pair::gpu, weights.gpu);
    expect_sums(test, grad_src, test.dst);
    tensors_.clear();
  }
  void expect_weight_gradient(const Case& test, bool accumulate) {
    const Pair src = random(test.src, {test.tokens, test.k + test.wider});
    const Pair grad_dst = random(test.dst, {test.tokens, test.n + test.wider});
    const Pair grad =
        accumulate ? random(DType::kF32, {test.n, test.k}) : filled(DType::kF32, {test.n, test.k});
    const auto run = [&](Stream& stream, TensorView Pair::*side) {
      ops::linear_backward_weight(
          stream, {.grad_weight = grad.*side,
                   .grad_dst = (grad_dst.*side).column_range(test.begin, test.begin + test.n),
                   .src = (src.*side).column_range(test.begin, test.begin + test.k),
                   .compute = test.compute,
                   .scratch = {},
                   .accumulate = accumulate});
    };
    run(*cpu_stream_, &Pair::host);
    run(*gpu_stream_, &Pair::gpu);
    expect_sums(test, grad, DType::kF32);
    tensors_.clear();
  }

  // Products that differ in one thing each: types, strides, alignment, sizes.
  std::vector<Case> cases() const {
    constexpr DType kF32 = DType::kF32;
    constexpr DType kBf16 = DType::kBF16;
    std::vector<Case> result;
    for (const int64_t tokens : {1, 17, 40}) {
      result.push_back({tokens, 33, 65, kF32, kF32, kF32});
      result.push_back({tokens, 72, 40, kF32, kBf16, kBf16, true, 3, 5});
      result.push_back({tokens, 64, 96, kBf16, kBf16, kBf16});
      result.push_back({tokens, 64, 96, kBf16, kF32, kF32, true});
      result.push_back({tokens, 33, 65, kBf16, kBf16, kF32, true});
      result.push_back({tokens, 64, 96, kBf16, kBf16, kF32, false, 8, 16});
      result.push_back({tokens, 64, 96, kBf16, kF32, kBf16, true, 1, 3});
    }
    if (!test_device_is_emulated()) {
      result.push_back({300, 1000, 1100, kF32, kF32, kF32, true});
      result.push_back({2000, 2056, 1500, kF32, kF32, kF32});
      result.push_back({700, 1024, 2048, kBf16, kBf16, kBf16, true});
      result.push_back({700, 1000, 2048, kBf16, kF32, kF32});
    }
    return result;
  }
};

TEST_F(CudaLinear, ForwardAsTheCpuDoes) {
  for (const Case& test : cases()) expect_forward(test);
}

TEST_F(CudaLinear, InputGradientAsTheCpuDoes) {
  for (const Case& test : cases()) expect_input_gradient(test);
}

TEST_F(CudaLinear, WeightGradientAsTheCpuDoes) {
  for (const Case& test : cases()) {
    expect_weight_gradient(test, false);
    expect_weight_gradient(test, true);
  }
}

// Sizes that take every number of tiles a block may have, ends within a chunk of k, and more than
// one chunk per warp.
TEST_F(CudaLinear, AFewRowsAsTheCpuDoes) {
  const int64_t most = test_device_is_emulated() ? 136 : 9999;
  for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 8, 9, 15, 16}) {
    const DType src = tokens % 2 == 0 ? DType::kBF16 : DType::kF32;
    const DType dst = tokens % 3 == 0 ? DType::kBF16 : DType::kF32;
    const int64_t k = tokens % 5 == 0 ? 1064 : 8 * tokens + 200;
    for (const int64_t n : {tokens < 5 ? int64_t{5} : int64_t{35}, int64_t{100}, most}) {
      expect_forward({tokens, n, k, DType::kBF16, src, dst, n % 2 == 1});
    }
  }
  expect_forward({4, 70, 2400, DType::kBF16, DType::kBF16, DType::kF32});
  expect_forward({11, 33, 1301, DType::kBF16, DType::kBF16, DType::kF32});
}

// By the kernel for few rows, by cuBLASLt with and without a copy of the result, and in f32.
TEST_F(CudaLinear, AddsWhatIsGivenToTheProduct) {
  for (const int64_t tokens : {1, 9, 16, 17, 40}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{136, 96}, {33, 65}, {520, 24}}) {
      for (const DType compute : {DType::kF32, DType::kBF16}) {
        const bool with_bias = tokens % 2 == 1;
        const Weights weights = pack(random(DType::kF32, {n, k}), compute, PackUse::kForward);
        const Pair src = random(compute, {tokens, k});
        const Pair bias = random(DType::kF32, {n});
        const Pair addend = columns_of(random(DType::kF32, {tokens, n + 20}), 8 + tokens % 3, n);
        const Pair dst = filled(DType::kF32, {tokens, n});
        const auto run = [&](Stream& stream, TensorView Pair::*side, const PackedWeight& weight) {
          ops::linear_forward(stream, {.dst = dst.*side,
                                       .src = src.*side,
                                       .weight = weight,
                                       .bias = with_bias ? bias.*side : TensorView{},
                                       .addend = addend.*side});
        };
        run(*cpu_stream_, &Pair::host, weights.host);
        run(*gpu_stream_, &Pair::gpu, weights.gpu);
        expect_sums({tokens, n, k, compute, compute, DType::kF32, with_bias}, dst, DType::kF32);
        tensors_.clear();
      }
    }
  }
}

TEST_F(CudaLinear, AGateWithinTheProductHasTheBitsOfTwoSteps) {
  using Unit = ops::GatedUnit;
  const int64_t many = test_device_is_emulated() ? 136 : 8200;
  for (const int64_t tokens : {1, 5, 8, 9, 16}) {
    for (const auto& [width, k] : {std::pair<int64_t, int64_t>{16, 64}, {40, 1104}, {many, 264}}) {
      for (const Unit unit : {Unit::kSwiGlu, Unit::kGeGlu}) {
        const Weights weights =
            pack(random(DType::kF32, {2 * width, k}), DType::kBF16, PackUse::kForward);
        const Pair src = random(DType::kBF16, {tokens, k});
        const Pair bias = random(DType::kF32, {2 * width});
        ops::LinearForward product = {.dst = filled(DType::kBF16, {tokens, 2 * width}).gpu,
                                      .src = src.gpu,
                                      .weight = weights.gpu,
                                      .bias = tokens % 2 == 1 ? bias.gpu : TensorView{}};
        const Pair expected = filled(DType::kBF16, {tokens, width});
        ops::linear_forward(*gpu_stream_, product);
        (unit == Unit::kSwiGlu ? ops::swiglu_forward : ops::geglu_forward)(
            *gpu_stream_, expected.gpu, product.dst);
        const Pair got = columns_of(filled(DType::kBF16, {tokens, width + 8}), 0, width);
        ASSERT_TRUE(ops::linear_gated_forward(*gpu_stream_,
                                              {.dst = got.gpu, .product = product, .unit = unit}));
        const std::vector<float> all = gpu_values(tensors_.back().view());
        const std::vector<float> wanted = gpu_values(expected.gpu);
        for (int64_t i = 0; i < tokens * width; ++i) {
          const int64_t at = i / width * (width + 8) + i % width;
          ASSERT_EQ(all[static_cast<size_t>(at)], wanted[static_cast<size_t>(i)])
              << tokens << " tokens, width " << width << " k " << k << " element " << i;
        }
        tensors_.clear();
      }
    }
  }
}

// Within the product, and before it where rows are many or long, or do not lie well.
TEST_F(CudaLinear, ANormWithinTheProductHasTheBitsOfTwoSteps) {
  struct Rows {
    int64_t tokens, k, gap;
  };
  for (const auto& [tokens, k, gap] :
       {Rows{1, 264, 0}, Rows{1, 4104, 4}, Rows{3, 1032, 8}, Rows{8, 1024, 0}, Rows{8, 1032, 0},
        Rows{9, 64, 0}, Rows{16, 64, 0}, Rows{17, 64, 0}, Rows{2, 65, 0}, Rows{2, 64, 1}}) {
    for (const int64_t n : {16, 72}) {
      const Weights weights = pack(random(DType::kF32, {n, k}), DType::kBF16, PackUse::kForward);
      const Pair src = columns_of(random(DType::kF32, {tokens, k + gap}), 0, k);
      const Pair factors = random(DType::kF32, {k});
      const Pair bias = random(DType::kF32, {n});
      const Pair normed = filled(DType::kBF16, {tokens, k});
      const ops::NormForward norm = {.dst = normed.gpu,
                                     .src = src.gpu,
                                     .weight = n == 16 ? TensorView{} : factors.gpu,
                                     .eps = 1e-6,
                                     .weight_adds_one = n > 16 && tokens > 1,
                                     .width = k};
      const auto multiply = [&](bool gated, bool at_once) {
        const Pair dst = filled(gated ? DType::kBF16 : DType::kF32, {tokens, gated ? n / 2 : n});
        ops::LinearForward product = {.dst = gated ? TensorView{} : dst.gpu,
                                      .src = normed.gpu,
                                      .weight = weights.gpu,
                                      .bias = bias.gpu};
        if (!at_once) ops::rms_norm_forward(*gpu_stream_, norm);
        if (at_once) product.norm = &norm;
        bool done = true;
        if (gated) {
          done = ops::linear_gated_forward(*gpu_stream_, {.dst = dst.gpu, .product = product});
        } else {
          ops::linear_forward(*gpu_stream_, product);
        }
        return done ? gpu_values(dst.gpu) : std::vector<float>();
      };
      for (const bool gated : {false, true}) {
        EXPECT_EQ(multiply(gated, true), multiply(gated, false))
            << tokens << " of " << k << " gated " << gated;
      }
      tensors_.clear();
    }
  }
}

TEST_F(CudaLinear, SaysWhereAGateIsAStepOfItsOwn) {
  const auto takes = [&](int64_t tokens, int64_t width, int64_t k, DType compute) {
    const Weights weights = pack(random(DType::kF32, {2 * width, k}), compute, PackUse::kForward);
    const Pair dst = random(compute, {tokens, width});
    return ops::linear_gated_forward(
        *gpu_stream_,
        {.dst = dst.gpu,
         .product = {.dst = {}, .src = random(compute, {tokens, k}).gpu, .weight = weights.gpu}});
  };
  EXPECT_TRUE(takes(16, 16, 64, DType::kBF16));
  EXPECT_FALSE(takes(17, 16, 64, DType::kBF16));
  EXPECT_FALSE(takes(1, 16, 65, DType::kBF16));
  EXPECT_FALSE(takes(1, 15, 64, DType::kBF16));
  EXPECT_FALSE(takes(1, 16, 64, DType::kF32));
}

TEST_F(CudaLinear, ATokensBitsDoNotDependOnTheOthersOfAFew) {
  constexpr int64_t kTokens = 16;
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{136, 1104}, {40, 77}}) {
    const Pair weight = random(DType::kBF16, {n, k});
    const Weights weights = pack(weight, DType::kBF16, PackUse::kForward);
    const Pair src = random(DType::kBF16, {kTokens, k});
    const Pair all = filled(DType::kF32, {kTokens, n});
    ops::linear_forward(*gpu_stream_, {.dst = all.gpu, .src = src.gpu, .weight = weights.gpu});
    const std::vector<float> expected = gpu_values(all.gpu);
    for (const int64_t begin : {0, 1, 7, 13}) {
      for (const int64_t count : {1, 2, 8, 9}) {
        const int64_t end = std::min(begin + count, kTokens);
        const Pair some = filled(DType::kF32, {end - begin, n});
        ops::linear_forward(
            *gpu_stream_,
            {.dst = some.gpu, .src = src.gpu.row_range(begin, end), .weight = weights.gpu});
        const std::vector<float> got = gpu_values(some.gpu);
        EXPECT_EQ(std::memcmp(got.data(), expected.data() + begin * n, got.size() * sizeof(float)),
                  0)
            << "tokens [" << begin << ", " << end << ") of [" << n << ", " << k << "]";
      }
    }
  }
}

TEST_F(CudaLinear, PacksEveryTypeOfWeight) {
  for (const DType from : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const int64_t k : {64, 77}) {
        const Pair weight = random(from, {21, k});
        const Weights weights = pack(weight, compute, PackUse::kForward);
        const std::vector<float> got = gpu_values(ops::cuda_packed_rows(weights.gpu));
        for (size_t i = 0; i < got.size(); ++i) {
          const float value = get(weight.host, static_cast<int64_t>(i));
          const float expected = compute == DType::kF32 ? value : to_float(to_bfloat16(value));
          ASSERT_EQ(got[i], expected) << dtype_info(from).name << " " << k << " element " << i;
        }
      }
    }
  }
}

TEST_F(CudaLinear, BiasGradientAsTheCpuDoes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : {1, 40, 128, 129, 700}) {
      const Pair grad = random(DType::kF32, {101});
      const Pair grad_dst = columns_of(random(dtype, {tokens, 110}), 4, 101);
      ops::bias_backward(*cpu_stream_, grad.host, grad_dst.host);
      ops::bias_backward(*gpu_stream_, grad.gpu, grad_dst.gpu);
      expect_near(grad, kSumTolerance, fmt::format("{} tokens", tokens));
    }
  }
}

// Sums of nothing: zeros and the bias, or what is there.
TEST_F(CudaLinear, WeightGradientOfNoTokens) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    expect_weight_gradient({0, 20, 24, compute, DType::kF32, DType::kF32}, true);
    expect_weight_gradient({0, 20, 24, compute, DType::kF32, DType::kF32}, false);
  }
}

}  // namespace
}  // namespace jige

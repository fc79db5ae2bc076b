#include "ops/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/rough_normal.h"
#include "kernels/cpu/gemm_choice.h"
#include "ops/elementwise.h"
#include "ops/linear_test_support.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

// A matrix with room at the end of its rows, filled with normal numbers.
class RandomMatrix {
 public:
  RandomMatrix(DType dtype, int64_t rows, int64_t columns, Rng& rng, int64_t spare = 5)
      : bytes_(static_cast<size_t>(dtype_bytes(dtype, rows * (columns + spare)))),
        view_{bytes_.data(), dtype, Shape{rows, columns}, columns + spare} {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        set(row, column, rough_normal(rng));
      }
    }
  }
  RandomMatrix(const RandomMatrix& other) : bytes_(other.bytes_), view_(other.view_) {
    view_.data = bytes_.data();
  }
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  const TensorView& view() const { return view_; }
  int64_t rows() const { return view_.rows(); }
  int64_t columns() const { return view_.columns(); }
  float at(int64_t row, int64_t column) const {
    const int64_t i = row * view_.row_stride + column;
    if (view_.dtype == DType::kBF16) return to_float(view_.as<BFloat16>()[i]);
    return view_.as<float>()[i];
  }
  void set(int64_t row, int64_t column, float value) {
    const int64_t i = row * view_.row_stride + column;
    if (view_.dtype == DType::kBF16) {
      view_.as<BFloat16>()[i] = to_bfloat16(value);
    } else {
      view_.as<float>()[i] = value;
    }
  }
  TensorView vector() const { return TensorView::of(view_.data, view_.dtype, Shape{columns()}); }
  bool operator==(const RandomMatrix& other) const { return bytes_ == other.bytes_; }

 private:
  std::vector<std::byte> bytes_;
  TensorView view_;
};

class LinearOnIsa : public ::testing::TestWithParam<Isa>, protected test::LinearDevice {
 protected:
  LinearOnIsa() { set_active_isa(GetParam()); }
  ~LinearOnIsa() override { set_active_isa(supported_isas().back()); }

  PackedWeight pack(const RandomMatrix& weight, DType compute, PackUse use, int64_t parts = 1) {
    const PackedWeight packed = {nullptr, compute, use, weight.rows(), weight.columns()};
    return packed_in_parts(packed, weight.view(), parts);
  }
};
INSTANTIATE_TEST_SUITE_P(Isas, LinearOnIsa, ::testing::ValuesIn(supported_isas()),
                         [](const auto& test) { return std::string(isa_name(test.param)); });

struct Sizes {
  int64_t tokens, k, n;
};
constexpr Sizes kSizes[] = {{1, 1, 1},    {1, 64, 100}, {2, 31, 17},   {3, 257, 33},
                            {7, 100, 65}, {13, 16, 7},  {65, 130, 50}, {33, 65, 257}};

// Largest error of a sum of `count` products of normal numbers, relative to their typical size.
double tolerance(DType compute, DType dst, int64_t count) {
  const double rounding = compute == DType::kBF16 || dst == DType::kBF16 ? 0x1p-7 : 0x1p-20;
  return rounding * (2 + 2 * std::sqrt(static_cast<double>(count)));
}

TEST_P(LinearOnIsa, ForwardIsNearTheDoubleProduct) {
  Rng rng(4);
  for (const Sizes& s : kSizes) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const DType type : {DType::kF32, DType::kBF16}) {
        const RandomMatrix src(type, s.tokens, s.k, rng);
        const RandomMatrix weight(type, s.n, s.k, rng);
        const RandomMatrix bias(DType::kF32, 1, s.n, rng);
        RandomMatrix dst(type, s.tokens, s.n, rng);
        const bool with_bias = s.n % 2 == 1;
        linear_forward(*stream_,
                       {dst.view(), src.view(), pack(weight, compute, PackUse::kForward, 3),
                        with_bias ? bias.vector() : TensorView()});
        for (int64_t t = 0; t < s.tokens; ++t) {
          for (int64_t n = 0; n < s.n; ++n) {
            double sum = with_bias ? bias.at(0, n) : 0;
            for (int64_t k = 0; k < s.k; ++k) {
              sum += static_cast<double>(src.at(t, k)) * weight.at(n, k);
            }
            ASSERT_NEAR(dst.at(t, n), sum, tolerance(compute, type, s.k)) << t << " " << n;
          }
        }
      }
    }
  }
}

TEST_P(LinearOnIsa, AnAddendHasTheBitsOfASumAfterwards) {
  Rng rng(3);
  std::vector<Sizes> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back({200, 96, 520});  // tasks of rows and of columns
  sizes.push_back({70, 1700, 48});  // several stretches of the depth
  for (const Sizes& s : sizes) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const RandomMatrix src(compute, s.tokens, s.k, rng);
      const RandomMatrix weight(DType::kF32, s.n, s.k, rng);
      const RandomMatrix bias(DType::kF32, 1, s.n, rng);
      const RandomMatrix addend(DType::kF32, s.tokens, s.n, rng, /*spare=*/9);
      RandomMatrix apart(DType::kF32, s.tokens, s.n, rng);
      RandomMatrix at_once(DType::kF32, s.tokens, s.n, rng);
      LinearForward args{.dst = apart.view(),
                         .src = src.view(),
                         .weight = pack(weight, compute, PackUse::kForward)};
      if (s.n % 2 == 1) args.bias = bias.vector();
      linear_forward(*stream_, args);
      add(*stream_, apart.view(), addend.view(), apart.view());
      args.dst = at_once.view();
      args.addend = addend.view();
      linear_forward(*stream_, args);
      for (int64_t i = 0; i < s.tokens * s.n; ++i) {
        const int64_t row = i / s.n, column = i % s.n;
        ASSERT_EQ(at_once.at(row, column), apart.at(row, column)) << s.tokens << " " << i;
      }
    }
  }
}

// One entry of each gradient of the loss Σ dy · y against the change of the loss, in double.
TEST_P(LinearOnIsa, GradientsAreFiniteDifferencesOfTheForward) {
  Rng rng(2);
  for (const Sizes& s : kSizes) {
    const RandomMatrix src(DType::kF32, s.tokens, s.k, rng);
    const RandomMatrix weight(DType::kF32, s.n, s.k, rng);
    const RandomMatrix grad_dst(DType::kF32, s.tokens, s.n, rng);
    RandomMatrix grad_src(DType::kF32, s.tokens, s.k, rng);
    RandomMatrix grad_weight(DType::kF32, s.n, s.k, rng);
    const RandomMatrix grad_weight_before = grad_weight;
    RandomMatrix grad_bias(DType::kF32, 1, s.n, rng);
    const RandomMatrix grad_bias_before = grad_bias;
    linear_backward_input(*stream_, {grad_src.view(), grad_dst.view(),
                                     pack(weight, DType::kF32, PackUse::kInputGradient, 2)});
    linear_backward_weight(*stream_,
                           {grad_weight.view(), grad_dst.view(), src.view(), DType::kF32});
    bias_backward(*stream_, grad_bias.vector(), grad_dst.view());

    struct Step {
      int64_t src_row = -1, src_column = -1, weight_row = -1, weight_column = -1, bias = -1;
    };
    const double epsilon = 1e-3;
    const auto loss = [&](const Step& step, double change) {
      double total = 0;
      for (int64_t t = 0; t < s.tokens; ++t) {
        for (int64_t n = 0; n < s.n; ++n) {
          double y = n == step.bias ? change : 0;
          for (int64_t k = 0; k < s.k; ++k) {
            const double x =
                src.at(t, k) + (t == step.src_row && k == step.src_column ? change : 0);
            const double w =
                weight.at(n, k) + (n == step.weight_row && k == step.weight_column ? change : 0);
            y += x * w;
          }
          total += y * grad_dst.at(t, n);
        }
      }
      return total;
    };
    const auto slope = [&](const Step& step) {
      return (loss(step, epsilon) - loss(step, -epsilon)) / (2 * epsilon);
    };
    for (int i = 0; i < 3; ++i) {
      const auto t = static_cast<int64_t>(rng.below(static_cast<uint64_t>(s.tokens)));
      const auto k = static_cast<int64_t>(rng.below(static_cast<uint64_t>(s.k)));
      const auto n = static_cast<int64_t>(rng.below(static_cast<uint64_t>(s.n)));
      EXPECT_NEAR(grad_src.at(t, k), slope({.src_row = t, .src_column = k}), 1e-3);
      EXPECT_NEAR(grad_weight.at(n, k) - grad_weight_before.at(n, k),
                  slope({.weight_row = n, .weight_column = k}), 1e-3);
      EXPECT_NEAR(grad_bias.at(0, n) - grad_bias_before.at(0, n), slope({.bias = n}), 1e-3);
    }
  }
}

TEST_P(LinearOnIsa, ForwardBitsDependOnNothingButTheToken) {
  Rng rng(3);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const RandomMatrix src(DType::kF32, 70, 300, rng);
    const RandomMatrix weight(DType::kF32, 130, 300, rng);
    RandomMatrix whole(DType::kF32, 70, 130, rng);
    use_threads(1);
    linear_forward(*stream_,
                   {whole.view(), src.view(), pack(weight, compute, PackUse::kForward), {}});
    for (const int threads : {1, 2, 3}) {
      use_threads(threads, true);
      const PackedWeight packed = pack(weight, compute, PackUse::kForward, 4);
      for (const int64_t step : {1, 2, 5, 8, 31, 70}) {
        RandomMatrix parts = whole;
        for (int64_t t = 0; t < 70; t += step) {
          const int64_t end = std::min<int64_t>(t + step, 70);
          linear_forward(
              *stream_, {parts.view().row_range(t, end), src.view().row_range(t, end), packed, {}});
        }
        stream_->synchronize();
        EXPECT_TRUE(parts == whole) << threads << " threads, " << step << " tokens at a time";
      }
    }
  }
}

TEST_P(LinearOnIsa, GradientBitsDependNeitherOnThreadsNorOnHowTokensAreSplit) {
  Rng rng(4);
  const RandomMatrix src(DType::kF32, 100, 90, rng);
  const RandomMatrix grad_dst(DType::kBF16, 100, 130, rng);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const RandomMatrix start(DType::kF32, 130, 90, rng);
    const RandomMatrix bias_start(DType::kF32, 1, 130, rng);
    RandomMatrix expected = start;
    RandomMatrix bias_expected = bias_start;
    use_threads(1);
    linear_backward_weight(*stream_, {expected.view(), grad_dst.view(), src.view(), compute});
    bias_backward(*stream_, bias_expected.vector(), grad_dst.view());
    // Pairs take two tokens at a time, tiles 32.
    const int64_t whole = cpu::gemm_engine_unpacked(compute).depth_step;
    for (const int64_t step : {32, 64, 100, 1, 7}) {
      if (step % whole != 0 && step < 100) continue;
      use_threads(3);
      // Enough for a step's tokens, but for steps of 64 half of it; none where no scratch helps.
      std::vector<std::byte> scratch(static_cast<size_t>(
          linear_backward_weight_scratch_bytes(compute, step == 64 ? 32 : step, 90)));
      const TensorView scratch_view =
          scratch.empty() ? TensorView()
                          : TensorView::of(scratch.data(), DType::kU8,
                                           Shape{static_cast<int64_t>(scratch.size())});
      RandomMatrix grad = start;
      RandomMatrix bias = bias_start;
      for (int64_t t = 0; t < 100; t += step) {
        const int64_t end = std::min<int64_t>(t + step, 100);
        linear_backward_weight(*stream_, {grad.view(), grad_dst.view().row_range(t, end),
                                          src.view().row_range(t, end), compute, scratch_view});
        bias_backward(*stream_, bias.vector(), grad_dst.view().row_range(t, end));
      }
      EXPECT_TRUE(grad == expected) << step;
      EXPECT_TRUE(bias == bias_expected) << step;
    }
  }
}

TEST_P(LinearOnIsa, StoredGradientsAreThoseAddedToZeros) {
  Rng rng(7);
  const RandomMatrix src(DType::kF32, 100, 96, rng);
  const RandomMatrix grad_dst(DType::kBF16, 100, 130, rng);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const RandomMatrix garbage(DType::kF32, 130, 96, rng);
    RandomMatrix expected = garbage;
    for (int64_t row = 0; row < 130; ++row) {
      for (int64_t column = 0; column < 96; ++column) expected.set(row, column, 0);
    }
    linear_backward_weight(*stream_, {expected.view(), grad_dst.view(), src.view(), compute});
    std::vector<std::byte> scratch(
        static_cast<size_t>(linear_backward_weight_scratch_bytes(compute, 100, 96)));
    TensorView scratch_view;
    for (const bool with_scratch : {false, true}) {
      if (with_scratch && scratch.empty()) continue;
      if (with_scratch) {
        scratch_view =
            TensorView::of(scratch.data(), DType::kU8, Shape{static_cast<int64_t>(scratch.size())});
      }
      RandomMatrix stored = garbage;
      linear_backward_weight(*stream_, {.grad_weight = stored.view(),
                                        .grad_dst = grad_dst.view(),
                                        .src = src.view(),
                                        .compute = compute,
                                        .scratch = scratch_view,
                                        .accumulate = false});
      stream_->synchronize();
      EXPECT_TRUE(stored == expected) << with_scratch;
      EXPECT_FALSE(stored == garbage);
    }
  }
}

TEST(Linear, GivesTheSameBitsOnEveryInstructionSet) {
  Rng rng(5);
  const RandomMatrix src(DType::kF32, 40, 77, rng);
  const RandomMatrix weight(DType::kF32, 90, 77, rng);
  std::vector<RandomMatrix> results;
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    CpuDevice device;
    const auto stream = device.make_stream().value();
    std::vector<std::byte> memory(
        static_cast<size_t>(packed_weight_bytes(DType::kF32, PackUse::kForward, 90, 77)));
    const PackedWeight packed = {memory.data(), DType::kF32, PackUse::kForward, 90, 77};
    pack_weight(*stream, packed, weight.view());
    Rng same(6);
    results.emplace_back(DType::kF32, 40, 90, same);
    linear_forward(*stream, {results.back().view(), src.view(), packed, {}});
    EXPECT_TRUE(results.back() == results.front()) << isa_name(isa);
  }
}

TEST(Linear, UsesThePackedLayoutAfterTheInstructionSetChanged) {
  Rng rng(7);
  const RandomMatrix src(DType::kF32, 3, 20, rng);
  const RandomMatrix weight(DType::kF32, 50, 20, rng);
  CpuDevice device;
  const auto stream = device.make_stream().value();
  std::vector<std::byte> memory(
      static_cast<size_t>(packed_weight_bytes(DType::kF32, PackUse::kForward, 50, 20)));
  const PackedWeight packed = {memory.data(), DType::kF32, PackUse::kForward, 50, 20};
  set_active_isa(supported_isas().back());
  pack_weight(*stream, packed, weight.view());
  set_active_isa(Isa::kAvx2);
  RandomMatrix dst(DType::kF32, 3, 50, rng);
  linear_forward(*stream, {dst.view(), src.view(), packed, {}});
  set_active_isa(supported_isas().back());
  float sum = 0;
  for (int64_t k = 0; k < 20; ++k) sum = std::fma(src.at(2, k), weight.at(49, k), sum);
  EXPECT_EQ(dst.at(2, 49), sum);
}

TEST_P(LinearOnIsa, TakesTheScratchThatIsStated) {
  Rng rng(9);
  const RandomMatrix weight(DType::kF32, 700, 600, rng);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : {1, 40, 300}) {
      use_threads(1);
      const RandomMatrix src(DType::kBF16, tokens, 600, rng);
      const RandomMatrix grad_dst(DType::kBF16, tokens, 700, rng);
      RandomMatrix dst(DType::kF32, tokens, 700, rng);
      RandomMatrix grad_src(DType::kF32, tokens, 600, rng);
      RandomMatrix grad_weight(DType::kF32, 700, 600, rng);
      const auto pack = [&](PackUse use, std::vector<std::byte>& memory) {
        memory.resize(static_cast<size_t>(packed_weight_bytes(compute, use, 700, 600)));
        const PackedWeight packed = {memory.data(), compute, use, 700, 600};
        pack_weight(*stream_, packed, weight.view());
        return packed;
      };
      std::vector<std::byte> forward, backward;
      linear_forward(*stream_, {dst.view(), src.view(), pack(PackUse::kForward, forward), {}});
      linear_backward_input(
          *stream_, {grad_src.view(), grad_dst.view(), pack(PackUse::kInputGradient, backward)});
      std::vector<std::byte> scratch(
          static_cast<size_t>(linear_backward_weight_scratch_bytes(compute, tokens, 600)));
      const TensorView scratch_view =
          scratch.empty() ? TensorView()
                          : TensorView::of(scratch.data(), DType::kU8,
                                           Shape{static_cast<int64_t>(scratch.size())});
      linear_backward_weight(
          *stream_, {grad_weight.view(), grad_dst.view(), src.view(), compute, scratch_view});
      const int64_t stated =
          std::max(linear_thread_scratch_bytes(compute, tokens, 700, 600, 1),
                   linear_backward_weight_thread_scratch_bytes(compute, tokens, 700, 600, 1));
      EXPECT_EQ(device_->scratch_bytes(), CpuDevice::scratch_bytes_held(stated))
          << dtype_info(compute).name << ", " << tokens << " tokens";
    }
  }
}

TEST(LinearDeathTest, RefusesAWeightThatWasNotPacked) {
  Rng rng(8);
  const RandomMatrix src(DType::kF32, 3, 20, rng);
  RandomMatrix dst(DType::kF32, 3, 50, rng);
  CpuDevice device({.thread_count = 1});
  const auto stream = device.make_stream().value();
  std::vector<std::byte> memory(100000);
  const PackedWeight packed = {memory.data(), DType::kF32, PackUse::kForward, 50, 20};
  EXPECT_DEATH(linear_forward(*stream, {dst.view(), src.view(), packed, {}}), "was not packed");
}

}  // namespace
}  // namespace jige::ops

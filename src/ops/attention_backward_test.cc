// Backward attention: against the definition and finite differences in double precision, and bit
// for bit under packing, threads and the ways to cut the work.
#include <gtest/gtest.h>

#include "base/cpu.h"
#include "ops/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_schedule.h"

namespace jige::ops::attention_test {
namespace {

void expect_near(const Matrix& actual, int64_t row, int64_t column, double expected,
                 double tolerance) {
  ASSERT_NEAR(actual.get(row, column), expected, tolerance * std::max(1.0, std::abs(expected)))
      << "row " << row << " column " << column;
}

struct Types {
  DType dst = DType::kF32;
  DType grad = DType::kF32;
};

void expect_gradients_match_oracle(Inputs& in, double tolerance, const Types& types = {}) {
  Machine machine(2);
  Matrix grad_dst = make_grad_dst(in, types.dst);
  ForwardResult result = forward(machine, in, types.dst);
  const Gradients grads = backward(machine, in, result, grad_dst, types.grad);
  const int64_t d = in.shape.head_dim;
  const int64_t group = in.shape.head_count / in.shape.kv_head_count;
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t kv_head = 0; kv_head < in.shape.kv_head_count; ++kv_head) {
      std::vector<double> grad_k(static_cast<size_t>(length * d), 0.0);
      std::vector<double> grad_v = grad_k;
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        Oracle o = oracle_forward(in, {row, length, head});
        oracle_backward(in, {row, length, head}, grad_dst, &o);
        for (size_t i = 0; i < grad_k.size(); ++i) {
          const int64_t at = row + static_cast<int64_t>(i) / d;
          const int64_t c = static_cast<int64_t>(i) % d;
          grad_k[i] += o.grad_k[i];
          grad_v[i] += o.grad_v[i];
          ASSERT_NO_FATAL_FAILURE(expect_near(grads.q, at, head * d + c, o.grad_q[i], tolerance));
        }
      }
      for (size_t i = 0; i < grad_k.size(); ++i) {
        const int64_t at = row + static_cast<int64_t>(i) / d;
        const int64_t c = kv_head * d + static_cast<int64_t>(i) % d;
        ASSERT_NO_FATAL_FAILURE(expect_near(grads.k, at, c, grad_k[i], tolerance));
        ASSERT_NO_FATAL_FAILURE(expect_near(grads.v, at, c, grad_v[i], tolerance));
      }
    }
    row += length;
  }
}

TEST(AttentionBackward, MatchesTheDefinitionAtEveryHeadDimension) {
  int64_t kv_heads = 1;
  for (const int64_t dim : {1, 5, 8, 16, 17, 24, 32, 64, 80, 96, 112, 128, 200, 256, 576}) {
    SCOPED_TRACE(dim);
    kv_heads = 3 - kv_heads;
    const std::vector<int> lengths = dim > 100 ? std::vector{66, 1} : std::vector{70, 1, 33};
    Inputs in = make_inputs({.heads = 2, .kv_heads = kv_heads, .dim = dim, .lengths = lengths});
    expect_gradients_match_oracle(in, 4e-5);
  }
}

TEST(AttentionBackward, MatchesTheDefinitionAtEveryRatioOfHeads) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 3}, {6, 2}, {7, 1}, {14, 2}, {100, 1}}) {
    SCOPED_TRACE(heads);
    Inputs in = make_inputs({.heads = heads, .kv_heads = kv_heads, .dim = 12, .lengths = {45, 20}});
    expect_gradients_match_oracle(in, 4e-5);
  }
}

TEST(AttentionBackward, MatchesTheDefinitionOverRaggedSequences) {
  Inputs in = make_inputs(
      {.heads = 2, .kv_heads = 1, .dim = 20, .lengths = {1, 0, 63, 64, 65, 1, 129, 0, 300, 7}});
  expect_gradients_match_oracle(in, 4e-5);
}

TEST(AttentionBackward, MatchesTheDefinitionUnderAWindow) {
  for (const int64_t window : {1, 2, 15, 16, 17, 63, 64, 65, 100, 600}) {
    SCOPED_TRACE(window);
    const int longest = window < 100 ? 180 : 300;
    Inputs in = make_inputs(
        {.heads = 2, .kv_heads = 1, .dim = 8, .window = window, .lengths = {130, 1, longest}});
    expect_gradients_match_oracle(in, 4e-5);
  }
}

TEST(AttentionBackward, MatchesTheDefinitionUnderACapOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const auto& [dim, cap] : {std::pair{1, 0.5}, {1, 50.0}, {17, 0.5}, {17, 3.0}, {80, 3.0}}) {
      SCOPED_TRACE(dim);
      Inputs in = make_inputs({.heads = 3,
                               .kv_heads = 1,
                               .dim = dim,
                               .window = dim == 17 ? 19 : 0,
                               .lengths = {70, 1, 0, 133},
                               .cap = cap});
      expect_gradients_match_oracle(in, 4e-5);
    }
  }
  set_active_isa(before);
}

TEST(AttentionBackward, MatchesTheDefinitionInEveryMixOfTypes) {
  for (const DType in_dtype : {DType::kF32, DType::kBF16}) {
    for (const DType dst : {DType::kF32, DType::kBF16}) {
      for (const DType grad : {DType::kF32, DType::kBF16}) {
        Inputs in = make_inputs({.heads = 2,
                                 .kv_heads = 1,
                                 .dim = 19,
                                 .lengths = {90, 3},
                                 .q_dtype = in_dtype,
                                 .kv_dtype = in_dtype});
        // A rounded dst enters D: an error of 2^-9 of Σ |dst·grad_dst|.
        const bool tiles = cpu::attention_products(in_dtype == DType::kBF16, 1.0f) !=
                           cpu::AttentionProducts::kChains;
        const double tolerance = tiles                  ? 0.1
                                 : dst == DType::kBF16  ? 0.06
                                 : grad == DType::kBF16 ? 1.0 / 250
                                                        : 4e-5;
        expect_gradients_match_oracle(in, tolerance, {dst, grad});
      }
    }
  }
}

// The loss Σ grad_dst·dst in double precision, by the definition.
double loss(const Inputs& in, const Matrix& grad_dst) {
  double sum = 0;
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle o = oracle_forward(in, {row, length, head});
      for (size_t i = 0; i < o.dst.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        sum += o.dst[i] * grad_dst.get(row + at / o.dim, head * o.dim + at % o.dim);
      }
    }
    row += length;
  }
  return sum;
}

// Of every third element, beginning with one of the first three.
void expect_finite_differences(double cap, int64_t first) {
  Inputs in = make_inputs(
      {.heads = 4, .kv_heads = 2, .dim = 6, .window = 9, .lengths = {13, 1, 6}, .cap = cap});
  Machine machine;
  Matrix grad_dst = make_grad_dst(in);
  ForwardResult result = forward(machine, in);
  const Gradients grads = backward(machine, in, result, grad_dst);
  const auto check = [&](Matrix& input, const Matrix& grad) {
    for (int64_t row = 0; row < input.rows(); ++row) {
      for (int64_t c = 0; c < input.columns(); ++c) {
        if ((row + c) % 3 != first) continue;
        // A power of two: the steps around a float are exact enough for a central difference.
        const float value = input.get(row, c);
        const float above = value + 0x1p-8f;
        const float below = value - 0x1p-8f;
        input.set(row, c, above);
        const double loss_above = loss(in, grad_dst);
        input.set(row, c, below);
        const double loss_below = loss(in, grad_dst);
        input.set(row, c, value);
        const double slope = (loss_above - loss_below) / (static_cast<double>(above) - below);
        ASSERT_NEAR(grad.get(row, c), slope, 3e-4 * std::max(1.0, std::abs(slope)));
      }
    }
  };
  check(in.q, grads.q);
  check(in.k, grads.k);
  check(in.v, grads.v);
}

TEST(AttentionBackward, MatchesFiniteDifferences) {
  int64_t first = 0;
  for (const double cap : {0.0, 0.7, 4.0}) expect_finite_differences(cap, first++);
}

TEST(AttentionBackward, GivesTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const int64_t window : {0, 70}) {
    // Heads of one key/value head only: the long sequences are cut when there are threads.
    expect_the_same_gradients_packed_or_alone(make_inputs({.heads = 3,
                                                           .kv_heads = 1,
                                                           .dim = 16,
                                                           .window = window,
                                                           .lengths = {33, 1, 700, 64, 0, 17, 128},
                                                           .cap = window > 0 ? 2.0 : 0.0}),
                                              DType::kF32);
  }
}

TEST(AttentionBackward, GivesTheSameBitsOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const double cap : {0.0, 2.0}) {
    Inputs in =
        make_inputs({.heads = 5, .kv_heads = 1, .dim = 21, .lengths = {300, 40}, .cap = cap});
    Matrix grad_dst = make_grad_dst(in);
    Machine machine;
    set_active_isa(Isa::kAvx2);
    ForwardResult result = forward(machine, in);
    const Gradients expected = backward(machine, in, result, grad_dst);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      const Gradients grads = backward(machine, in, result, grad_dst);
      EXPECT_TRUE(grads.same_rows(0, expected, 0, in.rows())) << isa_name(isa);
    }
  }
  set_active_isa(before);
}

TEST(AttentionBackward, ScratchIsBoundedWhateverTheLength) {
  for (const int length : {500, 4000, 80000}) {
    Inputs in = make_inputs({.heads = 1, .dim = 4, .window = 40, .lengths = {length}});
    Matrix grad_dst = make_grad_dst(in);
    Machine machine;
    ForwardResult result = forward(machine, in);
    backward(machine, in, result, grad_dst);
    const int64_t stated = attention_scratch_bytes(in.shape, length);
    EXPECT_LE(machine.device.scratch_bytes(), stated + CpuDevice::kScratchUnitBytes) << length;
    EXPECT_LE(stated, (int64_t{8} << 20) + 256 * 1024) << length;
  }
}

}  // namespace
}  // namespace jige::ops::attention_test

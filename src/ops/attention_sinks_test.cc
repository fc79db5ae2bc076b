// Attention sinks: against the definition in double precision and finite differences, bit for bit
// under packing, threads, chunks and caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/cpu.h"
#include "ops/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/linear.h"

namespace jige::ops::attention_test {
namespace {

// Below, among and above the scores.
std::vector<float> sinks_of(int64_t heads) {
  std::vector<float> sinks;
  for (int64_t h = 0; h < heads; ++h) sinks.push_back(-6.0f + 3.5f * static_cast<float>(h % 5));
  return sinks;
}

void expect_forward_matches(Inputs& in, Definition& definition, double tolerance) {
  Machine machine(2);
  const ForwardResult result = forward(machine, in);
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle& o = definition.of({row, length, head});
      for (int64_t i = 0; i < length; ++i) {
        ASSERT_NEAR(result.lse.get(row + i, head), o.lse[static_cast<size_t>(i)], 2e-5);
        for (int64_t c = 0; c < o.dim; ++c) {
          const double expected = o.dst[static_cast<size_t>(i * o.dim + c)];
          ASSERT_NEAR(result.dst.get(row + i, head * o.dim + c), expected,
                      tolerance * std::max(1.0, std::abs(expected)))
              << "row " << row + i << " head " << head << " column " << c;
        }
      }
    }
    row += length;
  }
}

TEST(AttentionSinks, MatchTheDefinitionOnEveryInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t window : {0, 40}) {
      Inputs in = make_inputs({.heads = 6,
                               .kv_heads = 2,
                               .dim = 24,
                               .window = window,
                               .lengths = {1, 70, 0, 530},
                               .q_dtype = dtype,
                               .kv_dtype = dtype});
      const std::vector<float> sinks = sinks_of(6);
      in.shape.sinks = sinks.data();
      Definition definition(in);
      on_all_isas(
          [&] { expect_forward_matches(in, definition, dtype == DType::kBF16 ? 2e-2 : 1e-5); });
    }
  }
}

TEST(AttentionSinks, LeaveHalfOfAnEqualScore) {
  Inputs in = make_inputs({.heads = 1, .kv_heads = 1, .dim = 16, .lengths = {1}});
  for (int64_t c = 0; c < 16; ++c) in.q.set(0, c, 0.0f);
  const float sink = 0.0f;
  in.shape.sinks = &sink;
  Machine machine;
  const ForwardResult result = forward(machine, in);
  for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(result.dst.get(0, c), 0.5f * in.v.get(0, c));
}

TEST(AttentionSinks, GiveTheSameBitsPackedAloneAndOverTheCache) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Inputs in = make_inputs({.heads = 8,
                             .kv_heads = 2,
                             .dim = 64,
                             .window = 128,
                             .lengths = {600, 1, 33},
                             .q_dtype = dtype,
                             .kv_dtype = dtype});
    const std::vector<float> sinks = sinks_of(8);
    in.shape.sinks = sinks.data();
    expect_the_same_bits_packed_or_alone(in);
    Machine machine(2);
    const ForwardResult expected = forward(machine, in);
    for (const int chunk : {1, 5, 64, 600}) {
      Cache cache(dtype, in.shape, in.lengths, 3);
      const Matrix dst =
          run_in_chunks(machine, in, cache, DType::kF32, [chunk](size_t, int) { return chunk; });
      EXPECT_TRUE(dst.same_rows(0, expected.dst, 0, in.rows())) << chunk;
    }
  }
}

double loss_with_sinks(const Inputs& in, const Matrix& grad_dst) {
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

void expect_slope(double actual, const Inputs& in, const Matrix& grad_dst,
                  const std::function<void(float)>& set, float value) {
  set(value + 0x1p-8f);
  const double above = loss_with_sinks(in, grad_dst);
  set(value - 0x1p-8f);
  const double below = loss_with_sinks(in, grad_dst);
  set(value);
  const double slope = (above - below) / 0x1p-7;
  ASSERT_NEAR(actual, slope, 5e-4 * std::max(1.0, std::abs(slope)));
}

TEST(AttentionSinks, GradientsMatchFiniteDifferences) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    Inputs in =
        make_inputs({.heads = 4, .kv_heads = 2, .dim = 6, .window = 9, .lengths = {13, 1, 6}});
    std::vector<float> sinks = {-1.0f, 0.5f, 2.0f, 1.0f};
    in.shape.sinks = sinks.data();
    Machine machine;
    Matrix grad_dst = make_grad_dst(in);
    ForwardResult result = forward(machine, in);
    const Gradients grads = backward(machine, in, result, grad_dst);
    Matrix slopes(DType::kF32, in.rows(), 4);
    Matrix total(DType::kF32, 1, 4);
    for (int64_t h = 0; h < 4; ++h) total.set(0, h, 0.0f);
    attention_sink_slopes(*machine.stream, {.slopes = slopes.view(),
                                            .grad_dst = grad_dst.view(),
                                            .dst = result.dst.view(),
                                            .lse = result.lse.view(),
                                            .shape = in.shape});
    bias_backward(*machine.stream, TensorView::of(total.view().data, DType::kF32, Shape{4}),
                  slopes.view());
    machine.stream->synchronize();
    for (size_t h = 0; h < 4; ++h) {
      const auto head = static_cast<int64_t>(h);
      expect_slope(
          total.get(0, head), in, grad_dst, [&](float x) { sinks[h] = x; }, sinks[h]);
    }
    const auto check = [&](Matrix& input, const Matrix& grad) {
      for (int64_t row = 0; row < input.rows(); ++row) {
        for (int64_t c = 0; c < input.columns(); ++c) {
          expect_slope(
              grad.get(row, c), in, grad_dst, [&](float x) { input.set(row, c, x); },
              input.get(row, c));
        }
      }
    };
    check(in.q, grads.q);
    check(in.k, grads.k);
    check(in.v, grads.v);
  }
  set_active_isa(before);
}

}  // namespace
}  // namespace jige::ops::attention_test

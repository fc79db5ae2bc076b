// Backward attention of bf16 on matrix tiles or in pairs: against the definition in double
// precision, within the rounding of P and dS, and bit for bit under packing, threads and the ways
// to cut the work. Skipped where there are neither.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/attention.h"
#include "ops/attention.h"
#include "ops/attention_properties_test_support.h"

namespace jige::ops::attention_test {
namespace {

class AttentionTilesBackward : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) {
      GTEST_SKIP() << "no instructions for bf16";
    }
  }
};

// A gradient in double precision, and the sum of the magnitudes of its terms.
struct Expected {
  std::vector<double> sum, magnitude;

  explicit Expected(int64_t count)
      : sum(static_cast<size_t>(count), 0.0), magnitude(static_cast<size_t>(count), 0.0) {}
  // Adds terms from `at` on: a row of numbers, whose magnitudes are given too, times a scale.
  void add(int64_t at, double scale, const double* row, const double* magnitudes, int64_t count) {
    add_scaled(sum.data() + at, row, scale, count);
    add_scaled(magnitude.data() + at, magnitudes, std::abs(scale), count);
  }
  // P or dS is off by up to 2^-8 of itself by its rounding; the rest is f32.
  void expect_near(const Matrix& actual, int64_t row, int64_t column, int64_t at) const {
    const auto i = static_cast<size_t>(at);
    ASSERT_NEAR(actual.get(row, column), sum[i], magnitude[i] * 0x1.02p-8 + 1e-5)
        << "row " << row << " column " << column;
  }
};

// Results of forward in double precision, as the inputs of backward.
ForwardResult exact_forward(const Inputs& in) {
  ForwardResult result{Matrix(DType::kF32, in.rows(), in.q.columns()),
                       Matrix(DType::kF32, in.rows(), in.shape.head_count)};
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle o = oracle_forward(in, {row, length, head});
      for (int64_t i = 0; i < length; ++i) {
        result.lse.set(row + i, head, static_cast<float>(o.lse[static_cast<size_t>(i)]));
        for (int64_t c = 0; c < o.dim; ++c) {
          result.dst.set(row + i, head * o.dim + c,
                         static_cast<float>(o.dst[static_cast<size_t>(i * o.dim + c)]));
        }
      }
    }
    row += length;
  }
  return result;
}

struct KeyGradients {
  Expected k, v;
};

std::vector<double> magnitudes_of(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// Adds the terms of one query head; checks its grad_q.
void expect_head(const Inputs& in, const HeadPlace& place, const Matrix& grad_dst,
                 const Gradients& grads, KeyGradients* keys) {
  const int64_t d = in.shape.head_dim;
  const int64_t q_column = place.head * d;
  const Oracle o = oracle_forward(in, place);
  const HeadInputs head(in, place);
  const std::vector<double> grad = widened(grad_dst, place, d);
  const std::vector<double> q = magnitudes_of(head.q), k = magnitudes_of(head.k);
  const std::vector<double> of_grad = magnitudes_of(grad);
  Expected grad_q(place.length * d);
  for (int64_t i = 0; i < place.length; ++i) {
    const int64_t at_i = i * d;
    const double mean = dot(o.dst.data() + at_i, grad.data() + at_i, d);
    for (int64_t j = 0; j <= i; ++j) {
      const double weight = o.weights[static_cast<size_t>(i * place.length + j)];
      if (weight == 0) continue;
      const int64_t at_j = j * d;
      const double grad_weight = dot(grad.data() + at_i, head.v.data() + at_j, d);
      const double slope = weight * (grad_weight - mean) * in.shape.scale * o.slope(i, j);
      grad_q.add(at_i, slope, head.k.data() + at_j, k.data() + at_j, d);
      keys->k.add(at_j, slope, head.q.data() + at_i, q.data() + at_i, d);
      keys->v.add(at_j, weight, grad.data() + at_i, of_grad.data() + at_i, d);
    }
  }
  for (int64_t at = 0; at < place.length * d; ++at) {
    ASSERT_NO_FATAL_FAILURE(grad_q.expect_near(grads.q, place.row + at / d, q_column + at % d, at));
  }
}

void expect_gradients_near_definition(Inputs& in) {
  Machine machine(2);
  Matrix grad_dst = make_grad_dst(in, DType::kBF16);
  ForwardResult result = exact_forward(in);
  const Gradients grads = backward(machine, in, result, grad_dst);
  const int64_t d = in.shape.head_dim;
  const int64_t group = in.shape.head_count / in.shape.kv_head_count;
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t kv_head = 0; kv_head < in.shape.kv_head_count; ++kv_head) {
      KeyGradients keys{Expected(length * d), Expected(length * d)};
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        ASSERT_NO_FATAL_FAILURE(expect_head(in, {row, length, head}, grad_dst, grads, &keys));
      }
      for (int64_t at = 0; at < length * d; ++at) {
        const int64_t column = kv_head * d + at % d;
        ASSERT_NO_FATAL_FAILURE(keys.k.expect_near(grads.k, row + at / d, column, at));
        ASSERT_NO_FATAL_FAILURE(keys.v.expect_near(grads.v, row + at / d, column, at));
      }
    }
    row += length;
  }
}

TEST_F(AttentionTilesBackward, MatchesTheDefinitionAtEveryHeadDimension) {
  for (const int64_t dim : {1, 5, 16, 17, 31, 32, 48, 64, 65, 80, 128, 256, 576}) {
    SCOPED_TRACE(dim);
    Inputs in = bf16_inputs({.heads = 4, .kv_heads = 2, .dim = dim, .lengths = {70, 1, 33}});
    expect_gradients_near_definition(in);
  }
}

TEST_F(AttentionTilesBackward, MatchesTheDefinitionAtEveryRatioOfHeads) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 1}, {8, 2}, {8, 1}, {100, 1}}) {
    SCOPED_TRACE(heads);
    Inputs in = bf16_inputs({.heads = heads, .kv_heads = kv_heads, .dim = 20, .lengths = {45, 20}});
    expect_gradients_near_definition(in);
  }
}

TEST_F(AttentionTilesBackward, MatchesTheDefinitionOverRaggedSequencesAndWindows) {
  for (const int64_t window : {0, 1, 16, 31, 64, 65, 100}) {
    SCOPED_TRACE(window);
    Inputs in = bf16_inputs({.heads = 2,
                             .kv_heads = 1,
                             .dim = 24,
                             .window = window,
                             .lengths = {1, 15, 16, 17, 0, 32, 63, 65, 127, 129}});
    expect_gradients_near_definition(in);
  }
}

TEST_F(AttentionTilesBackward, MatchesTheDefinitionUnderACap) {
  for (const double cap : {0.5, 3.0, 50.0}) {
    for (const int64_t dim : {5, 32, 80}) {
      SCOPED_TRACE(dim);
      Inputs in = bf16_inputs({.heads = 4,
                               .kv_heads = 2,
                               .dim = dim,
                               .window = dim == 80 ? 33 : 0,
                               .lengths = {70, 1, 33, 0, 130},
                               .cap = cap});
      expect_gradients_near_definition(in);
    }
  }
}

TEST_F(AttentionTilesBackward, GivesTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const int64_t window : {0, 70}) {
    // Heads of one key/value head only: the long sequences are cut when there are threads.
    expect_the_same_gradients_packed_or_alone(bf16_inputs({.heads = 3,
                                                           .kv_heads = 1,
                                                           .dim = 48,
                                                           .window = window,
                                                           .lengths = {33, 1, 700, 64, 0, 17, 128},
                                                           .cap = window > 0 ? 2.0 : 0.0}),
                                              DType::kBF16);
  }
}

TEST_F(AttentionTilesBackward, ScratchIsBoundedWhateverTheLength) {
  for (const int length : {500, 20000}) {
    Inputs in = bf16_inputs({.heads = 1, .dim = 16, .window = 40, .lengths = {length}});
    Matrix grad_dst = make_grad_dst(in, DType::kBF16);
    Machine machine;
    ForwardResult result = forward(machine, in);
    backward(machine, in, result, grad_dst);
    const int64_t stated = attention_scratch_bytes(in.shape, length);
    EXPECT_LE(machine.device.scratch_bytes(), stated + CpuDevice::kScratchUnitBytes) << length;
    EXPECT_LE(stated, (int64_t{8} << 20) + 512 * 1024) << length;
  }
}

}  // namespace
}  // namespace jige::ops::attention_test

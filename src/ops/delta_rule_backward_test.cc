// The gradients of the gated delta rule: against finite differences of its definition in double
// precision, and bit for bit over packing and threads.
#include <algorithm>

#include "ops/delta_rule.h"
#include "ops/delta_rule_test_support.h"

namespace jige::ops::delta_test {
namespace {

struct BackwardCase {
  Case c;
  size_t stride;  // every so many elements are checked
};

std::vector<BackwardCase> backward_cases() {
  std::vector<BackwardCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({{{5, 1, 0, 3}, {2, 4, 5, 3}, dtype}, 1});
    all.push_back({{{4}, {1, 1, 16, 16}, dtype}, 1});
    all.push_back({{{70, 33}, {1, 2, 18, 35}, dtype}, 41});  // several chunks and strips
    all.push_back({{{32}, {2, 2, 17, 16}, dtype}, 13});
  }
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    // Large ones are looked at more thinly than above, at all columns in turn.
    const size_t stride = 3 * all[i].stride - 2;
    all.push_back({all[i].c, stride});
    all.back().c.shape.corrects = false;
    all.push_back({by_key(all[i].c), stride});
  }
  return all;
}

// Of every stride-th element of an input: how the loss rises with it, by the definition.
Values slopes_of(const BackwardCase& backward, const Reference& at, const Values& grad_dst,
                 Values Reference::*input) {
  Reference moved = at;
  const auto loss = [&](size_t i, double value) {
    const double before = (moved.*input)[i];
    (moved.*input)[i] = value;
    run_reference(backward.c, moved);
    (moved.*input)[i] = before;
    return test::dot(moved.dst, grad_dst);
  };
  Values slopes;
  for (size_t i = 0; i < (at.*input).size(); i += backward.stride) {
    constexpr double kStep = 1e-5;
    const double value = (at.*input)[i];
    slopes.push_back((loss(i, value + kStep) - loss(i, value - kStep)) / (2 * kStep));
  }
  return slopes;
}

void expect_slopes(const BackwardCase& backward, const Values& slopes, const Matrix& actual,
                   const char* what) {
  const Values have = actual.values();
  const double rounding = test::rounding_of(actual.dtype());
  size_t i = 0;
  for (const double slope : slopes) {
    ASSERT_NEAR(have.at(i), slope, 2e-5 + (2e-5 + rounding) * std::fabs(slope))
        << backward.c.name() << ": " << what << ", element " << i;
    i += backward.stride;
  }
  ASSERT_GE(i, have.size());
  ASSERT_TRUE(actual.gap_intact()) << what;
}

Matrix column_sums(const Matrix& rows) {
  return Matrix(DType::kF32, 1, rows.columns()).fill_by([&](int64_t, int64_t column) {
    double sum = 0;
    for (int64_t row = 0; row < rows.rows(); ++row) {
      sum += static_cast<double>(rows.get(row, column));
    }
    return sum;
  });
}

TEST(DeltaRuleBackward, AgreesWithFiniteDifferences) {
  test::TestStream stream;
  for (const BackwardCase& backward : backward_cases()) {
    const Case& c = backward.c;
    Operands in(c);
    Rng rng(32);
    Matrix grad_dst(c.dtype, c.rows(), c.value_columns());
    grad_dst.fill_normal(rng);
    const Reference at = Reference::of(in);
    const auto slopes = [&](Values Reference::*input) {
      return slopes_of(backward, at, grad_dst.values(), input);
    };
    const Values q = slopes(&Reference::q), k = slopes(&Reference::k), v = slopes(&Reference::v);
    const Values log_decay = slopes(&Reference::log_decay), rate = slopes(&Reference::rate);
    const Values skip = slopes(&Reference::skip);
    test::for_each_isa([&] {
      const Gradients grads = run_backward(*stream, c, in, grad_dst);
      expect_slopes(backward, q, grads.q, "q");
      expect_slopes(backward, k, grads.k, "k");
      expect_slopes(backward, v, grads.v, "v");
      expect_slopes(backward, log_decay, grads.log_decay, "log_decay");
      expect_slopes(backward, rate, grads.rate, "rate");
      if (!c.shape.corrects) expect_slopes(backward, skip, column_sums(grads.slopes_skip), "skip");
    });
  }
}

TEST(DeltaRuleBackward, SequencesDoNotMeet) {
  test::TestStream stream;
  const Case c = {{40, 1, 33}, {2, 4, 24, 40}, DType::kBF16};
  Operands in(c);
  Rng rng(33);
  Matrix grad_dst(c.dtype, c.rows(), c.value_columns());
  grad_dst.fill_normal(rng);
  const Gradients together = run_backward(*stream, c, in, grad_dst);
  Gradients alone(c);
  for (const SequenceSpan& span : c.spans()) {
    DeltaRuleForward forward = in.args(c);
    forward.sequences = {span};
    delta_rule_backward(*stream, alone.args(forward, grad_dst));
  }
  EXPECT_TRUE(together == alone);
}

TEST(DeltaRuleBackward, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& c : with_and_without_correction({{{70, 1, 20}, {3, 6, 20, 35}, dtype}})) {
      test::expect_same_bits_everywhere([&](Stream& stream) {
        Operands in(c);
        Rng rng(34);
        Matrix grad_dst(c.dtype, c.rows(), c.value_columns());
        grad_dst.fill_normal(rng);
        return run_backward(stream, c, in, grad_dst);
      });
    }
  }
}

}  // namespace
}  // namespace jige::ops::delta_test

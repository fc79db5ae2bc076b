// The gradients of the gated delta rule: against finite differences of its definition in double
// precision, and bit for bit over packing and threads.
#include <algorithm>

#include "ops/delta_rule.h"
#include "ops/delta_rule_test_support.h"
#include "ops/slopes_test_support.h"

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
    all.push_back({{{70, 33}, {1, 2, 18, 35}, dtype}, 127});  // several chunks and strips
    all.push_back({{{32}, {2, 2, 17, 16}, dtype}, 27});
  }
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    // Large ones are looked at more thinly than above, at all columns in turn. One of the two kinds
    // for each, in turn: the next type has the other.
    const size_t stride = 3 * all[i].stride - 2;
    if ((i + i / (count / 2)) % 2 == 0) {
      all.push_back({all[i].c, stride});
      all.back().c.shape.corrects = false;
    } else {
      all.push_back({by_key(all[i].c), stride});
    }
  }
  return all;
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
      return test::slopes_of(at, input, backward.stride, grad_dst.values(),
                             [&](Reference& moved) { run_reference(c, moved); });
    };
    const Values q = slopes(&Reference::q), k = slopes(&Reference::k), v = slopes(&Reference::v);
    const Values log_decay = slopes(&Reference::log_decay), rate = slopes(&Reference::rate);
    const Values skip = c.shape.corrects ? Values() : slopes(&Reference::skip);
    test::for_each_isa([&] {
      const Gradients grads = run_backward(*stream, c, in, grad_dst);
      const auto expect = [&](const Values& wanted, const Matrix& actual, const char* what) {
        test::expect_slopes(wanted, backward.stride, actual, 2e-5, c.name() + ": " + what);
      };
      expect(q, grads.q, "q");
      expect(k, grads.k, "k");
      expect(v, grads.v, "v");
      expect(log_decay, grads.log_decay, "log_decay");
      expect(rate, grads.rate, "rate");
      if (!c.shape.corrects) expect(skip, column_sums(grads.slopes_skip), "skip");
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

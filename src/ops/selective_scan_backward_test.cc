// The gradients of the selective scan: against finite differences of its definition in double
// precision, and bit for bit over packing and threads.
#include <tuple>
#include <vector>

#include "ops/selective_scan.h"
#include "ops/selective_scan_test_support.h"

namespace jige::ops::scan_test {
namespace {

struct ScanBackwardCase {
  Case one;
  size_t stride;  // every so many elements are checked
};

std::vector<ScanBackwardCase> scan_backward_cases() {
  std::vector<ScanBackwardCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({{{5, 1, 0, 3}, 5, 3, dtype}, 1});
    all.push_back({{{4}, 16, 16, dtype}, 7});
    all.push_back({{{70, 33}, 35, 18, dtype}, 301});  // several chunks and strips
    all.push_back({{{3, 2}, 530, 2, dtype}, 53});     // several groups of strips
  }
  return all;
}

// Of every stride-th element of an input: how the loss rises with it, by the definition.
Values scan_slopes_of(const ScanBackwardCase& backward, const Reference& at, const Values& grad_dst,
                      Values Reference::*input) {
  Reference moved = at;
  const auto loss = [&](size_t i, double value) {
    const double before = (moved.*input)[i];
    (moved.*input)[i] = value;
    run_reference(backward.one, moved);
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

void expect_scan_slopes(const ScanBackwardCase& backward, const Values& slopes,
                        const Matrix& actual, const char* what) {
  const Values have = actual.values();
  const double rounding = test::rounding_of(actual.dtype());
  size_t i = 0;
  for (const double slope : slopes) {
    ASSERT_NEAR(have.at(i), slope, 3e-5 + (2e-5 + rounding) * std::fabs(slope))
        << backward.one.name() << ": " << what << ", element " << i;
    i += backward.stride;
  }
  ASSERT_GE(i, have.size());
  ASSERT_TRUE(actual.gap_intact()) << what;
}

TEST(SelectiveScanBackward, AgreesWithFiniteDifferences) {
  test::TestStream stream;
  for (const ScanBackwardCase& backward : scan_backward_cases()) {
    const Case& one = backward.one;
    Operands in(one);
    Matrix grad_dst = gradient_of(one, 42);
    const Reference at = Reference::of(in);
    const std::tuple<const char*, Values Reference::*, Matrix Gradients::*> inputs[] = {
        {"x", &Reference::x, &Gradients::x},
        {"a", &Reference::a, &Gradients::a},
        {"b", &Reference::b, &Gradients::b},
        {"c", &Reference::c, &Gradients::c},
        {"log_scale", &Reference::log_scale, &Gradients::log_scale},
        {"bias", &Reference::bias, &Gradients::bias},
        {"skip", &Reference::skip, &Gradients::skip}};
    std::vector<Values> slopes;
    for (const auto& input : inputs) {
      slopes.push_back(scan_slopes_of(backward, at, grad_dst.values(), std::get<1>(input)));
    }
    test::for_each_isa([&] {
      Gradients grads(one);
      grads.run(*stream, in.args(one), grad_dst);
      for (size_t i = 0; i < slopes.size(); ++i) {
        expect_scan_slopes(backward, slopes[i], grads.*std::get<2>(inputs[i]),
                           std::get<0>(inputs[i]));
      }
    });
  }
}

TEST(SelectiveScanBackward, SequencesDoNotMeetAndAreAddedInOrder) {
  test::TestStream stream;
  const Case one = {{40, 1, 33}, 40, 5, DType::kBF16};
  Operands in(one);
  Matrix grad_dst = gradient_of(one, 43);
  Gradients together(one), alone(one);
  together.run(*stream, in.args(one), grad_dst);
  for (const SequenceSpan& span : one.spans()) {
    SelectiveScan forward = in.args(one);
    forward.sequences = {span};
    alone.run(*stream, forward, grad_dst);
  }
  EXPECT_TRUE(together == alone);
}

TEST(SelectiveScanBackward, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Case one = {{70, 1, 20}, 530, 5, dtype};
    test::expect_same_bits_everywhere([&](Stream& stream) {
      Operands in(one);
      Matrix grad_dst = gradient_of(one, 44);
      Gradients grads(one);
      grads.run(stream, in.args(one), grad_dst);
      return grads;
    });
  }
}

}  // namespace
}  // namespace jige::ops::scan_test

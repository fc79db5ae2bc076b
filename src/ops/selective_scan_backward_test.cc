// The gradients of the selective scan: against finite differences of its definition in double
// precision, and bit for bit over packing and threads.
#include <tuple>
#include <vector>

#include "ops/selective_scan.h"
#include "ops/selective_scan_test_support.h"
#include "ops/slopes_test_support.h"

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
  }
  all.push_back({{{70, 33}, 35, 18, DType::kF32}, 601});  // several chunks and strips
  all.push_back({{{3, 2}, 530, 2, DType::kBF16}, 107});   // several groups of strips
  return all;
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
      slopes.push_back(test::slopes_of(at, std::get<1>(input), backward.stride, grad_dst.values(),
                                       [&](Reference& moved) { run_reference(one, moved); }));
    }
    test::for_each_isa([&] {
      Gradients grads(one);
      grads.run(*stream, in.args(one), grad_dst);
      for (size_t i = 0; i < slopes.size(); ++i) {
        test::expect_slopes(slopes[i], backward.stride, grads.*std::get<2>(inputs[i]), 3e-5,
                            one.name() + ": " + std::get<0>(inputs[i]));
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

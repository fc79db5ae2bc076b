// The selective scan forward: against the definition in double precision, and bit for bit over
// states, packing and threads.
#include "ops/selective_scan.h"

#include <algorithm>

#include "ops/selective_scan_test_support.h"
#include "ops/spare_spans_test_support.h"

namespace jige::ops::scan_test {
namespace {

std::vector<Case> scan_cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({{5, 1, 0, 40}, 32, 16, dtype});
    all.push_back({{17, 3}, 19, 5, dtype});  // beyond whole vectors
    all.push_back({{33, 2}, 300, 18, dtype});
    all.push_back({{16}, 1, 1, dtype});
    all.push_back({{18}, 3, 256, dtype});
    all.push_back({{}, 4, 4, dtype});
  }
  return all;
}

TEST(SelectiveScan, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Case& one : scan_cases()) {
      Operands in(one);
      selective_scan_forward(*stream, in.args(one));
      Reference ref = Reference::of(in);
      run_reference(one, ref);
      test::expect_near(in.dst, ref.dst, 1e-5, 4e-6, one.name());
    }
  });
}

// h of a sequence's channel as it lies in its state.
double number_of(const Case& one, const Matrix& states, int64_t slot, int64_t channel, int64_t n) {
  const int64_t strip = channel / 16 * 16;
  const int64_t lanes = std::min<int64_t>(16, one.columns - strip);
  return static_cast<double>(states.get(slot, strip * one.state_dim + n * lanes + channel - strip));
}

// Sequence i has row 2 i + 1 of the states; all of it holds NaN before.
Matrix empty_scan_states(const Case& one) {
  return {DType::kF32, 2 * static_cast<int64_t>(one.lengths.size()) + 1,
          one.columns * one.state_dim};
}
SelectiveScan scan_with_states(const Case& one, Operands& in, Matrix& states) {
  SelectiveScan args = in.args(one);
  args.states = states.view();
  int32_t slot = 1;
  for (SequenceSpan& sequence : args.sequences) {
    sequence.state = slot;
    slot += 2;
  }
  return args;
}

TEST(SelectiveScan, LeavesTheStateBehindTheLastToken) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Case& one : scan_cases()) {
      Operands in(one), training(one);
      Matrix states = empty_scan_states(one);
      selective_scan_forward(*stream, scan_with_states(one, in, states));
      selective_scan_forward(*stream, training.args(one));
      EXPECT_TRUE(in.dst == training.dst) << one.name();
      Reference ref = Reference::of(in);
      run_reference(one, ref);
      size_t at = 0;
      for (size_t i = 0; i < one.lengths.size(); ++i) {
        const auto slot = static_cast<int64_t>(2 * i + 1);
        for (int64_t channel = 0; channel < one.columns; ++channel) {
          for (int64_t n = 0; n < one.state_dim; ++n, ++at) {
            if (one.lengths[i] == 0) continue;
            ASSERT_NEAR(number_of(one, states, slot, channel, n), ref.states[at],
                        4e-6 + 1e-5 * std::fabs(ref.states[at]))
                << one.name();
          }
        }
        EXPECT_TRUE(std::isnan(states.get(slot - 1, 0))) << "a state that is nobody's";
      }
      EXPECT_TRUE(states.gap_intact());
    }
  });
}

struct ScanPieces {
  Matrix dst, states;
  bool operator==(const ScanPieces& other) const = default;
};

// All sequences go on side by side, in pieces of so many tokens in turn.
ScanPieces scan_in_pieces(Stream& stream, const Case& one, const std::vector<int32_t>& pieces) {
  Operands in(one);
  Matrix states = empty_scan_states(one);
  std::vector<int32_t> done(one.lengths.size());
  for (size_t turn = 0; done != one.lengths; ++turn) {
    SelectiveScan args = scan_with_states(one, in, states);
    for (size_t i = 0; i < done.size(); ++i) {
      SequenceSpan& sequence = args.sequences[i];
      const int32_t count = std::min(pieces[turn % pieces.size()], one.lengths[i] - done[i]);
      sequence.row_begin += done[i];
      sequence.row_count = count;
      sequence.context_count = done[i];
      done[i] += count;
    }
    selective_scan_forward(stream, args);
  }
  return {in.dst, states};
}

TEST(SelectiveScan, GoesOnFromItsStateWithTheSameBits) {
  test::TestStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& one : {Case{{50, 1, 19}, 32, 16, dtype}, {{50, 1, 19}, 19, 5, dtype}}) {
      const ScanPieces whole = scan_in_pieces(*stream, one, {50});
      for (const std::vector<int32_t>& pieces :
           std::vector<std::vector<int32_t>>{{1}, {16}, {7, 0, 20, 1}, {49, 1}, {2, 31}}) {
        EXPECT_TRUE(scan_in_pieces(*stream, one, pieces) == whole)
            << one.name() << ", " << pieces[0];
      }
    }
  }
}

// The last rows of all sequences, behind `context` of each: all of them, with the state behind the
// first `kept` in the row in front of their own, or only these.
ScanPieces scan_behind(Stream& stream, const Case& one, int32_t context, int32_t kept, bool spare) {
  Operands in(one);
  Matrix states = empty_scan_states(one);
  for (const int32_t begin : {0, context}) {
    SelectiveScan args = scan_with_states(one, in, states);
    args.sequences = test::spans_behind(args.sequences, begin, context, kept, spare);
    selective_scan_forward(stream, args);
  }
  return {in.dst, states};
}

TEST(SelectiveScan, ASpareRowHasTheStateBehindTheFirstRows) {
  test::TestStream stream(3);
  for (const Case& one : {Case{{9, 21}, 100, 16, DType::kBF16}, {{9, 21}, 19, 5, DType::kF32}}) {
    const ScanPieces whole = scan_in_pieces(*stream, one, {21});
    for (const auto& [context, kept] : {std::pair{3, 1}, {3, 5}, {3, 6}, {1, 2}}) {
      const ScanPieces with = scan_behind(*stream, one, context, kept, true);
      const ScanPieces first = scan_behind(*stream, one, context, kept, false);
      EXPECT_TRUE(with.dst == whole.dst) << one.name();
      for (const int64_t state : {1, 3}) {
        for (int64_t i = 0; i < whole.states.columns(); ++i) {
          ASSERT_EQ(with.states.get(state, i), whole.states.get(state, i)) << one.name();
          ASSERT_EQ(with.states.get(state - 1, i), first.states.get(state, i)) << one.name();
        }
      }
    }
  }
}

TEST(SelectiveScan, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Case& one : {Case{{40, 1, 19}, 100, 16, dtype}, {{40, 1, 19}, 19, 5, dtype}}) {
      test::expect_same_bits_everywhere(
          [&](Stream& stream) { return scan_in_pieces(stream, one, {21}); });
    }
  }
}

TEST(SelectiveScan, StepsWithoutBoundAndFullDecayAreNumbers) {
  test::TestStream stream;
  test::for_each_isa([&] {
    const Case one = {{9}, 16, 4, DType::kF32};
    Operands in(one);
    in.a.fill(1e4);
    in.log_scale.fill(5);
    in.b.fill(0);
    in.skip.fill(2);
    selective_scan_forward(*stream, in.args(one));
    Values doubled = in.x.values();
    for (double& x : doubled) x *= 2;
    test::expect_near(in.dst, doubled, 0, 0, "what skips");
  });
}

TEST(SelectiveScan, ScratchIsWhatIsStated) {
  for (const int32_t length : {1, 700, 5000}) {
    const Case one = {{length}, 20, 9, DType::kF32};
    Operands in(one);
    Matrix grad_dst = gradient_of(one, 45);
    CpuDevice device({.thread_count = 1});
    const auto stream = std::move(*device.make_stream());
    selective_scan_forward(*stream, in.args(one));
    Gradients(one).run(*stream, in.args(one), grad_dst);
    const int64_t stated = selective_scan_scratch_bytes(one.state_dim, length);
    EXPECT_EQ(device.scratch_bytes(), CpuDevice::scratch_bytes_held(stated)) << length;
  }
}

}  // namespace
}  // namespace jige::ops::scan_test

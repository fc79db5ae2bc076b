// The gated delta rule forward: against the definition in double precision, and bit for bit over
// states, packing and threads.
#include "ops/delta_rule.h"

#include <algorithm>

#include "ops/delta_rule_test_support.h"
#include "ops/spare_spans_test_support.h"

namespace jige::ops::delta_test {
namespace {

std::vector<Case> forward_cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({{5, 1, 0, 40}, {2, 4, 8, 16}, dtype});
    all.push_back({{17, 3}, {1, 3, 5, 3}, dtype});  // rows and columns beyond whole vectors
    all.push_back({{20}, {2, 2, 33, 47}, dtype});
    all.push_back({{33, 2}, {1, 2, 128, 128}, dtype});
    all.push_back({{18}, {1, 1, 256, 250}, dtype});
    all.push_back({{16}, {1, 1, 1, 1}, dtype});
    all.push_back({{}, {1, 1, 4, 4}, dtype});
  }
  return with_and_without_correction(all);
}

TEST(DeltaRule, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Case& c : forward_cases()) {
      Operands in(c);
      delta_rule_forward(*stream, in.args(c));
      Reference ref = Reference::of(in);
      run_reference(c, ref);
      test::expect_near(in.dst, ref.dst, 1e-5, 2e-6, c.name());
    }
  });
}

// S of a sequence and head as it lies in its state, made [dk][dv].
Values head_state(const Case& c, const Matrix& states, int64_t slot, int64_t head) {
  const int64_t dk = c.shape.key_dim;
  const int64_t dv = c.shape.value_dim;
  Values result(static_cast<size_t>(dk * dv));
  int64_t at = head * dk * dv;
  for (int64_t strip = 0; strip < dv; strip += 16) {
    for (int64_t i = 0; i < dk; ++i) {
      for (int64_t j = strip; j < std::min(strip + 16, dv); ++j) {
        result[static_cast<size_t>(i * dv + j)] = static_cast<double>(states.get(slot, at++));
      }
    }
  }
  return result;
}

// Sequence i has row 2 i + 1 of the states; all of it holds NaN before.
Matrix empty_states(const Case& c) {
  return {DType::kF32, 2 * static_cast<int64_t>(c.lengths.size()) + 1, c.state_columns()};
}
DeltaRuleForward with_states(const Case& c, Operands& in, Matrix& states) {
  DeltaRuleForward args = in.args(c);
  args.states = states.view();
  int32_t slot = 1;
  for (SequenceSpan& sequence : args.sequences) {
    sequence.state = slot;
    slot += 2;
  }
  return args;
}

TEST(DeltaRule, LeavesTheStateBehindTheLastToken) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Case& c : forward_cases()) {
      Operands in(c), training(c);
      Matrix states = empty_states(c);
      delta_rule_forward(*stream, with_states(c, in, states));
      delta_rule_forward(*stream, training.args(c));
      EXPECT_TRUE(in.dst == training.dst) << c.name();
      Reference ref = Reference::of(in);
      run_reference(c, ref);
      const auto size = static_cast<size_t>(c.shape.key_dim * c.shape.value_dim);
      size_t first = 0;
      for (size_t i = 0; i < c.lengths.size(); ++i) {
        const auto slot = static_cast<int64_t>(2 * i + 1);
        for (int64_t head = 0; head < c.shape.value_heads; ++head, first += size) {
          if (c.lengths[i] == 0) continue;
          const Values have = head_state(c, states, slot, head);
          for (size_t j = 0; j < size; ++j) {
            ASSERT_NEAR(have[j], ref.states[first + j], 2e-6) << c.name();
          }
        }
        EXPECT_TRUE(std::isnan(states.get(slot - 1, 0))) << "a state that is nobody's";
      }
      EXPECT_TRUE(states.gap_intact());
    }
  });
}

struct PiecesRun {
  Matrix dst, states;
  bool operator==(const PiecesRun& other) const = default;
};

// All sequences go on side by side, in pieces of so many tokens in turn.
PiecesRun run_in_pieces(Stream& stream, const Case& c, const std::vector<int32_t>& pieces) {
  Operands in(c);
  Matrix states = empty_states(c);
  std::vector<int32_t> done(c.lengths.size());
  for (size_t turn = 0; done != c.lengths; ++turn) {
    DeltaRuleForward args = with_states(c, in, states);
    for (size_t i = 0; i < done.size(); ++i) {
      SequenceSpan& sequence = args.sequences[i];
      const int32_t count = std::min(pieces[turn % pieces.size()], c.lengths[i] - done[i]);
      sequence.row_begin += done[i];
      sequence.row_count = count;
      sequence.context_count = done[i];
      done[i] += count;
    }
    delta_rule_forward(stream, args);
  }
  return {in.dst, states};
}

TEST(DeltaRule, GoesOnFromItsStateWithTheSameBits) {
  test::TestStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const DeltaRuleShape& shape :
         {DeltaRuleShape{2, 4, 8, 32}, {1, 3, 5, 3}, {1, 2, 33, 47}, {1, 1, 128, 128}}) {
      for (const Case& c : with_and_without_correction({{{50, 1, 19}, shape, dtype}})) {
        const PiecesRun whole = run_in_pieces(*stream, c, {50});
        for (const std::vector<int32_t>& pieces :
             std::vector<std::vector<int32_t>>{{1}, {16}, {7, 0, 20, 1}, {49, 1}, {2, 31}}) {
          EXPECT_TRUE(run_in_pieces(*stream, c, pieces) == whole) << c.name() << ", " << pieces[0];
        }
      }
    }
  }
}

// The last rows of all sequences, behind `context` of each: all of them, with the state behind the
// first `kept` in the row in front of their own, or only these.
PiecesRun run_behind(Stream& stream, const Case& c, int32_t context, int32_t kept, bool spare) {
  Operands in(c);
  Matrix states = empty_states(c);
  for (const int32_t begin : {0, context}) {
    DeltaRuleForward args = with_states(c, in, states);
    args.sequences = test::spans_behind(args.sequences, begin, context, kept, spare);
    delta_rule_forward(stream, args);
  }
  return {in.dst, states};
}

void expect_same_row(const Matrix& a, int64_t row, const Matrix& b, int64_t other,
                     const std::string& what) {
  for (int64_t i = 0; i < a.columns(); ++i) ASSERT_EQ(a.get(row, i), b.get(other, i)) << what;
}

TEST(DeltaRule, ASpareRowHasTheStateBehindTheFirstRows) {
  test::TestStream stream(3);
  for (const DeltaRuleShape& shape :
       {DeltaRuleShape{2, 4, 8, 32}, {1, 3, 5, 3}, {1, 2, 33, 47}, {1, 1, 128, 128}}) {
    for (const Case& c : with_and_without_correction({{{9, 21}, shape, DType::kBF16}})) {
      const PiecesRun whole = run_in_pieces(*stream, c, {21});
      for (const auto& [context, kept] : {std::pair{3, 1}, {3, 5}, {3, 6}, {1, 2}}) {
        const PiecesRun with = run_behind(*stream, c, context, kept, true);
        const PiecesRun first = run_behind(*stream, c, context, kept, false);
        EXPECT_TRUE(with.dst == whole.dst) << c.name();
        for (const int64_t state : {1, 3}) {
          expect_same_row(with.states, state, whole.states, state, c.name());
          expect_same_row(with.states, state - 1, first.states, state, c.name() + ", spare");
        }
      }
    }
  }
}

TEST(DeltaRule, SequencesDoNotMeet) {
  test::TestStream stream(3);
  const Case c = {{40, 1, 19}, {2, 4, 24, 40}, DType::kBF16};
  Operands together(c), alone(c);
  Matrix all_states = empty_states(c), states = empty_states(c);
  delta_rule_forward(*stream, with_states(c, together, all_states));
  for (size_t i = 0; i < c.lengths.size(); ++i) {
    DeltaRuleForward args = with_states(c, alone, states);
    args.sequences = {args.sequences[i]};
    delta_rule_forward(*stream, args);
  }
  EXPECT_TRUE(together.dst == alone.dst);
  EXPECT_TRUE(all_states == states);
}

TEST(DeltaRule, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const DeltaRuleShape& shape :
         {DeltaRuleShape{1, 1, 96, 112}, {2, 4, 33, 47}, {1, 2, 8, 16}}) {
      for (const Case& c : with_and_without_correction({{{40, 1, 19}, shape, dtype}})) {
        test::expect_same_bits_everywhere(
            [&](Stream& stream) { return run_in_pieces(stream, c, {21}); });
      }
    }
  }
}

TEST(DeltaRule, ZeroKeysAndFullDecayAreNumbers) {
  test::TestStream stream;
  test::for_each_isa([&] {
    const Case c = {{9}, {1, 2, 16, 16}, DType::kF32};
    Operands in(c);
    in.q.fill(0);
    in.k.fill(0);
    in.log_decay.fill(-200);
    delta_rule_forward(*stream, in.args(c));
    test::expect_near(in.dst, Values(static_cast<size_t>(9 * 32)), 0, 0, "zeros");
  });
}

TEST(DeltaRule, ScratchIsWhatIsStated) {
  const auto of_length = [](int32_t length) { return Case{{length}, {1, 1, 64, 64}}; };
  for (const Case& c : {of_length(1), of_length(700), of_length(5000), by_key(of_length(700))}) {
    Operands in(c);
    Matrix grad_dst = Matrix(c.dtype, c.rows(), c.value_columns()).fill(1);
    CpuDevice device({.thread_count = 1});
    const auto stream = std::move(*device.make_stream());
    delta_rule_forward(*stream, in.args(c));
    run_backward(*stream, c, in, grad_dst);
    const int64_t stated = delta_rule_scratch_bytes(c.shape, c.lengths[0]);
    EXPECT_EQ(device.scratch_bytes(), CpuDevice::scratch_bytes_held(stated)) << c.name();
  }
}

}  // namespace
}  // namespace jige::ops::delta_test

// Forward attention over flat rows: against the definition in double precision, and bit for bit
// under packing and threads.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/cpu.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_schedule.h"

namespace jige::ops::attention_test {
namespace {

void expect_matches_oracle(Inputs& in, Definition& definition, DType dst_dtype, double tolerance) {
  Machine machine(2);
  const ForwardResult result = forward(machine, in, dst_dtype);
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle& o = definition.of({row, length, head});
      for (int64_t i = 0; i < length; ++i) {
        ASSERT_NEAR(result.lse.get(row + i, head), o.lse[static_cast<size_t>(i)], 2e-5)
            << "row " << row + i << " head " << head;
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

TEST(AttentionForward, MatchesTheDefinitionAtEveryHeadDimension) {
  for (const int64_t dim : {1, 5, 8, 16, 17, 24, 32, 64, 80, 96, 112, 128, 200, 256, 576}) {
    SCOPED_TRACE(dim);
    Inputs in = make_inputs({.heads = 4, .kv_heads = 2, .dim = dim, .lengths = {70, 1, 33}});
    Definition definition(in);
    expect_matches_oracle(in, definition, DType::kF32, 1e-5);
  }
}

TEST(AttentionForward, MatchesTheDefinitionAtEveryRatioOfHeads) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 3}, {6, 2}, {7, 1}, {14, 2}, {100, 1}}) {
    SCOPED_TRACE(heads);
    Inputs in = make_inputs({.heads = heads, .kv_heads = kv_heads, .dim = 12, .lengths = {45, 20}});
    Definition definition(in);
    expect_matches_oracle(in, definition, DType::kF32, 1e-5);
  }
}

TEST(AttentionForward, MatchesTheDefinitionOverRaggedSequences) {
  Inputs in = make_inputs({.heads = 2,
                           .kv_heads = 1,
                           .dim = 20,
                           .lengths = {1, 0, 63, 64, 65, 1, 129, 0, 512, 513, 7}});
  Definition definition(in);
  expect_matches_oracle(in, definition, DType::kF32, 1e-5);
}

TEST(AttentionForward, MatchesTheDefinitionUnderAWindow) {
  for (const int64_t window : {1, 2, 15, 16, 17, 63, 64, 65, 100, 512, 600, 5000}) {
    SCOPED_TRACE(window);
    Inputs in = make_inputs(
        {.heads = 2, .kv_heads = 1, .dim = 8, .window = window, .lengths = {200, 1, 700}});
    Definition definition(in);
    expect_matches_oracle(in, definition, DType::kF32, 1e-5);
  }
}

TEST(AttentionForward, MatchesTheDefinitionInEveryMixOfTypes) {
  for (const DType q : {DType::kF32, DType::kBF16}) {
    for (const DType kv : {DType::kF32, DType::kBF16}) {
      for (const DType dst : {DType::kF32, DType::kBF16}) {
        Inputs in = make_inputs({.heads = 2,
                                 .kv_heads = 2,
                                 .dim = 19,
                                 .lengths = {90, 3},
                                 .q_dtype = q,
                                 .kv_dtype = kv});
        const bool tiles = cpu::attention_products(q == DType::kBF16 && kv == q, 1.0f) !=
                           cpu::AttentionProducts::kChains;
        const double exact = dst == DType::kBF16 ? 1.0 / 256 : 1e-5;
        Definition definition(in);
        expect_matches_oracle(in, definition, dst, tiles ? 1.0 / 64 : exact);
      }
    }
  }
}

struct CappedCase {
  int64_t dim;
  double cap;
  int longest;  // that of 520 is cut into splits
};
constexpr CappedCase kCappedCases[] = {{1, 0.5, 520},  {17, 3.0, 520},  {32, 0.5, 120},
                                       {32, 3.0, 520}, {32, 50.0, 120}, {80, 50.0, 120},
                                       {256, 3.0, 120}};

TEST(AttentionForward, MatchesTheDefinitionUnderACapOnEveryInstructionSet) {
  for (const auto& [dim, cap, longest] : kCappedCases) {
    SCOPED_TRACE(dim);
    Inputs in = make_inputs({.heads = 2,
                             .kv_heads = 1,
                             .dim = dim,
                             .window = dim == 32 ? 19 : 0,
                             .lengths = {70, 1, 0, 33, longest},
                             .cap = cap});
    Definition definition(in);
    on_all_isas([&] { expect_matches_oracle(in, definition, DType::kF32, 1e-5); });
  }
}

TEST(AttentionForward, LargeScoresDoNotOverflow) {
  expect_large_scores_do_not_overflow(make_inputs({.heads = 1, .dim = 16, .lengths = {600}}));
}

TEST(AttentionForward, ANotANumberQueryStaysOne) {
  expect_a_not_a_number_query_stays_one(
      make_inputs({.heads = 2, .kv_heads = 1, .dim = 16, .lengths = {40}}));
}

TEST(AttentionForward, WhatARowDoesNotSeeLeavesNoTrace) {
  expect_unseen_rows_leave_no_trace(
      make_inputs({.heads = 2, .kv_heads = 1, .dim = 24, .window = 50, .lengths = {300}}));
}

TEST(AttentionForward, GivesTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const int64_t window : {0, 70}) {
    expect_the_same_bits_packed_or_alone(make_inputs({.heads = 6,
                                                      .kv_heads = 2,
                                                      .dim = 16,
                                                      .window = window,
                                                      .lengths = {33, 1, 700, 64, 0, 1100, 17},
                                                      .cap = window > 0 ? 2.0 : 0.0}));
  }
}

TEST(AttentionForward, GivesTheSameBitsOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const double cap : {0.0, 2.0}) {
    Inputs in =
        make_inputs({.heads = 5, .kv_heads = 1, .dim = 21, .lengths = {600, 40}, .cap = cap});
    Machine machine;
    set_active_isa(Isa::kAvx2);
    const ForwardResult expected = forward(machine, in);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      const ForwardResult result = forward(machine, in);
      EXPECT_TRUE(result.dst.same_rows(0, expected.dst, 0, in.rows())) << isa_name(isa);
      EXPECT_TRUE(result.lse.same_rows(0, expected.lse, 0, in.rows())) << isa_name(isa);
    }
  }
  set_active_isa(before);
}

TEST(AttentionForward, LeavesRowsOutsideTheSequencesAlone) {
  Inputs in = make_inputs({.heads = 1, .dim = 8, .lengths = {10, 10, 10}});
  Machine machine;
  Matrix dst(DType::kF32, 30, 8);
  for (int64_t row = 0; row < 30; ++row) {
    for (int64_t c = 0; c < 8; ++c) dst.set(row, c, -7);
  }
  auto sequences = pack(in.lengths);
  sequences.erase(sequences.begin() + 1);
  attention_forward(*machine.stream,
                    {dst.view(), in.q.view(), in.k.view(), in.v.view(), {}, sequences, in.shape});
  for (int64_t row = 0; row < 30; ++row) EXPECT_EQ(dst.get(row, 0) == -7, row / 10 == 1) << row;
}

TEST(AttentionForward, ScratchDoesNotGrowWithTheSequence) {
  std::vector<int64_t> bytes;
  for (const int length : {128, 1024, 4096}) {
    Inputs in = make_inputs({.heads = 1, .dim = 8, .lengths = {length}});
    Machine machine;
    forward(machine, in);
    bytes.push_back(machine.device.scratch_bytes());
  }
  EXPECT_EQ(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[1], bytes[2]);
  EXPECT_LT(bytes[0], 256 * 1024);
}

TEST(AttentionForward, AcceptsABatchWithoutRows) {
  Inputs in = make_inputs({.heads = 2, .kv_heads = 1, .dim = 8, .lengths = {0, 0}});
  Machine machine(2);
  forward(machine, in);
  in.lengths = {};
  forward(machine, in);
}

TEST(AttentionSchedule, CoversEveryRowOnceAndCutsOnlyLongOnes) {
  const AttentionShape shape{8, 2, 16, 1.0, 0};
  std::vector<SequenceSpan> sequences = {
      {0, 1, 40000, nullptr}, {1, 1, 50, nullptr}, {2, 300, 20, nullptr}, {302, 0, 9, nullptr}};
  const AttentionSchedule schedule = make_attention_schedule(sequences, shape, {.thread_count = 4});
  ASSERT_EQ(schedule.merge.size(), 2u);  // the long one, for each key/value head
  for (const AttentionWork& work : schedule.merge) EXPECT_EQ(work.sequence, 0);
  std::vector<std::vector<int>> seen(4);
  for (size_t i = 0; i < 4; ++i) {
    seen[i].assign(static_cast<size_t>(sequences[i].row_count) * 8, 0);
  }
  for (const AttentionWork& work : schedule.attend) {
    if (work.partial_offset >= 0) continue;
    for (int r = 0; r < work.row_count; ++r) {
      ++seen[static_cast<size_t>(work.sequence)]
            [static_cast<size_t>((work.row_begin + r) * 2 + work.kv_head)];
    }
  }
  for (size_t i = 1; i < 4; ++i) {
    for (const int count : seen[i]) EXPECT_EQ(count, 1);
  }
  const int64_t split_count = 40000 / 512 + 1;
  EXPECT_EQ(schedule.partial_floats, 2 * split_count * cpu::attention_partial_floats(4, 16));
}

}  // namespace
}  // namespace jige::ops::attention_test

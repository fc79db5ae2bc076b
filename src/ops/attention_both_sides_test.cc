// Attention whose queries see keys behind them, too: against the definition in double precision on
// every instruction set, against the stated arithmetic, and bit for bit under packing and threads.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_schedule.h"
#include "ops/attention_tiles_model.h"

namespace jige::ops::attention_test {
namespace {

std::vector<InputOptions> odd_shapes() {
  return {{.heads = 1, .kv_heads = 1, .dim = 1, .lengths = {1, 2, 0, 63}},
          {.heads = 4, .kv_heads = 2, .dim = 17, .lengths = {64, 65, 1, 129}},
          {.heads = 3, .kv_heads = 3, .dim = 32, .window = 1, .lengths = {70, 1}},
          {.heads = 2, .kv_heads = 1, .dim = 24, .window = 2, .lengths = {130, 15, 16}},
          {.heads = 7, .kv_heads = 1, .dim = 8, .window = 17, .lengths = {33, 200}},
          {.heads = 2, .kv_heads = 2, .dim = 64, .window = 65, .lengths = {300}, .cap = 3},
          {.heads = 2, .kv_heads = 1, .dim = 12, .window = 500, .lengths = {30, 530}},
          {.heads = 1, .kv_heads = 1, .dim = 40, .window = 5000, .lengths = {7, 520}}};
}

// Of both sides, with scores by distance and without.
std::vector<InputOptions> all_shapes() {
  std::vector<InputOptions> all;
  for (InputOptions options : odd_shapes()) {
    options.both_sides = true;
    all.push_back(options);
    options.distances = true;
    if (options.cap == 0) all.push_back(options);
  }
  return all;
}

TEST(AttentionBothSides, MatchesTheDefinitionOnEveryInstructionSet) {
  for (const InputOptions& options : all_shapes()) {
    SCOPED_TRACE(options.dim);
    SCOPED_TRACE(options.distances);
    Inputs in = make_inputs(options);
    Inputs narrow = bf16_inputs(options);
    Definition definition(in), definition_of_narrow(narrow);
    on_all_isas([&] {
      expect_near_definition_in_f32(in, definition);
      if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) {
        return expect_near_definition_in_f32(narrow, definition_of_narrow);
      }
      Machine machine(2);
      const ForwardResult result = forward(machine, narrow);
      expect_near_definition_in_bf16(definition_of_narrow, result.dst, &result.lse);
    });
  }
}

TEST(AttentionBothSides, FollowsTheStatedArithmeticInBf16) {
  on_all_isas([] {
    if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) return;
    for (const int64_t window : {0, 90, -1}) {  // -1: with scores by distance
      Inputs in = bf16_inputs({.heads = 3,
                               .kv_heads = 1,
                               .dim = 24,
                               .window = std::max<int64_t>(window, 0),
                               .lengths = {9, 700},
                               .both_sides = true,
                               .distances = window < 0});
      Machine machine(2);
      const ForwardResult result = forward(machine, in);
      int64_t row = 0;
      for (const int length : in.lengths) {
        for (const int64_t i : {0, 8, 130, 423, 511, 512, 699}) {
          if (i >= length) continue;
          const TilesModel model = tiles_model(in, {row, length, i % 3}, i);
          EXPECT_FLOAT_EQ(result.lse.get(row + i, i % 3), model.lse) << i;
          for (int64_t c = 0; c < 24; ++c) {
            ASSERT_EQ(result.dst.get(row + i, i % 3 * 24 + c), model.dst[static_cast<size_t>(c)])
                << "row " << i << " column " << c;
          }
        }
        row += length;
      }
    }
  });
}

TEST(AttentionBothSides, GivesTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const int64_t window : {0, 70, -1}) {  // -1: with scores by distance
    const InputOptions options{.heads = 2,
                               .kv_heads = 1,
                               .dim = 16,
                               .window = std::max<int64_t>(window, 0),
                               .lengths = {33, 1, 600, 64, 0, 1100},
                               .both_sides = true,
                               .distances = window < 0};
    expect_the_same_bits_packed_or_alone(make_inputs(options));
    expect_the_same_bits_packed_or_alone(bf16_inputs(options));
  }
}

TEST(AttentionBothSides, WhatARowDoesNotSeeLeavesNoTrace) {
  const InputOptions options{
      .heads = 2, .kv_heads = 1, .dim = 24, .window = 50, .lengths = {300}, .both_sides = true};
  on_all_isas([&] {
    expect_unseen_rows_leave_no_trace(make_inputs(options));
    expect_unseen_rows_leave_no_trace(bf16_inputs(options));
  });
}

// A tile's cost and splits are those of the keys that its rows see.
TEST(AttentionBothSides, TheScheduleKnowsWhatLiesBehindATile) {
  const std::vector<SequenceSpan> sequences = {{0, 1100, 0, nullptr}};
  AttentionShape shape{.head_count = 1, .kv_head_count = 1, .head_dim = 8, .both_sides = true};
  for (const int64_t window : {int64_t{0}, int64_t{100}}) {
    shape.window = window;
    const AttentionSchedule schedule =
        make_attention_schedule(sequences, shape, {.thread_count = 1});
    for (const AttentionWork& work : schedule.attend) {
      const KeyRange first = seen_keys(shape, work.row_begin, 1100);
      const KeyRange last = seen_keys(shape, work.row_begin + work.row_count - 1, 1100);
      EXPECT_EQ(work.split_begin, first.begin / 512);
      EXPECT_EQ(work.split_end, (last.end + 511) / 512);
      EXPECT_EQ(work.cost, static_cast<double>((last.end - first.begin) * work.row_count));
    }
  }
}

TEST(AttentionBothSidesDeathTest, IsForForwardOverWholeSequencesAlone) {
  Inputs in = make_inputs({.heads = 1, .dim = 16, .lengths = {3}, .both_sides = true});
  Machine machine;
  ForwardResult result = forward(machine, in);
  Matrix grad_dst = make_grad_dst(in);
  EXPECT_DEATH(backward(machine, in, result, grad_dst), "what is behind them");
  Inputs distant = make_inputs({.heads = 1, .dim = 16, .lengths = {3}, .distances = true});
  EXPECT_DEATH(forward(machine, distant), "scores by distance");
}

}  // namespace
}  // namespace jige::ops::attention_test

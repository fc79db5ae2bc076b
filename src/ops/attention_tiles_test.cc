// Attention of bf16 on matrix tiles or in pairs: against the definition in double precision and
// against the arithmetic stated in kernels/cpu/attention.h, one row at a time; bit for bit under
// packing, threads, chunks and the ways to cut the work. Skipped where there are neither.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_tiles_model.h"

namespace jige::ops::attention_test {
namespace {

class AttentionTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) {
      GTEST_SKIP() << "no instructions for bf16";
    }
  }
};

void expect_near_definition(Inputs& in) {
  Machine machine(2);
  const ForwardResult result = forward(machine, in);
  Definition definition(in);
  expect_near_definition_in_bf16(definition, result.dst, &result.lse);
}

TEST_F(AttentionTiles, MatchTheDefinitionAtEveryHeadDimension) {
  for (const int64_t dim : {1, 5, 16, 17, 31, 32, 48, 64, 65, 80, 96, 128, 200, 256, 576}) {
    SCOPED_TRACE(dim);
    Inputs in = bf16_inputs({.heads = 4, .kv_heads = 2, .dim = dim, .lengths = {70, 1, 33}});
    expect_near_definition(in);
  }
}

TEST_F(AttentionTiles, MatchTheDefinitionAtEveryRatioOfHeads) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 1}, {8, 2}, {8, 1}, {100, 1}}) {
    SCOPED_TRACE(heads);
    Inputs in = bf16_inputs({.heads = heads, .kv_heads = kv_heads, .dim = 40, .lengths = {45, 20}});
    expect_near_definition(in);
  }
}

TEST_F(AttentionTiles, MatchTheDefinitionOverRaggedSequencesAndWindows) {
  for (const int64_t window : {0, 1, 15, 32, 33, 64, 127, 512, 600}) {
    SCOPED_TRACE(window);
    // The longest where the window does not hide that it is long.
    const int longest = window == 0 || window >= 512 ? 514 : 130;
    Inputs in = bf16_inputs({.heads = 2,
                             .kv_heads = 1,
                             .dim = window % 2 == 0 ? 16 : 72,
                             .window = window,
                             .lengths = {1, 15, 16, 17, 0, 63, 65, 127, 129, longest}});
    expect_near_definition(in);
  }
}

TEST_F(AttentionTiles, MatchTheDefinitionUnderACap) {
  for (const double cap : {0.5, 3.0, 50.0}) {
    for (const int64_t dim : {1, 17, 32, 80, 256, 576}) {
      SCOPED_TRACE(dim);
      Inputs in = bf16_inputs({.heads = 4,
                               .kv_heads = 2,
                               .dim = dim,
                               .window = dim == 80 ? 33 : 0,
                               .lengths = {70, 1, 33, 0, 130},
                               .cap = cap});
      expect_near_definition(in);
    }
  }
}

void expect_the_stated_arithmetic() {
  for (const int64_t dim : {24, 64, 80}) {
    for (const int64_t window : {0, 90}) {
      Inputs in = bf16_inputs({.heads = 3,
                               .kv_heads = 1,
                               .dim = dim,
                               .window = window,
                               .lengths = {9, 700},
                               .cap = dim == 64 ? 2.0 : 0.0});
      Machine machine(2);
      const ForwardResult result = forward(machine, in);
      int64_t row = 0;
      for (const int length : in.lengths) {
        for (const int64_t i : {0, 8, 130, 511, 512, 699}) {
          if (i >= length) continue;
          const TilesModel model = tiles_model(in, {row, length, i % 3}, i);
          EXPECT_FLOAT_EQ(result.lse.get(row + i, i % 3), model.lse) << i;
          for (int64_t c = 0; c < dim; ++c) {
            ASSERT_EQ(result.dst.get(row + i, i % 3 * dim + c), model.dst[static_cast<size_t>(c)])
                << "row " << i << " column " << c;
          }
        }
        row += length;
      }
    }
  }
}

TEST_F(AttentionTiles, FollowTheStatedArithmetic) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) continue;
    SCOPED_TRACE(isa_name(isa));
    expect_the_stated_arithmetic();
  }
  set_active_isa(before);
}

TEST_F(AttentionTiles, LargeScoresDoNotOverflow) {
  expect_large_scores_do_not_overflow(bf16_inputs({.heads = 1, .dim = 16, .lengths = {600}}));
}

TEST_F(AttentionTiles, ANotANumberQueryStaysOne) {
  expect_a_not_a_number_query_stays_one(
      bf16_inputs({.heads = 2, .kv_heads = 1, .dim = 16, .lengths = {40}}));
}

TEST_F(AttentionTiles, WhatARowDoesNotSeeLeavesNoTrace) {
  expect_unseen_rows_leave_no_trace(
      bf16_inputs({.heads = 2, .kv_heads = 1, .dim = 24, .window = 50, .lengths = {300}}));
}

TEST_F(AttentionTiles, GiveTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const int64_t window : {0, 70}) {
    expect_the_same_bits_packed_or_alone(bf16_inputs({.heads = 6,
                                                      .kv_heads = 2,
                                                      .dim = 48,
                                                      .window = window,
                                                      .lengths = {33, 1, 700, 64, 0, 1100, 17},
                                                      .cap = window > 0 ? 2.0 : 0.0}));
  }
}

TEST_F(AttentionTiles, GiveTheBitsOfFlatAttentionOverACacheInAnyChunks) {
  Rng rng(derive_key(20, "chunks"));
  const std::vector<InputOptions> cases = {
      {.heads = 1, .kv_heads = 1, .dim = 16, .lengths = {70, 5}},
      {.heads = 4, .kv_heads = 2, .dim = 64, .lengths = {130, 1, 16, 33}},
      {.heads = 6, .kv_heads = 2, .dim = 5, .lengths = {65, 20}},
      {.heads = 10, .kv_heads = 1, .dim = 24, .window = 37, .lengths = {150, 64}},
      {.heads = 2, .kv_heads = 2, .dim = 17, .window = 16, .lengths = {90}},
      {.heads = 3, .kv_heads = 1, .dim = 80, .lengths = {200}},
      {.heads = 3, .kv_heads = 1, .dim = 32, .lengths = {90}},
      {.heads = 5, .kv_heads = 1, .dim = 64, .lengths = {90}},
      {.heads = 14, .kv_heads = 2, .dim = 96, .window = 40, .lengths = {90}},
      {.heads = 8, .kv_heads = 1, .dim = 64, .lengths = {90}},
      {.heads = 2, .kv_heads = 2, .dim = 128, .window = 40, .lengths = {90}},
      {.heads = 2, .kv_heads = 1, .dim = 224, .lengths = {90}},
      {.heads = 3, .kv_heads = 1, .dim = 160, .lengths = {90}},
      {.heads = 4, .kv_heads = 2, .dim = 96, .window = 40, .lengths = {130, 33}, .cap = 2},
      {.heads = 6, .kv_heads = 2, .dim = 17, .lengths = {100, 5}, .cap = 2},
      {.heads = 8, .kv_heads = 1, .dim = 16, .window = 600, .lengths = {1300, 30}}};
  for (const InputOptions& options : cases) {
    SCOPED_TRACE(options.dim);
    Inputs in = bf16_inputs(options);
    expect_the_same_bits_in_random_chunks(in, DType::kBF16, DType::kBF16, rng);
    if (options.lengths[0] > 1000) continue;
    Machine machine(2);
    const Matrix expected = forward(machine, in, DType::kBF16).dst;
    Cache cache(DType::kBF16, in.shape, in.lengths, 6);
    const Matrix dst =
        run_in_chunks(machine, in, cache, DType::kBF16, [](size_t, int) { return 1; });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << "token by token";
  }
}

TEST_F(AttentionTiles, DecodeAmongPromptsGivesTheBitsOfFlatAttention) {
  expect_the_same_bits_of_decodes_among_prompts(
      bf16_inputs({.heads = 4, .kv_heads = 2, .dim = 32, .lengths = {1100, 40, 2000, 300}}),
      DType::kBF16);
}

TEST_F(AttentionTiles, BlocksBeforeTheWindowMayBeGone) {
  expect_blocks_before_the_window_may_be_gone(
      bf16_inputs({.heads = 2, .kv_heads = 1, .dim = 32, .window = 100, .lengths = {1200}}),
      DType::kBF16);
}

TEST_F(AttentionTiles, AreLeftAloneByWeakerInstructionSetsAndOtherTypes) {
  EXPECT_EQ(cpu::attention_products(false, 1.0f), cpu::AttentionProducts::kChains);
  EXPECT_EQ(cpu::attention_products(true, 0.0f), cpu::AttentionProducts::kChains);
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    EXPECT_EQ(cpu::attention_products(true, 1.0f), isa == Isa::kAmx ? cpu::AttentionProducts::kTiles
                                                   : isa == Isa::kAvx512Bf16
                                                       ? cpu::AttentionProducts::kPairs
                                                       : cpu::AttentionProducts::kChains);
  }
  set_active_isa(before);
}

}  // namespace
}  // namespace jige::ops::attention_test

// Attention of bf16 on matrix tiles: against the definition in double precision and against the
// arithmetic stated in kernels/cpu/attention.h, one row at a time; bit for bit under packing,
// threads, chunks and the ways to cut the work. Skipped where there are no tiles.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention_cache_test_support.h"
#include "ops/attention_tiles_model.h"

namespace jige::ops::attention_test {
namespace {

class AttentionTiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::attention_on_tiles(true, 1.0f)) GTEST_SKIP() << "no matrix tiles";
  }
};

// Every weight is off by up to 2^-8 of itself by its rounding, and by 3e-6 by the exponential.
void expect_near_definition(Inputs& in) {
  Machine machine(2);
  const ForwardResult result = forward(machine, in);
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle o = oracle_forward(in, {row, length, head});
      const int64_t kv_head = head / (in.shape.head_count / in.shape.kv_head_count);
      for (int64_t i = 0; i < length; ++i) {
        ASSERT_NEAR(result.lse.get(row + i, head), o.lse[static_cast<size_t>(i)], 2e-5)
            << "row " << row + i << " head " << head;
        std::vector<double> magnitudes(static_cast<size_t>(o.dim), 0.0);
        for (int64_t j = 0; j <= i; ++j) {
          const double weight = o.weights[static_cast<size_t>(i * length + j)];
          if (weight == 0) continue;
          for (int64_t c = 0; c < o.dim; ++c) {
            magnitudes[static_cast<size_t>(c)] +=
                weight * std::abs(in.v.get(row + j, kv_head * o.dim + c));
          }
        }
        for (int64_t c = 0; c < o.dim; ++c) {
          ASSERT_NEAR(result.dst.get(row + i, head * o.dim + c),
                      o.dst[static_cast<size_t>(i * o.dim + c)],
                      magnitudes[static_cast<size_t>(c)] * 0x1.02p-8 + 1e-6)
              << "row " << row + i << " head " << head << " column " << c;
        }
      }
    }
    row += length;
  }
}

TEST_F(AttentionTiles, MatchTheDefinitionAtEveryHeadDimension) {
  for (const int64_t dim : {1, 5, 16, 17, 31, 32, 48, 64, 65, 80, 96, 128, 200, 256}) {
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

TEST_F(AttentionTiles, FollowTheStatedArithmetic) {
  for (const int64_t dim : {24, 64, 80}) {
    for (const int64_t window : {0, 90}) {
      Inputs in = bf16_inputs(
          {.heads = 3, .kv_heads = 1, .dim = dim, .window = window, .lengths = {9, 700}});
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

TEST_F(AttentionTiles, LargeScoresDoNotOverflow) {
  Inputs in = bf16_inputs({.heads = 1, .dim = 16, .lengths = {600}});
  in.shape.scale = 100;
  Machine machine;
  const ForwardResult result = forward(machine, in);
  const Oracle o = oracle_forward(in, {0, 600, 0});
  for (int64_t i = 0; i < 600; ++i) {
    for (int64_t c = 0; c < 16; ++c) {
      EXPECT_NEAR(result.dst.get(i, c), o.dst[static_cast<size_t>(i * 16 + c)], 2e-2);
    }
  }
}

TEST_F(AttentionTiles, ANotANumberQueryStaysOne) {
  Inputs in = bf16_inputs({.heads = 2, .kv_heads = 1, .dim = 16, .lengths = {40}});
  in.q.set(7, 3, std::nanf(""));
  Machine machine;
  const ForwardResult result = forward(machine, in);
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t c = 0; c < 32; ++c) {
      EXPECT_EQ(std::isnan(result.dst.get(row, c)), row == 7 && c < 16);
    }
  }
}

TEST_F(AttentionTiles, WhatARowDoesNotSeeLeavesNoTrace) {
  const int64_t window = 50;
  Inputs in =
      bf16_inputs({.heads = 2, .kv_heads = 1, .dim = 24, .window = window, .lengths = {300}});
  Machine machine;
  const ForwardResult expected = forward(machine, in);
  for (const int64_t row : {0, 5, 15, 63, 64, 100, 299}) {
    Inputs other = in;
    for (int64_t j = 0; j < 300; ++j) {
      if (j <= row && j > row - window) continue;
      for (int64_t c = 0; c < 24; ++c) {
        other.k.set(j, c, std::nanf(""));
        other.v.set(j, c, c % 2 ? std::nanf("") : INFINITY);
      }
      for (int64_t c = 0; c < 48; ++c) other.q.set(j, c, std::nanf(""));
    }
    const ForwardResult result = forward(machine, other);
    EXPECT_TRUE(result.dst.same_rows(row, expected.dst, row, 1)) << row;
    EXPECT_TRUE(result.lse.same_rows(row, expected.lse, row, 1)) << row;
  }
}

TEST_F(AttentionTiles, GiveTheSameBitsPackedOrAloneOnAnyNumberOfThreads) {
  for (const int64_t window : {0, 70}) {
    Inputs in = bf16_inputs({.heads = 6,
                             .kv_heads = 2,
                             .dim = 48,
                             .window = window,
                             .lengths = {33, 1, 700, 64, 0, 1100, 17}});
    Machine one;
    const ForwardResult expected = forward(one, in);
    for (const int threads : {2, 3}) {
      Machine machine(threads, true);
      const ForwardResult result = forward(machine, in);
      EXPECT_TRUE(result.dst.same_rows(0, expected.dst, 0, in.rows())) << threads;
      EXPECT_TRUE(result.lse.same_rows(0, expected.lse, 0, in.rows())) << threads;
    }
    int64_t row = 0;
    for (const int length : in.lengths) {
      Inputs alone = in;
      alone.lengths = {length};
      alone.q = in.q.rows_copy(row, length);
      alone.k = in.k.rows_copy(row, length);
      alone.v = in.v.rows_copy(row, length);
      Machine machine(3);
      const ForwardResult result = forward(machine, alone);
      EXPECT_TRUE(result.dst.same_rows(0, expected.dst, row, length)) << length;
      EXPECT_TRUE(result.lse.same_rows(0, expected.lse, row, length)) << length;
      row += length;
    }
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
      {.heads = 8, .kv_heads = 1, .dim = 16, .window = 600, .lengths = {1300, 30}}};
  for (const InputOptions& options : cases) {
    SCOPED_TRACE(options.dim);
    Inputs in = bf16_inputs(options);
    Machine flat_machine;
    const Matrix expected = forward(flat_machine, in, DType::kBF16).dst;
    for (const int threads : {1, 2, 3}) {
      Machine machine(threads, threads == 3);
      Cache cache(DType::kBF16, in.shape, in.lengths, 5);
      const Matrix dst = run_in_chunks(machine, in, cache, DType::kBF16, [&](size_t, int) {
        return static_cast<int>(rng.below(4) == 0 ? 1 + rng.below(100) : rng.below(30));
      });
      EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << threads << " threads";
    }
    if (options.lengths[0] > 1000) continue;
    Machine machine(2);
    Cache cache(DType::kBF16, in.shape, in.lengths, 6);
    const Matrix dst =
        run_in_chunks(machine, in, cache, DType::kBF16, [](size_t, int) { return 1; });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << "token by token";
  }
}

TEST_F(AttentionTiles, DecodeAmongPromptsGivesTheBitsOfFlatAttention) {
  Inputs in = bf16_inputs({.heads = 4, .kv_heads = 2, .dim = 32, .lengths = {1100, 40, 2000, 300}});
  Machine flat_machine;
  const Matrix expected = forward(flat_machine, in).dst;
  for (const int threads : {1, 2, 3}) {
    Machine machine(threads);
    Cache cache(DType::kBF16, in.shape, in.lengths, 8);
    const Matrix dst = run_in_chunks(machine, in, cache, DType::kF32, [&](size_t i, int done) {
      return in.lengths[i] - done <= 6 ? 1 : std::min(500, in.lengths[i] - 6 - done);
    });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << threads;
  }
}

TEST_F(AttentionTiles, BlocksBeforeTheWindowMayBeGone) {
  const int window = 100;
  Inputs in =
      bf16_inputs({.heads = 2, .kv_heads = 1, .dim = 32, .window = window, .lengths = {1200}});
  Machine machine(2);
  Cache cache(DType::kBF16, in.shape, in.lengths, 10);
  Machine flat_machine;
  const Matrix expected = forward(flat_machine, in).dst;
  const Matrix dst = run_in_chunks(machine, in, cache, DType::kF32, [&](size_t, int done) {
    for (int i = 0; (i + 1) * 16 <= done - window + 1; ++i) {
      int32_t& block = cache.blocks(0)[static_cast<size_t>(i)];
      if (block >= 0) cache.ruin(block);
      block = -1;
    }
    return done < 1150 ? 77 : 1;
  });
  EXPECT_TRUE(dst.same_rows(0, expected, 0, 1200));
}

TEST_F(AttentionTiles, AreLeftAloneByWeakerInstructionSetsAndOtherTypes) {
  EXPECT_FALSE(cpu::attention_on_tiles(false, 1.0f));
  EXPECT_FALSE(cpu::attention_on_tiles(true, 0.0f));
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    EXPECT_EQ(cpu::attention_on_tiles(true, 1.0f), isa == Isa::kAmx);
  }
  set_active_isa(before);
}

}  // namespace
}  // namespace jige::ops::attention_test

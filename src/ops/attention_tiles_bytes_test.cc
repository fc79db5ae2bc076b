// Attention of queries in bf16 over a cache in 8 bits, on matrix tiles or in pairs: against the
// definition in double precision over what the cache stands for, against the arithmetic stated in
// kernels/cpu/attention.h, and bit for bit under chunks. Skipped where there are neither.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_tiles_model.h"

namespace jige::ops::attention_test {
namespace {

class AttentionTiles8Bits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) {
      GTEST_SKIP() << "no instructions for bf16";
    }
  }
};

// All but the last tokens of a sequence in one piece, those one by one: few rows where heads allow.
Matrix prompt_and_decodes(Inputs& in, int decodes) {
  Machine machine(2);
  Cache cache(DType::kI8, in.shape, in.lengths, 4);
  return run_in_chunks(machine, in, cache, DType::kF32, [&](size_t i, int done) {
    return std::max(1, in.lengths[i] - decodes - done);
  });
}

void expect_near_what_the_cache_stands_for(const InputOptions& options) {
  Inputs in = bf16_inputs(options);
  const Matrix dst = prompt_and_decodes(in, 3);
  in.k = rounded(in.k, in.shape.head_dim);
  in.v = rounded(in.v, in.shape.head_dim);
  Definition definition(in);
  expect_near_definition_in_bf16(definition, dst, nullptr);
}

TEST_F(AttentionTiles8Bits, MatchTheDefinitionAtEveryHeadDimension) {
  for (const int64_t dim : {1, 17, 31, 32, 48, 64, 65, 96, 128, 224, 576}) {
    SCOPED_TRACE(dim);
    expect_near_what_the_cache_stands_for(
        {.heads = 4, .kv_heads = 2, .dim = dim, .lengths = {70, 1, 17}});
  }
}

TEST_F(AttentionTiles8Bits, ComeNearTheDefinitionAtEveryRatioOfHeads) {
  for (const int64_t heads : {1, 2, 3, 4, 5, 8, 9, 17}) {
    SCOPED_TRACE(heads);
    expect_near_what_the_cache_stands_for(
        {.heads = heads, .kv_heads = 1, .dim = 96, .lengths = {45, 20}});
  }
}

TEST_F(AttentionTiles8Bits, ComeNearTheDefinitionUnderWindowsAndCaps) {
  for (const int64_t window : {1, 15, 33, 64, 127, 512}) {
    SCOPED_TRACE(window);
    const int longest = window == 512 ? 530 : 140;
    expect_near_what_the_cache_stands_for({.heads = 2,
                                           .kv_heads = 1,
                                           .dim = window % 2 == 0 ? 32 : 72,
                                           .window = window,
                                           .lengths = {1, 15, 16, 17, 0, 63, 65, longest},
                                           .cap = window % 3 == 0 ? 2.0 : 0.0});
  }
}

// The whole numbers of keys or values, and their scales.
struct Parts {
  Matrix numbers, scales;
};
Parts parts_of(const Matrix& from, int64_t dim) {
  const int64_t heads = from.columns() / dim;
  Parts parts{Matrix(DType::kF32, from.rows(), from.columns()),
              Matrix(DType::kF32, from.rows(), heads)};
  for (int64_t row = 0; row < from.rows(); ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const PlainRow plain = plain_row(row_of_head(from, row, head, dim));
      parts.scales.set(row, head, plain.scale);
      for (int64_t c = 0; c < dim; ++c) {
        parts.numbers.set(row, head * dim + c,
                          static_cast<float>(plain.numbers[static_cast<size_t>(c)]));
      }
    }
  }
  return parts;
}

void expect_the_stated_arithmetic_of_8_bits(const InputOptions& options) {
  Inputs in = bf16_inputs(options);
  const Matrix dst = prompt_and_decodes(in, 3);
  const int64_t dim = in.shape.head_dim;
  Parts keys = parts_of(in.k, dim);
  Parts values = parts_of(in.v, dim);
  in.k = std::move(keys.numbers);
  in.v = std::move(values.numbers);
  const TilesScales scales{std::move(keys.scales), std::move(values.scales)};
  const int64_t length = in.lengths[0];
  for (const int64_t i : {int64_t{0}, int64_t{8}, int64_t{130}, int64_t{511}, length - 1}) {
    const int64_t head = i % options.heads;
    const TilesModel model = tiles_model(in, {0, length, head}, i, &scales);
    for (int64_t c = 0; c < dim; ++c) {
      ASSERT_EQ(dst.get(i, head * dim + c), model.dst[static_cast<size_t>(c)])
          << "row " << i << " column " << c;
    }
  }
}

TEST_F(AttentionTiles8Bits, FollowTheStatedArithmetic) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kChains) continue;
    SCOPED_TRACE(isa_name(isa));
    for (const int64_t dim : {24, 64}) {
      for (const int64_t window : {0, 90}) {
        SCOPED_TRACE(dim);
        expect_the_stated_arithmetic_of_8_bits({.heads = 3,
                                                .kv_heads = 1,
                                                .dim = dim,
                                                .window = window,
                                                .lengths = {530},
                                                .cap = dim == 64 ? 2.0 : 0.0});
      }
    }
  }
  set_active_isa(before);
}

TEST_F(AttentionTiles8Bits, GiveTheSameBitsInAnyChunksAtEveryNumberOfFewRows) {
  Rng rng(derive_key(22, "chunks"));
  for (const int64_t heads : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    SCOPED_TRACE(heads);
    Inputs in = bf16_inputs({.heads = heads,
                             .kv_heads = 1,
                             .dim = heads % 3 == 0 ? 96 : 64,
                             .window = heads == 2 ? 50 : 0,
                             .lengths = {150, 33}});
    expect_the_same_bits_in_random_chunks(in, DType::kI8, DType::kBF16, rng);
  }
}

// A key or a value that is not finite has the scale NaN: what sees it shows it, nothing else does.
TEST_F(AttentionTiles8Bits, WhatIsNotFiniteShowsWhereItIsSeenAndNowhereElse) {
  constexpr int kBad = 70;
  for (const int64_t heads : {2, 6}) {
    Inputs in =
        bf16_inputs({.heads = heads, .kv_heads = 1, .dim = 32, .window = 40, .lengths = {200}});
    for (const int decodes : {0, 199}) {
      const Matrix expected = prompt_and_decodes(in, decodes);
      for (const bool of_keys : {true, false}) {
        Inputs bad = in;
        (of_keys ? bad.k : bad.v).set(kBad, 5, INFINITY);
        const Matrix dst = prompt_and_decodes(bad, decodes);
        for (int64_t row = 0; row < 200; ++row) {
          const bool sees = row >= kBad && row < kBad + 40;
          EXPECT_EQ(std::isnan(dst.get(row, 0)), sees) << row;
          EXPECT_NE(dst.same_rows(row, expected, row, 1), sees) << row;
        }
      }
    }
  }
}

// Windows begin in any block of a step of 32 keys, of which others may be gone.
TEST_F(AttentionTiles8Bits, WhatTheScratchHeldLeavesNoTrace) {
  for (const int64_t heads : {2, 6}) {
    Inputs in =
        bf16_inputs({.heads = heads, .kv_heads = 1, .dim = 32, .window = 20, .lengths = {140}});
    const Matrix expected = expected_of_cache(in, DType::kI8);
    Machine machine;
    Cache cache(DType::kI8, in.shape, in.lengths, 5);
    const int64_t bytes = cpu::attention_scratch_bytes(32);
    const Matrix dst = run_in_chunks(machine, in, cache, DType::kF32, [&](size_t, int done) {
      std::memset(machine.device.scratch(0, bytes), 0xff, static_cast<size_t>(bytes));
      return done < 100 ? 7 : 1;
    });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << heads;
  }
}

}  // namespace
}  // namespace jige::ops::attention_test

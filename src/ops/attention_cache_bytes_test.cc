// The key/value cache in 8 bits: what is written is what the definition says, and attention over it
// has the same bits however a prompt is cut into chunks.
#include <gtest/gtest.h>

#include "base/cpu.h"
#include "kernels/cpu/attention.h"
#include "ops/attention.h"
#include "ops/attention_properties_test_support.h"

namespace jige::ops::attention_test {
namespace {

// One token of one head as the cache has it.
struct Slot {
  PlainRow k, v;
};

Slot read_slot(Cache& cache, int64_t token, int64_t head) {
  const KvCacheView& view = cache.view();
  const int64_t dim = view.head_dim;
  const int64_t block = cache.blocks(0)[static_cast<size_t>(token / 16)];
  const auto* bytes =
      static_cast<const int8_t*>(view.data) + (block * view.kv_head_count + head) * 32 * (dim + 2);
  const auto* scales = reinterpret_cast<const BFloat16*>(bytes + 32 * dim);
  const int64_t slot = token % 16;
  Slot found{{to_float(scales[slot]), {}}, {to_float(scales[16 + slot]), {}}};
  for (int64_t c = 0; c < dim; ++c) {
    found.k.numbers.push_back(bytes[c * 16 + slot]);
    found.v.numbers.push_back(bytes[16 * dim + slot * dim + c]);
  }
  return found;
}

void expect_row(const PlainRow& found, const std::vector<float>& row) {
  const PlainRow expected = plain_row(row);
  EXPECT_EQ(found.scale, expected.scale);
  EXPECT_EQ(found.numbers, expected.numbers);
  for (size_t c = 0; c < row.size(); ++c) {
    EXPECT_LE(std::abs(row[c] - found.scale * static_cast<float>(found.numbers[c])),
              found.scale * 0.500001f);
  }
}

// Appends 40 tokens in pieces and looks at every slot of their three blocks.
void expect_rows_in_8_bits(DType from, int64_t dim) {
  Inputs in =
      make_inputs({.heads = 2, .kv_heads = 2, .dim = dim, .lengths = {40}, .kv_dtype = from});
  for (int64_t c = 0; c < dim; ++c) {
    in.k.set(4, c, 0.0f);
    in.k.set(5, c, in.k.get(5, c) * 1e-38f);  // scales below the normal range
    in.v.set(6, c, in.v.get(6, c) * 1e37f);
  }
  Cache cache(DType::kI8, in.shape, in.lengths, 3);
  Machine machine(2);
  int done = 0;
  for (const int count : {3, 1, 12, 19, 5}) {  // starts and ends inside blocks, one whole
    kv_append(*machine.stream, cache.view(), in.k.view().row_range(done, done + count),
              in.v.view().row_range(done, done + count),
              {{0, count, done, cache.blocks(0).data()}});
    done += count;
  }
  for (int64_t token = 0; token < 48; ++token) {
    for (int64_t head = 0; head < 2; ++head) {
      SCOPED_TRACE(token);
      const Slot slot = read_slot(cache, token, head);
      if (token < 40) {
        expect_row(slot.k, row_of_head(in.k, token, head, dim));
        expect_row(slot.v, row_of_head(in.v, token, head, dim));
        continue;
      }
      const std::vector<int> untouched(static_cast<size_t>(dim), -1);
      EXPECT_TRUE(std::isnan(slot.k.scale) && std::isnan(slot.v.scale));
      EXPECT_EQ(slot.k.numbers, untouched);
      EXPECT_EQ(slot.v.numbers, untouched);
    }
  }
}

TEST(KvAppend8Bits, WritesWhatTheDefinitionSaysOnEveryInstructionSet) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const DType from : {DType::kF32, DType::kBF16}) {
      for (const int64_t dim : {1, 3, 16, 21, 48, 256, 576}) {
        SCOPED_TRACE(dim);
        expect_rows_in_8_bits(from, dim);
      }
    }
  }
  set_active_isa(before);
}

TEST(KvAppend8Bits, WhatIsNotFiniteHasTheScaleNan) {
  for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    Inputs in = make_inputs({.heads = 1, .kv_heads = 1, .dim = 20, .lengths = {3}});
    in.k.set(1, 17, bad);
    in.v.set(2, 3, bad);
    Cache cache(DType::kI8, in.shape, in.lengths, 3);
    Machine machine;
    kv_append(*machine.stream, cache.view(), in.k.view(), in.v.view(),
              {{0, 3, 0, cache.blocks(0).data()}});
    for (int64_t token = 0; token < 3; ++token) {
      const Slot slot = read_slot(cache, token, 0);
      EXPECT_EQ(std::isnan(slot.k.scale), token == 1);
      EXPECT_EQ(std::isnan(slot.v.scale), token == 2);
    }
  }
}

TEST(KvCacheBytes, Of8BitsAreANumberEachAndTwoScalesATokenAndHead) {
  EXPECT_EQ(kv_cache_bytes(DType::kI8, 1, 1, 64), 16 * 2 * (64 + 2));
  EXPECT_EQ(kv_cache_bytes(DType::kI8, 10, 3, 128), 10 * 3 * 16 * 2 * (128 + 2));
  EXPECT_EQ(kv_cache_bytes(DType::kI8, 7, 5, 1), 7 * 5 * 16 * 2 * 3);
}

std::vector<InputOptions> cases() {
  std::vector<InputOptions> all = {
      {.heads = 1, .kv_heads = 1, .dim = 16, .lengths = {70, 5}},
      {.heads = 4, .kv_heads = 2, .dim = 32, .lengths = {130, 1, 16, 33}},
      {.heads = 6, .kv_heads = 2, .dim = 5, .lengths = {65, 20}},
      {.heads = 10, .kv_heads = 1, .dim = 24, .window = 37, .lengths = {150, 64}},
      {.heads = 2, .kv_heads = 2, .dim = 17, .window = 16, .lengths = {90}},
      {.heads = 7, .kv_heads = 1, .dim = 64, .lengths = {140, 7}},
      {.heads = 6, .kv_heads = 2, .dim = 32, .window = 37, .lengths = {130, 1, 33}, .cap = 2},
      {.heads = 4, .kv_heads = 2, .dim = 19, .lengths = {90, 20}, .cap = 2},
      {.heads = 2, .kv_heads = 1, .dim = 16, .window = 600, .lengths = {1300, 30}}};
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    all.push_back(all[i]);
    all.back().q_dtype = all.back().kv_dtype = DType::kBF16;
  }
  return all;
}

// Attention in double over what the cache stands for.
void expect_definition(Inputs in, const Matrix& dst) {
  in.k = rounded(in.k, in.shape.head_dim);
  in.v = rounded(in.v, in.shape.head_dim);
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < in.shape.head_count; ++head) {
      const Oracle o = oracle_forward(in, {row, length, head});
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t c = 0; c < o.dim; ++c) {
          ASSERT_NEAR(dst.get(row + i, head * o.dim + c), o.dst[static_cast<size_t>(i * o.dim + c)],
                      2e-5);
        }
      }
    }
    row += length;
  }
}

// Every case has sinks in one type, in turn.
TEST(AttentionCached8Bits, MatchesTheDefinitionOnEveryInstructionSetWithTheSameBits) {
  const Isa before = active_isa();
  size_t turn = 0;
  for (const InputOptions& options : cases()) {
    const bool all_bf16 = options.q_dtype == DType::kBF16;
    const bool with_sinks = (turn++ % (cases().size() / 2) % 2 == 0) == all_bf16;
    Inputs in = make_inputs(options);
    std::vector<float> sinks;
    for (int64_t i = 0; i < options.heads; ++i) sinks.push_back(0.5f * static_cast<float>(i));
    if (with_sinks) in.shape.sinks = sinks.data();
    set_active_isa(Isa::kAvx2);
    const Matrix expected = expected_of_cache(in, DType::kI8);
    expect_definition(in, expected);
    for (const Isa isa : supported_isas()) {
      set_active_isa(isa);
      // Products of bf16 have bits of their own: attention_tiles_bytes_test.cc.
      if (cpu::attention_products(all_bf16, 1.0f) != cpu::AttentionProducts::kChains) continue;
      EXPECT_TRUE(expected_of_cache(in, DType::kI8).same_rows(0, expected, 0, in.rows()))
          << isa_name(isa);
    }
  }
  set_active_isa(before);
}

// Cases have results of f32 and bf16 in turn.
TEST(AttentionCached8Bits, GivesTheSameBitsInAnyChunksAndBlocks) {
  Rng rng(derive_key(21, "chunks"));
  bool narrow = false;
  for (const InputOptions& options : cases()) {
    SCOPED_TRACE(options.dim);
    narrow = !narrow;
    expect_the_same_bits_in_random_chunks(make_inputs(options), DType::kI8,
                                          narrow ? DType::kBF16 : DType::kF32, rng);
  }
}

TEST(AttentionCached8Bits, ASequenceHasTheBitsOfBeingAlone) {
  for (const InputOptions& options : cases()) {
    Inputs in = make_inputs(options);
    const Matrix expected = expected_of_cache(in, DType::kI8);
    int64_t row = 0;
    for (const int length : in.lengths) {
      Inputs alone = one_sequence(in, row, length);
      EXPECT_TRUE(expected_of_cache(alone, DType::kI8).same_rows(0, expected, row, length));
      row += length;
    }
  }
}

TEST(AttentionCached8Bits, DecodesAmongPromptsGiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    expect_the_same_bits_of_decodes_among_prompts(make_inputs({.heads = 4,
                                                               .kv_heads = 2,
                                                               .dim = 16,
                                                               .lengths = {1100, 40, 1300, 300},
                                                               .q_dtype = dtype,
                                                               .kv_dtype = dtype}),
                                                  DType::kI8);
  }
}

TEST(AttentionCached8Bits, BlocksBeforeTheWindowMayBeGone) {
  expect_blocks_before_the_window_may_be_gone(
      make_inputs({.heads = 2, .kv_heads = 1, .dim = 16, .window = 100, .lengths = {1200}}),
      DType::kI8);
}

}  // namespace
}  // namespace jige::ops::attention_test

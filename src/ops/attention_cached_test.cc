// Attention over the paged cache: bit for bit what flat attention gives, however a prompt is cut
// into chunks and whatever unused parts of the cache hold.
#include <gtest/gtest.h>

#include "base/cpu.h"
#include "ops/attention.h"
#include "ops/attention_properties_test_support.h"
#include "ops/attention_schedule.h"

namespace jige::ops::attention_test {
namespace {

// Appends 40 tokens in pieces and looks at every slot of their three blocks.
void expect_keys_in_columns(DType from, DType to, int64_t dim) {
  Inputs in =
      make_inputs({.heads = 2, .kv_heads = 2, .dim = dim, .lengths = {40}, .kv_dtype = from});
  Cache cache(to, in.shape, in.lengths, 3);
  Machine machine(2);
  int done = 0;
  for (const int count : {3, 1, 12, 19, 5}) {  // starts and ends inside blocks, one whole
    kv_append(*machine.stream, cache.view(), in.k.view().row_range(done, done + count),
              in.v.view().row_range(done, done + count),
              {{0, count, done, cache.blocks(0).data()}});
    done += count;
  }
  const auto rounded = [to](float x) { return to == DType::kF32 ? x : to_float(to_bfloat16(x)); };
  for (int64_t token = 0; token < 48; ++token) {
    for (int64_t head = 0; head < 2; ++head) {
      const int64_t base =
          (cache.blocks(0)[static_cast<size_t>(token / 16)] * 2 + head) * 2 * 16 * dim;
      for (int64_t c = 0; c < dim; ++c) {
        const float k = cache.at(base + c * 16 + token % 16);
        const float v = cache.at(base + 16 * dim + token % 16 * dim + c);
        if (token >= 40) {
          EXPECT_TRUE(std::isnan(k) && std::isnan(v));
          continue;
        }
        EXPECT_EQ(k, rounded(in.k.get(token, head * dim + c)));
        EXPECT_EQ(v, rounded(in.v.get(token, head * dim + c)));
      }
    }
  }
}

TEST(KvAppend, PutsKeysInColumnsAndValuesInRows) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    for (const DType from : {DType::kF32, DType::kBF16}) {
      for (const DType to : {DType::kF32, DType::kBF16}) {
        for (const int64_t dim : {3, 16, 21, 48}) expect_keys_in_columns(from, to, dim);
      }
    }
  }
  set_active_isa(before);
}

// Caches have the type of the keys and values.
std::vector<InputOptions> cached_cases() {
  std::vector<InputOptions> cases;
  const auto add = [&](InputOptions options) {
    cases.push_back(options);
    options.kv_dtype = DType::kBF16;
    cases.push_back(options);
  };
  add({.heads = 1, .kv_heads = 1, .dim = 16, .lengths = {70, 5}});
  add({.heads = 4, .kv_heads = 2, .dim = 32, .lengths = {130, 1, 16, 33}});
  add({.heads = 6, .kv_heads = 2, .dim = 5, .lengths = {65, 20}});
  add({.heads = 10, .kv_heads = 1, .dim = 24, .window = 37, .lengths = {150, 64}});
  add({.heads = 2, .kv_heads = 2, .dim = 17, .window = 16, .lengths = {90}});
  add({.heads = 6, .kv_heads = 2, .dim = 32, .window = 37, .lengths = {130, 1, 33}, .cap = 2});
  add({.heads = 8, .kv_heads = 1, .dim = 16, .window = 600, .lengths = {1300, 30}});
  return cases;
}

// Cases have results of f32 and bf16 in turn.
TEST(AttentionCached, GivesTheBitsOfFlatAttentionInAnyChunks) {
  Rng rng(derive_key(20, "chunks"));
  bool narrow = false;
  for (const InputOptions& options : cached_cases()) {
    SCOPED_TRACE(options.dim);
    narrow = !narrow;
    expect_the_same_bits_in_random_chunks(make_inputs(options), options.kv_dtype,
                                          narrow ? DType::kBF16 : DType::kF32, rng);
  }
}

TEST(AttentionCached, DecodingTokenByTokenGivesTheBitsOfOnePiece) {
  for (const InputOptions& options : cached_cases()) {
    if (options.lengths[0] > 1000) continue;
    Inputs in = make_inputs(options);
    Machine machine(2);
    const auto whole = [](size_t, int) { return 1 << 20; };
    const auto one = [](size_t, int) { return 1; };
    Cache first(options.kv_dtype, in.shape, in.lengths, 6);
    Cache second(options.kv_dtype, in.shape, in.lengths, 7);
    const Matrix expected = run_in_chunks(machine, in, first, DType::kF32, whole);
    const Matrix dst = run_in_chunks(machine, in, second, DType::kF32, one);
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << options.dim;
  }
}

TEST(AttentionCached, DecodesAmongPromptsGiveTheBitsOfFlatAttention) {
  expect_the_same_bits_of_decodes_among_prompts(
      make_inputs({.heads = 4, .kv_heads = 2, .dim = 16, .lengths = {1100, 40, 1300, 300}}),
      DType::kF32);
}

TEST(AttentionCached, MatchesTheDefinition) {
  Inputs in = make_inputs({.heads = 6, .kv_heads = 2, .dim = 40, .lengths = {600, 30}});
  Machine machine(2);
  Cache cache(DType::kF32, in.shape, in.lengths, 9);
  const Matrix dst = run_in_chunks(machine, in, cache, DType::kF32, [](size_t, int) { return 97; });
  int64_t row = 0;
  for (const int length : in.lengths) {
    for (int64_t head = 0; head < 6; ++head) {
      const Oracle o = oracle_forward(in, {row, length, head});
      for (int64_t i = 0; i < length; ++i) {
        for (int64_t c = 0; c < 40; ++c) {
          ASSERT_NEAR(dst.get(row + i, head * 40 + c), o.dst[static_cast<size_t>(i * 40 + c)],
                      2e-5);
        }
      }
    }
    row += length;
  }
}

TEST(AttentionCached, BlocksBeforeTheWindowMayBeGone) {
  expect_blocks_before_the_window_may_be_gone(
      make_inputs({.heads = 2, .kv_heads = 1, .dim = 16, .window = 100, .lengths = {1200}}),
      DType::kF32);
}

TEST(AttentionCached, GivesTheSameBitsOnEveryInstructionSet) {
  const Isa before = active_isa();
  Inputs in = make_inputs({.heads = 3, .kv_heads = 1, .dim = 48, .lengths = {200, 31}});
  Machine machine;
  const Matrix expected = forward(machine, in).dst;
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    Cache cache(DType::kF32, in.shape, in.lengths, 11);
    const Matrix dst =
        run_in_chunks(machine, in, cache, DType::kF32, [](size_t, int) { return 3; });
    EXPECT_TRUE(dst.same_rows(0, expected, 0, in.rows())) << isa_name(isa);
  }
  set_active_isa(before);
}

// Long contexts, whose partial results wait between two loops, on streams of one device.
TEST(AttentionCached, GivesTheSameBitsBesideAnotherStream) {
  constexpr int kContext = 6000;
  const AttentionShape shape{4, 1, 64, 0.125, 0};
  Cache cache(DType::kF32, shape, {kContext + 1}, 14);
  Matrix tokens(DType::kF32, kContext + 1, 64);
  Rng rng(derive_key(14, "tokens"));
  tokens.fill_normal(rng);
  Machine machine(2, true);
  kv_append(*machine.stream, cache.view(), tokens.view(), tokens.view(),
            {{0, kContext + 1, 0, cache.blocks(0).data()}});
  struct Decode {
    Matrix q{DType::kF32, 1, 256}, expected{DType::kF32, 1, 256}, dst{DType::kF32, 1, 256};
    std::unique_ptr<Stream> stream;
  };
  std::vector<Decode> decodes(2);
  const auto attend = [&](Decode& decode, Matrix& dst) {
    attention_cached(*decode.stream, {dst.view(),
                                      decode.q.view(),
                                      cache.view(),
                                      {{0, 1, kContext, cache.blocks(0).data()}},
                                      shape});
  };
  machine.stream->synchronize();
  for (Decode& decode : decodes) {
    decode.q.fill_normal(rng);
    decode.stream = std::move(*machine.device.make_stream());
    attend(decode, decode.expected);
    decode.stream->synchronize();
  }
  int wrong = 0;
  for (int round = 0; round < 300; ++round) {
    for (Decode& decode : decodes) attend(decode, decode.dst);
    for (Decode& decode : decodes) {
      decode.stream->synchronize();
      wrong += !decode.dst.same_rows(0, decode.expected, 0, 1);
    }
  }
  EXPECT_EQ(wrong, 0);
}

// The formula of attention_schedule.h.
TEST(AttentionCached, ScratchGrowsWithTheSplitsOnly) {
  const AttentionShape shape{4, 1, 16, 0.25, 0};
  for (const int context : {100, 5000, 20000}) {
    std::vector<int> lengths = {context + 1};
    Cache cache(DType::kBF16, shape, lengths, 12);
    Matrix q(DType::kF32, 1, 64);
    Matrix dst(DType::kF32, 1, 64);
    Machine machine(2);
    attention_cached(
        *machine.stream,
        {dst.view(), q.view(), cache.view(), {{0, 1, context, cache.blocks(0).data()}}, shape});
    const int64_t splits = context / 512 + 1;
    const int64_t rounding = 2 * 4096;
    EXPECT_LE(machine.device.scratch_bytes(),
              2 * cpu::attention_scratch_bytes(16) + rounding + splits * 4 * (16 + 34) * 4);
  }
}

TEST(AttentionCachedDeathTest, RefusesBlocksOutsideTheCache) {
  Inputs in = make_inputs({.heads = 1, .dim = 8, .lengths = {20}});
  Cache cache(DType::kF32, in.shape, in.lengths, 13);
  cache.blocks(0)[1] = 1000;
  Machine machine;
  EXPECT_DEATH(kv_append(*machine.stream, cache.view(), in.k.view(), in.v.view(),
                         {{0, 20, 0, cache.blocks(0).data()}}),
               "cache block 1000 of 9 at tokens 16 to 31");
}

}  // namespace
}  // namespace jige::ops::attention_test

// Attention over the paged cache of a GPU, beside that of the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "base/cpu.h"
#include "cuda/test_device.h"
#include "ops/attention.h"
#include "ops/rope.h"
#include "ops/step_tables.h"

namespace jige {
namespace {

// A sequence of a step: rows with so many tokens before them.
struct CachedRows {
  int32_t context, rows;
};

struct CachedCase {
  ops::AttentionShape shape;
  DType cache = DType::kBF16;
  DType q = DType::kBF16;
  DType dst = DType::kF32;
  std::vector<CachedRows> spans;
  bool sinks = false;
  int64_t latent = 0;  // values are so many columns of keys
};

class CudaCachedAttention : public CudaTest {
 protected:
  // A step of sequences whose contexts stand in the caches of both devices.
  struct Step {
    ops::KvCacheView host, gpu;
    std::vector<std::vector<int32_t>> blocks;
    std::vector<ops::SequenceSpan> sequences;
    Pair q, dst;
  };

  // Caches of NaN, but for the tokens appended; blocks are handed out in any order.
  Step make_step(const CachedCase& c) {
    Step step;
    int32_t block_count = 3;
    int32_t rows = 0;
    for (const CachedRows& span : c.spans) {
      const int32_t count = (span.context + span.rows + 15) / 16;
      step.blocks.emplace_back(static_cast<size_t>(count));
      std::iota(step.blocks.back().begin(), step.blocks.back().end(), block_count);
      block_count += count;
      rows += span.rows;
    }
    std::vector<int32_t> order(static_cast<size_t>(block_count));
    std::iota(order.begin(), order.end(), 0);
    random_.shuffle(std::span<int32_t>(order));
    for (auto& blocks : step.blocks) {
      for (int32_t& block : blocks) block = order[static_cast<size_t>(block)];
    }
    const int64_t g = c.shape.kv_head_count;
    const int64_t d = c.shape.head_dim;
    const int64_t bytes = ops::kv_cache_bytes(c.cache, block_count, g, d);
    const Pair memory = filled(DType::kU8, {bytes});
    step.host = {memory.host.data, c.cache, block_count, g, d};
    step.gpu = {memory.gpu.data, c.cache, block_count, g, d};
    append_contexts(c, step);
    step.q = random(c.q, {rows, c.shape.head_count * d});
    step.dst = filled(c.dst, {rows, c.shape.head_count * d});
    return step;
  }

  // Keys and values of all tokens, the contexts in one piece, in f32, and the rows in another.
  void append_contexts(const CachedCase& c, Step& step) {
    const int64_t columns = c.shape.kv_head_count * c.shape.head_dim;
    for (const bool contexts : {true, false}) {
      std::vector<ops::SequenceSpan> sequences;
      int32_t row = 0;
      for (size_t i = 0; i < c.spans.size(); ++i) {
        const CachedRows& span = c.spans[i];
        const int32_t count = contexts ? span.context : span.rows;
        sequences.push_back({row, count, contexts ? 0 : span.context, step.blocks[i].data()});
        row += count;
      }
      const DType dtype = contexts || c.cache == DType::kI8 ? DType::kF32 : c.cache;
      const Pair k = random(dtype, {row, columns}, 1.5f);
      const Pair v = random(dtype, {row, columns});
      if (c.latent > 0) {
        for (int64_t i = 0; i < v.host.count(); ++i) {
          set(v.host, i, i % columns < c.latent ? get(k.host, i) : 0.0f);
        }
        to_gpu(v);
      }
      ops::kv_append(*cpu_stream_, step.host, k.host, v.host, sequences);
      ops::kv_append(*gpu_stream_, step.gpu, k.gpu, v.gpu, sequences);
      step.sequences = sequences;
    }
  }

  void attend(const CachedCase& c, Step& step) {
    ops::AttentionShape host_shape = c.shape;
    ops::AttentionShape gpu_shape = c.shape;
    if (c.sinks) {
      const Pair sinks = random(DType::kF32, {c.shape.head_count});
      host_shape.sinks = sinks.host.as<float>();
      gpu_shape.sinks = sinks.gpu.as<float>();
    }
    // Columns that are not wanted may be left.
    if (c.latent > 0) gpu_stream_->fill_zero(step.dst.gpu.data, step.dst.gpu.count() * 4);
    ops::AttentionCached on_cpu = {step.dst.host, step.q.host, step.host, step.sequences,
                                   host_shape};
    ops::AttentionCached on_gpu = {step.dst.gpu, step.q.gpu, step.gpu, step.sequences, gpu_shape};
    on_cpu.latent_columns = on_gpu.latent_columns = c.latent;
    ops::attention_cached(*cpu_stream_, on_cpu);
    ops::attention_cached(*gpu_stream_, on_gpu);
  }

  // Whether the sequences of a step, each of them alone, have the bits that they had in the step.
  void expect_the_same_bits(const CachedCase& c, const Step& step,
                            const std::vector<ops::SequenceSpan>& sequences) {
    for (ops::SequenceSpan span : sequences) {
      const TensorView dst =
          step.dst.gpu.row_range(span.row_begin, span.row_begin + span.row_count);
      const TensorView q = step.q.gpu.row_range(span.row_begin, span.row_begin + span.row_count);
      const std::vector<float> before = gpu_values(dst);
      gpu_stream_->fill_zero(dst.data, dtype_bytes(dst.dtype, dst.count()));
      span.row_begin = 0;
      ops::AttentionCached args = {dst, q, step.gpu, {span}, c.shape};
      args.latent_columns = c.latent;
      ops::attention_cached(*gpu_stream_, args);
      EXPECT_EQ(gpu_values(dst), before);
    }
  }

  // The rows of a step, as sequences of one row.
  static std::vector<ops::SequenceSpan> rows_of(const Step& step) {
    std::vector<ops::SequenceSpan> rows;
    for (const ops::SequenceSpan& span : step.sequences) {
      for (int32_t i = 0; i < span.row_count; ++i) {
        rows.push_back({span.row_begin + i, 1, span.context_count + i, span.blocks});
      }
    }
    return rows;
  }

  // Of a prompt, with 16 heads, for the tiles of a GPU to be large.
  static int32_t many_rows() { return test_device_is_emulated() ? 70 : 2200; }

  void expect_as_the_cpu(const CachedCase& c, double tolerance) {
    Step step = make_step(c);
    attend(c, step);
    expect_near(step.dst, tolerance,
                std::to_string(c.shape.head_count) + " heads of " +
                    std::to_string(c.shape.head_dim) + ", window " +
                    std::to_string(c.shape.window));
  }
};

constexpr double kCachedF32Tolerance = 5e-6;
constexpr double kCachedBf16Tolerance = 4e-3;  // weights of values are rounded to bf16

ops::AttentionShape cached_shape(int64_t heads, int64_t kv_heads, int64_t dim, int64_t window = 0,
                                 double cap = 0) {
  return {heads, kv_heads, dim, 1 / std::sqrt(static_cast<double>(dim)), window, cap};
}

TEST_F(CudaCachedAttention, DecodesInF32) {
  // Where heads are of any length, two splits of keys are enough.
  for (const int64_t dim : {64, 40, 5, 130, 576}) {
    expect_as_the_cpu(
        {.shape = cached_shape(4, 2, dim),
         .cache = DType::kF32,
         .q = DType::kF32,
         .spans = dim == 64 ? std::vector<CachedRows>{{0, 1}, {16, 1}, {300, 3}, {517, 1}}
                            : std::vector<CachedRows>{{16, 1}, {265, 3}}},
        kCachedF32Tolerance);
  }
}

TEST_F(CudaCachedAttention, DecodesOfManyHeadsAKeyInF32) {
  expect_as_the_cpu({.shape = cached_shape(21, 1, 24, 0, 3),
                     .cache = DType::kF32,
                     .q = DType::kF32,
                     .spans = {{30, 8}, {270, 2}},
                     .sinks = true},
                    kCachedF32Tolerance);
}

TEST_F(CudaCachedAttention, PromptsInF32) {
  expect_as_the_cpu({.shape = cached_shape(6, 2, 20, 37),
                     .cache = DType::kF32,
                     .q = DType::kF32,
                     .spans = {{0, 70}, {100, 9}, {33, 1}},
                     .sinks = true},
                    kCachedF32Tolerance);
}

// Queries in f32 are not rounded, whatever the cache.
TEST_F(CudaCachedAttention, F32QueriesOfABf16Cache) {
  expect_as_the_cpu(
      {.shape = cached_shape(4, 1, 64), .q = DType::kF32, .spans = {{300, 1}, {0, 20}}},
      kCachedF32Tolerance);
}

TEST_F(CudaCachedAttention, DecodesInBf16) {
  for (const int64_t dim : {64, 128, 80, 40, 8, 192, 256}) {
    expect_as_the_cpu(
        {.shape = cached_shape(8, 2, dim),
         .spans = dim == 64 ? std::vector<CachedRows>{{0, 1}, {15, 1}, {16, 1}, {270, 1}, {513, 1}}
                            : std::vector<CachedRows>{{0, 1}, {15, 1}, {270, 1}}},
        kCachedBf16Tolerance);
  }
  for (const int64_t heads : {1, 7}) {
    expect_as_the_cpu({.shape = cached_shape(2 * heads, 2, 128), .spans = {{300, 1}}},
                      kCachedBf16Tolerance);
  }
}

TEST_F(CudaCachedAttention, DraftsInBf16) {
  for (const int64_t dim : {64, 128, 256}) {
    expect_as_the_cpu({.shape = cached_shape(7, 1, dim, 0, 2),
                       .spans = {{252, 5}, {3, 8}, {600, 1}},
                       .sinks = true},
                      kCachedBf16Tolerance);
  }
}

TEST_F(CudaCachedAttention, WindowsInBf16) {
  for (const int64_t window : {1, 16, 100, 300}) {
    expect_as_the_cpu({.shape = cached_shape(4, 1, 128, window),
                       .spans = {{700, 1}, {254, 4}, {40, 1}, {290, 40}}},
                      kCachedBf16Tolerance);
  }
}

TEST_F(CudaCachedAttention, PromptsInBf16) {
  for (const int64_t dim : {64, 80, 96, 128, 192, 256}) {
    expect_as_the_cpu({.shape = cached_shape(4, 1, dim, 0, dim == 96 ? 2 : 0),
                       .dst = dim == 80 ? DType::kBF16 : DType::kF32,
                       .spans = {{0, 75}, {100, 9}, {500, 1}, {63, 33}},
                       .sinks = dim == 64},
                      dim == 80 ? 1e-2 : kCachedBf16Tolerance);
  }
  expect_as_the_cpu({.shape = cached_shape(7, 1, 64, 50), .spans = {{120, 40}}},
                    kCachedBf16Tolerance);
}

// So many rows that tiles are large.
TEST_F(CudaCachedAttention, LongPromptsInBf16) {
  for (const int64_t dim : {64, 80, 96, 128, 192, 256}) {
    expect_as_the_cpu({.shape = cached_shape(16, 2, dim, 0, dim == 96 ? 2 : 0),
                       .spans = {{20, many_rows()}},
                       .sinks = dim == 64},
                      kCachedBf16Tolerance);
  }
}

// Few rows, though more than decodes have, whose keys are cut into splits; one of them begins
// before the window, and rows do not see the last one.
TEST_F(CudaCachedAttention, ShortPromptsBehindLongContexts) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t window : {0, 1050}) {
      expect_as_the_cpu({.shape = cached_shape(dtype == DType::kF32 ? 3 : 7, 1, 64, window),
                         .cache = dtype,
                         .q = dtype,
                         .spans = {{2044, 9}, {1000, 12}},
                         .sinks = true},
                        dtype == DType::kF32 ? kCachedF32Tolerance : kCachedBf16Tolerance);
    }
  }
}

// One pass has the bits of the three that it stands for, in what it gives and in the cache.
TEST_F(CudaCachedAttention, AStepAtOnceHasTheBitsOfTurningAppendingAndAttending) {
  struct Turned {
    int64_t heads, kv_heads, dim, rotary, window;
    bool appends;
    std::vector<CachedRows> spans;
  };
  for (const Turned& t :
       {Turned{4, 2, 64, 64, 0, true, {{0, 1}, {255, 1}, {256, 1}, {300, 1}}},
        Turned{7, 1, 128, 64, 0, true, {{252, 8}, {3, 5}}},
        Turned{4, 1, 80, 80, 20, true, {{250, 7}, {16, 1}}},
        Turned{4, 4, 40, 0, 0, true, {{31, 2}}}, Turned{4, 1, 256, 32, 0, false, {{500, 3}}}}) {
    const CachedCase c = {.shape = cached_shape(t.heads, t.kv_heads, t.dim, t.window),
                          .spans = t.spans};
    Step step = make_step(c);
    const int64_t rows = step.q.gpu.rows();
    const int64_t q_columns = t.heads * t.dim;
    const int64_t kv_columns = t.kv_heads * t.dim;
    const Pair qkv = random(DType::kBF16, {rows, q_columns + 2 * kv_columns});
    const Pair table = random(DType::kF32, {600, 2 * t.rotary + 4});
    const auto view = [](const Pair& pair, int64_t begin, int64_t count) {
      return pair.gpu.column_range(begin, begin + count);
    };
    ops::AttentionStep args = {
        .attention = {step.dst.gpu, view(qkv, 0, q_columns), step.gpu, step.sequences, c.shape},
        .q_cos_sin = view(table, 0, t.rotary),
        .k_cos_sin = view(table, t.rotary, t.rotary),
        .rotary_dim = t.rotary};
    if (t.appends) {
      args.k = view(qkv, q_columns, kv_columns);
      args.v = view(qkv, q_columns + kv_columns, kv_columns);
    }
    const TensorView cache = {step.gpu.data, DType::kBF16,
                              Shape{step.gpu.block_count * 2 * 16, kv_columns}};
    ASSERT_TRUE(ops::attention_step(*gpu_stream_, args));
    const std::vector<float> got = gpu_values(step.dst.gpu);
    const std::vector<float> cached = gpu_values(cache);

    std::vector<int32_t> positions;
    for (const CachedRows& span : t.spans) {
      for (int32_t i = 0; i < span.rows; ++i) positions.push_back(span.context + i);
    }
    const auto turn = [&](const TensorView& data, const TensorView& angles) {
      ops::rope(*gpu_stream_, {.data = data,
                               .positions = integers(positions).gpu,
                               .cos_sin = angles,
                               .head_dim = t.dim,
                               .rotary_dim = t.rotary});
    };
    turn(args.attention.q, args.q_cos_sin);
    if (t.appends) {
      turn(args.k, args.k_cos_sin);
      ops::kv_append(*gpu_stream_, step.gpu, args.k, args.v, step.sequences);
    }
    ops::attention_cached(*gpu_stream_, args.attention);
    EXPECT_EQ(gpu_values(step.dst.gpu), got) << "heads of " << t.dim;
    // As bytes, since the rest of the cache is NaN.
    const std::vector<float> expected = gpu_values(cache);
    EXPECT_EQ(std::memcmp(expected.data(), cached.data(), cached.size() * 4), 0);
  }
}

TEST_F(CudaCachedAttention, AStepAtOnceIsForSequencesOfFewRowsInBf16) {
  const auto takes = [&](const CachedCase& c, int64_t rotary) {
    Step step = make_step(c);
    const Pair kv = random(c.q, {step.q.gpu.rows(), c.shape.kv_head_count * c.shape.head_dim});
    const Pair table = random(DType::kF32, {600, rotary});
    return ops::attention_step(
        *gpu_stream_, {.attention = {step.dst.gpu, step.q.gpu, step.gpu, step.sequences, c.shape},
                       .k = kv.gpu,
                       .v = kv.gpu,
                       .q_cos_sin = table.gpu,
                       .k_cos_sin = table.gpu,
                       .rotary_dim = rotary});
  };
  const ops::AttentionShape shape = cached_shape(2, 1, 64);
  EXPECT_TRUE(takes({.shape = shape, .spans = {{3, 8}}}, 64));
  EXPECT_FALSE(takes({.shape = shape, .spans = {{3, 9}}}, 64));
  EXPECT_FALSE(takes({.shape = shape, .spans = {{3, 1}}}, 60));
  EXPECT_FALSE(takes({.shape = shape, .q = DType::kF32, .spans = {{3, 1}}}, 64));
  EXPECT_FALSE(takes({.shape = shape, .cache = DType::kI8, .spans = {{3, 1}}}, 64));
}

// Layers with the same window share what is sent of a step's sequences.
TEST_F(CudaCachedAttention, CallsOfAStepShareTheirTables) {
  const CachedCase c = {.shape = cached_shape(4, 1, 64), .spans = {{300, 1}, {20, 30}}};
  Step step = make_step(c);
  attend(c, step);
  const std::vector<float> expected = gpu_values(step.dst.gpu);
  ops::StepTables tables;
  ops::AttentionCached args = {step.dst.gpu, step.q.gpu, step.gpu, step.sequences, c.shape};
  args.tables = &tables;
  for (const int64_t window : {0, 100, 0, 100}) {
    args.shape.window = window;
    ops::attention_cached(*gpu_stream_, args);
    EXPECT_EQ(gpu_values(step.dst.gpu) == expected, window == 0);
  }
  EXPECT_EQ(tables.entries.size(), 2);
}

// In f32 keys and values are those of the CPU, to the bit.
TEST_F(CudaCachedAttention, CachesIn8Bits) {
  for (const auto& [dim, window] : {std::pair<int64_t, int64_t>{64, 0}, {5, 0}, {130, 37}}) {
    expect_as_the_cpu({.shape = cached_shape(6, 2, dim, window),
                       .cache = DType::kI8,
                       .q = DType::kF32,
                       .spans = {{0, 1}, {300, 3}, {33, 1}, {20, 9}},
                       .sinks = true},
                      kCachedF32Tolerance);
  }
  // Queries in bf16 are decoded in f32, as by a processor without products of bf16.
  const Isa before = active_isa();
  set_active_isa(Isa::kAvx2);
  expect_as_the_cpu({.shape = cached_shape(8, 2, 128), .cache = DType::kI8, .spans = {{270, 1}}},
                    kCachedF32Tolerance);
  set_active_isa(before);
  for (const int64_t dim : {64, 128, 256}) {
    expect_as_the_cpu({.shape = cached_shape(4, 1, dim, 0, dim == 64 ? 2 : 0),
                       .cache = DType::kI8,
                       .spans = {{0, 75}, {100, 9}}},
                      kCachedBf16Tolerance);
  }
}

// Some, or some more, heads than a small tile has rows; contexts in one split and in several.
TEST_F(CudaCachedAttention, LatentsInBf16) {
  for (const auto& [heads, latent] : {std::pair{16, 512}, {3, 256}, {21, 256}}) {
    expect_as_the_cpu({.shape = cached_shape(heads, 1, latent + latent / 8),
                       .spans = {{0, 1}, {300, heads == 16 ? 1 : 2}, {37, 3}},
                       .latent = latent},
                      kCachedBf16Tolerance);
  }
  expect_as_the_cpu({.shape = cached_shape(7, 1, 288, 50, 2),
                     .spans = {{90, 20}, {300, 2}, {0, 9}},
                     .sinks = true,
                     .latent = 256},
                    kCachedBf16Tolerance);
  expect_as_the_cpu({.shape = cached_shape(4, 1, 40),
                     .cache = DType::kF32,
                     .q = DType::kF32,
                     .spans = {{300, 1}, {20, 9}},
                     .latent = 32},
                    kCachedF32Tolerance);
}

TEST_F(CudaCachedAttention, ARowOfLatentsHasTheSameBitsAloneAndInADraft) {
  for (const int64_t heads : {5, 20}) {
    const CachedCase c = {
        .shape = cached_shape(heads, 1, 288), .spans = {{253, 5}, {37, 2}}, .latent = 256};
    Step step = make_step(c);
    attend(c, step);
    expect_the_same_bits(c, step, rows_of(step));
  }
}

// What a row gives does not depend on the rows beside it.
TEST_F(CudaCachedAttention, ARowHasTheSameBitsAloneAndInADraft) {
  for (const int64_t dim : {128, 256}) {
    for (const int64_t window : {0, 200}) {
      const CachedCase c = {.shape = cached_shape(4, 1, dim, window), .spans = {{253, 6}, {37, 2}}};
      Step step = make_step(c);
      attend(c, step);
      expect_the_same_bits(c, step, rows_of(step));
    }
  }
}

// The first sequence alone has small tiles of rows.
TEST_F(CudaCachedAttention, APromptHasTheSameBitsAloneAndBesideMany) {
  const CachedCase c = {.shape = cached_shape(16, 2, 128), .spans = {{20, 40}, {0, many_rows()}}};
  Step step = make_step(c);
  attend(c, step);
  expect_the_same_bits(c, step, {step.sequences[0]});
}

}  // namespace
}  // namespace jige

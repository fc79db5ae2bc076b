// Backward attention in bf16, on matrix tiles or in pairs: 96 query rows against a tile of 64 keys,
// transposed: scores are [keys][rows], so that P and dS of sixteen keys are left tiles as they
// come. The arithmetic is stated in attention.h.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_load.h"
#include "kernels/cpu/attention_pack_tiles.h"
#include "kernels/cpu/attention_tiled_layout.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

constexpr int kKeys = kAttentionTileKeys;
constexpr int kKeySteps = kKeys / 32;

struct Tiled {
  const AttentionGradients& args;
  AttentionTiledGradients scratch;
  int steps;    // of the head dimension
  int columns;  // tiles of 16 of it
  int64_t row_floats;
  float factor;  // scale · log2 e; under a cap, cap · log2 e
  float inner;   // under a cap, scale / cap; else 0

  int depth() const { return steps * 32; }
  int key_count(int key) const { return min_of(args.length - key, kKeys); }
  // Rows before `position`.
  int64_t rows_until(int64_t position) const { return position * args.head_count; }
  AttentionTiledKeys keys_at(int tile) const {
    const int64_t offset = tile * scratch.keys_step;
    const AttentionTiledKeys& first = scratch.keys;
    return {first.k_rows + offset, first.v_rows + offset, first.k_columns + offset};
  }
};

// A range of query rows, numbered as in AttentionRows.
struct Rows {
  int begin;
  int count;

  int steps() const { return (count + 31) / 32; }
};

// Steps of 32 rows.
struct Steps {
  int begin;
  int end;

  int count() const { return end - begin; }
};

const uint16_t* halves_of(const AttentionSource& source) {
  return static_cast<const uint16_t*>(source.data);
}

// Where a query row lies, numbered as in AttentionRows.
int64_t offset_of(const Tiled& t, const AttentionSource& source, int64_t row) {
  return row / t.args.head_count * source.stride + row % t.args.head_count * t.args.head_dim;
}

// D of a row: the sum of dst·grad_dst.
template <typename Element>
float row_dot(const Element* dst, const Bf16* grad_dst, int dim) {
  F32x16 sum = F32x16::zero();
  for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
    sum = fma(load_lanes<F32x16>(dst + c, lanes), load_lanes<F32x16>(grad_dst + c, lanes), sum);
  });
  return horizontal_sum(sum);
}

// Packs 32 rows of q or grad_dst: as depth along the columns and as depth along the rows.
void pack_step(const Tiled& t, const AttentionSource& source, const Rows& rows, int step,
               uint16_t* depth_tiles, uint16_t* row_tiles) {
  const AttentionTiledGradients& s = t.scratch;
  for (int i = 0; i < 32; ++i) {
    uint16_t* to = s.rows + i * t.depth();
    const int row = rows.begin + step * 32 + i;
    if (step * 32 + i >= rows.count) {
      zero_row(to, t.depth());
      continue;
    }
    fetch_row(source, offset_of(t, source, row + kReadRowsAhead), t.args.head_dim);
    copy_row(halves_of(source) + offset_of(t, source, row), t.args.head_dim, to, t.depth());
  }
  for (int half = 0; half < 2; ++half) {
    for (int c = 0; c < t.steps; ++c) {
      transpose_tile(s.rows + half * 16 * t.depth() + c * 32, t.depth(),
                     depth_tiles + ((2 * step + half) * t.steps + c) * kTileElements);
    }
  }
  for (int column = 0; column < t.columns; ++column) {
    uint16_t* dst = row_tiles + (column * kAttentionRowSteps + step) * kTileElements;
    pair_rows(s.rows + column * 16, t.depth(), dst);
    pair_rows(s.rows + 16 * t.depth() + column * 16, t.depth(), dst + kTileElements / 2);
  }
}

void load_rows(const Tiled& t, const Rows& rows) {
  const AttentionGradients& args = t.args;
  const AttentionTiledGradients& s = t.scratch;
  for (int step = 0; step < rows.steps(); ++step) {
    pack_step(t, args.q, rows, step, s.q_depth, s.q_rows);
    pack_step(t, args.grad_dst, rows, step, s.grad_depth, s.grad_rows);
  }
  for (int i = 0; i < kAttentionRowsMax; ++i) {
    s.lse[i] = s.dots[i] = 0;
    if (i >= rows.count) continue;
    const int row = rows.begin + i;
    s.lse[i] = args.lse[row / args.head_count * args.lse_stride + row % args.head_count] * kLog2E;
    fetch_row(args.dst, offset_of(t, args.dst, row + kReadRowsAhead), args.head_dim);
    const Bf16* grad_dst = static_cast<const Bf16*>(args.grad_dst.data);
    with_elements(args.dst, [&](const auto* dst) {
      s.dots[i] = row_dot(dst + offset_of(t, args.dst, row),
                          grad_dst + offset_of(t, args.grad_dst, row), args.head_dim);
    });
  }
}

void load_keys(const Tiled& t, int key, const AttentionTiledKeys& to) {
  const auto load = [&](const AttentionSource& source, uint16_t* rows) {
    for (int j = 0; j < kKeys; ++j) {
      if (j < t.key_count(key)) {
        fetch_row(source, (key + j + kReadRowsAhead) * source.stride, t.args.head_dim);
        copy_row(halves_of(source) + (key + j) * source.stride, t.args.head_dim,
                 rows + j * t.depth(), t.depth());
      } else {
        zero_row(rows + j * t.depth(), t.depth());
      }
    }
  };
  load(t.args.k, to.k_rows);
  load(t.args.v, to.v_rows);
  for (int column = 0; column < t.columns; ++column) {
    for (int step = 0; step < kKeySteps; ++step) {
      transpose_pairs(to.k_rows + step * 32 * t.depth() + column * 16, t.depth(),
                      to.k_columns + (column * kKeySteps + step) * kTileElements);
    }
  }
}

// Which rows see each key of the tile; returns the steps in which some row sees some key.
Steps find_ranges(const Tiled& t, const Rows& rows, int key_begin) {
  const int window = t.args.window > 0 ? t.args.window : t.args.length;
  const auto clamp_row = [&](int64_t row) {
    const int64_t offset = row - rows.begin;
    return static_cast<int>(offset < 0 ? 0 : offset > rows.count ? rows.count : offset);
  };
  Steps steps{INT32_MAX, 0};
  for (int j = 0; j < kKeys; ++j) {
    const int64_t key = int64_t{key_begin} + j;
    AttentionRange& range = t.scratch.ranges[j];
    range = {clamp_row(t.rows_until(key)), clamp_row(t.rows_until(key + window))};
    if (j >= t.key_count(key_begin)) range.end = range.begin;
    if (range.begin >= range.end) continue;
    steps.begin = min_of(steps.begin, range.begin / 32);
    steps.end = max_of(steps.end, (range.end + 31) / 32);
  }
  return steps;
}

// sums[64 keys][32 rows] = keys · rows of a step.
void score(const Tiled& t, const uint16_t* key_rows, const uint16_t* depth_tiles, int step,
           float* sums) {
  for (int block = 0; block < kKeys / 16; ++block) {
    TileProduct product;
    product.left = key_rows + block * 16 * t.depth();
    product.left_row_bytes = t.depth() * 2;
    product.left_step_bytes = kTileRowBytes;
    product.right = depth_tiles + 2 * step * t.steps * kTileElements;
    product.panel_bytes = t.steps * kTileBytes;
    product.steps = t.steps;
    product.panels = 2;
    product.sums = sums + block * 16 * 32;
    product.sums_stride = 32;
    multiply(product);
  }
}

// P and dS of 32 rows and a key.
struct Weighed {
  __m512 weights[2];
  __m512 slopes[2];
};

template <bool kCapped>
JIGE_INLINE Weighed weigh_key(const Tiled& t, int step, int key) {
  const AttentionTiledGradients& s = t.scratch;
  AttentionRange range = s.ranges[key];
  range = {range.begin - step * 32, range.end - step * 32};
  Weighed result;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const int row = step * 32 + half * 16;
    const int at = key * 32 + half * 16;
    const __mmask16 lanes = lanes_of(range, half);
    F32x16 score = F32x16::load(s.scores + at);
    __m512 change = _mm512_sub_ps(_mm512_loadu_ps(s.products + at), _mm512_loadu_ps(s.dots + row));
    if constexpr (kCapped) {
      score = tanh(score * F32x16::broadcast(t.inner));
      change = _mm512_mul_ps(change, fma(-score, score, F32x16::broadcast(1.0f)).v);
    }
    const __m512 exponent =
        _mm512_fmsub_ps(score.v, _mm512_set1_ps(t.factor), _mm512_loadu_ps(s.lse + row));
    const __m512 weights = power_of_two_in(lanes, exponent);
    result.weights[half] = weights;
    result.slopes[half] = _mm512_maskz_mul_ps(lanes, weights, change);
  }
  return result;
}

// Scores and dP of a step become tiles of P and dS. kCapped: scores have a cap.
template <bool kCapped>
void weigh(const Tiled& t, int step) {
  const AttentionTiledGradients& s = t.scratch;
  for (int key = 0; key < kKeys; key += 2) {
    Weighed pair[2];
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      pair[j] = weigh_key<kCapped>(t, step, key + j);
      const int64_t at =
          ((key + j) / 16 * kAttentionRowSteps + step) * kTileElements + (key + j) % 16 * 32;
      _mm512_storeu_si512(s.weights + at, narrow_two(pair[j].weights[0], pair[j].weights[1]));
      _mm512_storeu_si512(s.slopes + at, narrow_two(pair[j].slopes[0], pair[j].slopes[1]));
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int64_t at =
          ((2 * step + half) * kKeySteps + key / 32) * kTileElements + key % 32 / 2 * 32;
      _mm512_storeu_si512(s.slope_pairs + at,
                          interleave(narrow_two(pair[0].slopes[half], pair[1].slopes[half])));
    }
  }
}

// gradients[64 keys][columns] += tiles of P or dS · rows.
void add_key_gradients(const Tiled& t, const Steps& steps, const uint16_t* left,
                       const uint16_t* row_tiles, float* gradients) {
  for (int block = 0; block < kKeys / 16; ++block) {
    TileProduct product;
    product.left = left + (block * kAttentionRowSteps + steps.begin) * kTileElements;
    product.right = row_tiles + steps.begin * kTileElements;
    product.panel_bytes = kAttentionRowSteps * kTileBytes;
    product.steps = steps.count();
    product.panels = t.columns;
    product.sums = gradients + block * 16 * t.row_floats;
    product.sums_stride = t.row_floats;
    product.accumulate = true;
    multiply(product);
  }
}

// grad_q[columns][rows] += keys' columns · dS.
void add_query_gradients(const Tiled& t, const Steps& steps, const uint16_t* k_columns) {
  for (int column = 0; column < t.columns; ++column) {
    TileProduct product;
    product.left = k_columns + column * kKeySteps * kTileElements;
    product.right = t.scratch.slope_pairs + 2 * steps.begin * kKeySteps * kTileElements;
    product.panel_bytes = kKeySteps * kTileBytes;
    product.steps = kKeySteps;
    product.panels = 2 * steps.count();
    product.sums = t.scratch.grad_q + column * 16 * kAttentionRowsMax + steps.begin * 32;
    product.sums_stride = kAttentionRowsMax;
    product.accumulate = true;
    multiply(product);
  }
}

// What a tile of rows and a tile of keys give to the gradients. REQUIRES: load_rows; `keys` loaded.
struct Gradients {
  bool queries;
  float* grad_k;  // of the tile's first key; null: no gradients of keys and values
  float* grad_v;
};
void add_gradients(const Tiled& t, const Rows& rows, int key, const AttentionTiledKeys& keys,
                   const Gradients& gradients) {
  const AttentionTiledGradients& s = t.scratch;
  const Steps steps = find_ranges(t, rows, key);
  if (steps.begin >= steps.end) return;
  for (int step = steps.begin; step < steps.end; ++step) {
    score(t, keys.k_rows, s.q_depth, step, s.scores);
    score(t, keys.v_rows, s.grad_depth, step, s.products);
    t.inner > 0 ? weigh<true>(t, step) : weigh<false>(t, step);
  }
  if (gradients.queries) add_query_gradients(t, steps, keys.k_columns);
  if (gradients.grad_k) {
    add_key_gradients(t, steps, s.weights, s.grad_rows, gradients.grad_v);
    add_key_gradients(t, steps, s.slopes, s.q_rows, gradients.grad_k);
  }
}

void write_row(const AttentionTarget& target, int64_t offset, int dim, const float* src,
               float scale) {
  const F32x16 factor = F32x16::broadcast(scale);
  fetch_row(target, offset + kWriteRowsAhead * target.stride, dim);
  with_elements(target, [&](auto* dst) {
    for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
      store_lanes(F32x16::load(src + c) * factor, dst + offset + c, lanes);
    });
  });
}

// grad_q lies in columns: sixteen rows at a time are turned and written.
void write_queries(const Tiled& t, const Rows& rows) {
  const AttentionGradients& args = t.args;
  for (int block = 0; block < rows.count; block += 16) {
    for (int column = 0; column < t.columns; ++column) {
      __m512i words[16];
      const float* src = t.scratch.grad_q + column * 16 * kAttentionRowsMax + block;
#pragma GCC unroll 16
      for (int c = 0; c < 16; ++c) words[c] = _mm512_loadu_si512(src + c * kAttentionRowsMax);
      transpose_words(words);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        _mm512_storeu_si512(t.scratch.block + i * t.row_floats + column * 16, words[i]);
      }
    }
    for (int i = 0; i < min_of(rows.count - block, 16); ++i) {
      const int row = rows.begin + block + i;
      const int64_t position = row / args.head_count - args.grad_q_begin;
      const int64_t offset =
          position * args.grad_q.stride + int64_t{row % args.head_count} * args.head_dim;
      write_row(args.grad_q, offset, args.head_dim, t.scratch.block + i * t.row_floats, args.scale);
    }
  }
}

// The first key of the first tile that rows from `row` on see.
int first_tile_key(const Tiled& t, int row) {
  const int position = row / t.args.head_count;
  const int first =
      t.args.window > 0 && position >= t.args.window ? position - t.args.window + 1 : 0;
  return first / kKeys * kKeys;
}

// All keys that the rows see meet them, in ascending order; then grad_q of the rows is written.
// `sequence`: the keys are all loaded, and their gradients are summed, too.
void query_rows(const Tiled& t, const Rows& rows, bool sequence) {
  const AttentionTiledGradients& s = t.scratch;
  load_rows(t, rows);
  std::memset(s.grad_q, 0, sizeof(float) * kAttentionRowsMax * 16 * t.columns);
  const int end = (rows.begin + rows.count - 1) / t.args.head_count + 1;
  for (int key = first_tile_key(t, rows.begin); key < end; key += kKeys) {
    const AttentionTiledKeys keys = t.keys_at(sequence ? key / kKeys : 0);
    if (!sequence) load_keys(t, key, keys);
    const int64_t offset = key * t.row_floats;
    add_gradients(
        t, rows, key, keys,
        {true, sequence ? s.grad_k + offset : nullptr, sequence ? s.grad_v + offset : nullptr});
  }
  write_queries(t, rows);
}

void write_keys(const Tiled& t, int key_begin, int count) {
  const AttentionGradients& args = t.args;
  for (int j = 0; j < count; ++j) {
    const int64_t key = int64_t{key_begin} + j - args.grad_k_begin;
    if (key < 0 || key_begin + j >= args.grad_k_end) continue;
    write_row(args.grad_k, key * args.grad_k.stride, args.head_dim,
              t.scratch.grad_k + j * t.row_floats, args.scale);
    write_row(args.grad_v, key * args.grad_v.stride, args.head_dim,
              t.scratch.grad_v + j * t.row_floats, 1.0f);
  }
}

void clear_keys(const Tiled& t, int count) {
  const int64_t tiles = (int64_t{count} + kKeys - 1) / kKeys;
  const int64_t bytes = static_cast<int64_t>(sizeof(float)) * tiles * kKeys * t.row_floats;
  std::memset(t.scratch.grad_k, 0, bytes);
  std::memset(t.scratch.grad_v, 0, bytes);
}

Tiled make_tiled(const AttentionGradients& args, int key_count) {
  return {.args = args,
          .scratch = attention_tiled_gradients(args.scratch, args.head_dim, key_count),
          .steps = attention_depth_steps(args.head_dim),
          .columns = attention_column_tiles(args.head_dim),
          .row_floats = attention_row_floats(args.head_dim),
          .factor = (args.cap > 0 ? args.cap : args.scale) * kLog2E,
          .inner = args.cap > 0 ? args.scale * (1.0f / args.cap) : 0.0f};
}

}  // namespace

void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,
                                int32_t row_count) noexcept {
  const TileUnit unit(16);
  query_rows(make_tiled(args, kKeys), {row_begin, row_count}, false);
}

void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept {
  const TileUnit unit(16);
  const Tiled t = make_tiled(args, kKeys);
  const int count = t.key_count(key_begin);
  clear_keys(t, count);
  load_keys(t, key_begin, t.scratch.keys);
  int64_t end = args.length;
  if (args.window > 0 && int64_t{key_begin} + count - 1 + args.window < end) {
    end = int64_t{key_begin} + count - 1 + args.window;
  }
  const int row_end = static_cast<int>(t.rows_until(end));
  for (int row = static_cast<int>(t.rows_until(key_begin)); row < row_end;
       row += kAttentionRowsMax) {
    const Rows rows{row, min_of(row_end - row, kAttentionRowsMax)};
    load_rows(t, rows);
    add_gradients(t, rows, key_begin, t.scratch.keys, {false, t.scratch.grad_k, t.scratch.grad_v});
  }
  write_keys(t, key_begin, count);
}

void attention_backward_sequence(const AttentionGradients& args) noexcept {
  const TileUnit unit(16);
  const Tiled t = make_tiled(args, args.length);
  clear_keys(t, args.length);
  for (int key = 0; key < args.length; key += kKeys) load_keys(t, key, t.keys_at(key / kKeys));
  const int row_count = args.length * args.head_count;
  for (int row = 0; row < row_count; row += kAttentionRowsMax) {
    query_rows(t, {row, min_of(row_count - row, kAttentionRowsMax)}, true);
  }
  write_keys(t, 0, args.length);
}

}  // namespace jige::cpu::JIGE_ISA_NS

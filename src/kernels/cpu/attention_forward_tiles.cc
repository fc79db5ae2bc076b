// Forward attention in bf16, on matrix tiles or in pairs: sixteen query rows at a time against a
// tile of packed keys. The arithmetic is stated in attention.h.
//
// While the vector units weigh the scores of sixteen rows, the tile unit multiplies those of the
// next and the weighed values of the previous: what it reads has left the store buffer by then.
#include <optional>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_distance_tiles.h"
#include "kernels/cpu/attention_few.h"
#include "kernels/cpu/attention_load_tiles.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

// Up to sixteen rows, the keys of the tile that some of them see, and where their scores are.
struct Group {
  int row = 0;
  int rows = 0;
  int key = 0;  // the tile's first
  AttentionRange seen{INT32_MAX, 0};
  bool whole = false;  // sixteen rows, all of which see all keys of the tile
  float* scores = nullptr;
  uint16_t* weights = nullptr;

  bool empty() const { return seen.begin >= seen.end; }
  int step_begin() const { return seen.begin / 32; }
  int step_end() const { return (seen.end + 31) / 32; }
};

// Group `index` of rows and the tile of keys from `key` on. Only of groups that are not whole the
// ranges are found.
Group make_group(const Tiled& t, int index, int key) {
  const Tile& tile = t.tile;
  Group group;
  group.row = index * 16;
  group.key = key;
  group.rows = min_of(tile.args.row_count - group.row, 16);
  group.scores = t.scratch.scores[index % 2];
  group.weights = t.scratch.weights[index % 2];
  const int first = tile.position(tile.args.row_begin + group.row);
  const int last = tile.position(tile.args.row_begin + group.row + group.rows - 1);
  if (group.rows == 16 && tile.first_key(last) <= key && tile.end_key(first) >= key + kKeys) {
    group.whole = true;
    group.seen = {0, kKeys};
    return group;
  }
  find_ranges(tile, {group.row, group.row + group.rows}, {key, key + kKeys});
  for (int i = 0; i < group.rows; ++i) {
    const AttentionRange range = t.scratch.rows.ranges[group.row + i];
    if (range.begin >= range.end) continue;
    group.seen.begin = min_of(group.seen.begin, range.begin);
    group.seen.end = max_of(group.seen.end, range.end);
  }
  return group;
}

// Scores of a group in the blocks of 16 keys that some row sees.
TileProduct score_product(const Tiled& t, const Group& group) {
  const int block = group.seen.begin / 16;
  TileProduct product;
  product.left = t.scratch.q + group.row * t.depth();
  product.left_row_bytes = t.depth() * 2;
  product.left_step_bytes = kTileRowBytes;
  product.right = t.scratch.k_tiles + block * t.steps * kTileElements;
  product.panel_bytes = t.steps * kTileBytes;
  product.steps = t.steps;
  product.panels = (group.seen.end + 15) / 16 - block;
  product.rows = group.rows;
  product.sums = group.scores + block * 16;
  product.sums_stride = kAttentionScoresStride;
  return product;
}

// Scores of a group become tanh(S · scale / cap).
void cap_scores(const Tiled& t, const Group& group) {
  const F32x16 inner = F32x16::broadcast(t.inner);
  for (int i = 0; i < group.rows; ++i) {
    float* scores = group.scores + i * kAttentionScoresStride;
    for (int key = group.seen.begin / 16 * 16; key < group.seen.end; key += 16) {
      const F32x16 factor = t.in_8_bits() ? F32x16::load(t.scratch.cap_factors + key) : inner;
      tanh(F32x16::load(scores + key) * factor).store(scores + key);
    }
  }
}

// Scores of a group get what the distance adds, as what is multiplied with the scale.
void add_distances(const Tiled& t, const Group& group) {
  const F32x16 inverse = F32x16::broadcast(1.0f / t.tile.args.scale);
  for (int i = 0; i < group.rows; ++i) {
    const float* distances = t.tile.distances_of(t.tile.args.row_begin + group.row + i) + group.key;
    float* scores = group.scores + i * kAttentionScoresStride;
    for (int key = group.seen.begin / 16 * 16; key < group.seen.end; key += 16) {
      fma(F32x16::load(distances + key), inverse, F32x16::load(scores + key)).store(scores + key);
    }
  }
}

// What the scores and the weights of a tile's keys are multiplied by; kScaled: those of a cache in
// 8 bits, by factors of their own.
template <bool kScaled>
struct Factors {
  const float* scores;
  const float* weights;
  float of_all;

  JIGE_INLINE __m512 of_scores(int block) const {
    return kScaled ? _mm512_loadu_ps(scores + block * 16) : _mm512_set1_ps(of_all);
  }
  // Weights for a product with values; zeros outside `lanes`, where scales may be anything.
  JIGE_INLINE __m512 weighed(__m512 values, int block, __mmask16 lanes) const {
    if constexpr (!kScaled) return values;
    return _mm512_maskz_mul_ps(lanes, values, _mm512_loadu_ps(weights + block * 16));
  }
};
template <bool kScaled>
JIGE_INLINE Factors<kScaled> factors_of(const Tiled& t) {
  return {t.scratch.score_factors, t.scratch.value_scales, t.factor};
}

// The largest score of a row in every lane of sixteen keys, behind its factor where keys have
// factors of their own; NaN is passed over.
template <bool kScaled>
JIGE_INLINE __m512 largest_scores(const float* scores, const Factors<kScaled>& factors) {
  __m512 best = _mm512_set1_ps(kLowest);
#pragma GCC unroll 4
  for (int block = 0; block < kKeys / 16; ++block) {
    __m512 score = _mm512_loadu_ps(scores + block * 16);
    if constexpr (kScaled) score = _mm512_mul_ps(score, factors.of_scores(block));
    best = _mm512_max_ps(score, best);
  }
  return best;
}
template <bool kScaled>
__m512 largest_scores_in(const float* scores, const Factors<kScaled>& factors,
                         AttentionRange range) {
  __m512 best = _mm512_set1_ps(kLowest);
  for (int block = range.begin / 16; block * 16 < range.end; ++block) {
    __m512 score = _mm512_loadu_ps(scores + block * 16);
    if constexpr (kScaled) score = _mm512_mul_ps(score, factors.of_scores(block));
    if (covers(range, block, 16)) {
      best = _mm512_max_ps(score, best);
    } else {
      best = _mm512_mask_max_ps(best, lanes_of(range, block), score, best);
    }
  }
  return best;
}

// Lane i of the result is the largest lane of rows[i].
__m512 largest_lanes(const float (&rows)[16][16]) {
  __m512 quads[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512 four[4];
    for (int j = 0; j < 4; ++j) four[j] = _mm512_load_ps(rows[4 * i + j]);
    const __m512d first = _mm512_castps_pd(
        _mm512_max_ps(_mm512_unpacklo_ps(four[0], four[1]), _mm512_unpackhi_ps(four[0], four[1])));
    const __m512d second = _mm512_castps_pd(
        _mm512_max_ps(_mm512_unpacklo_ps(four[2], four[3]), _mm512_unpackhi_ps(four[2], four[3])));
    quads[i] = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(first, second)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(first, second)));
  }
  const auto halve = [](__m512 a, __m512 b) {
    return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  return halve(halve(quads[0], quads[1]), halve(quads[2], quads[3]));
}

// m and alpha of a group.
template <bool kScaled>
void raise_maxima(const Tiled& t, const Group& group) {
  const AttentionForwardScratch& s = t.scratch.rows;
  const Factors<kScaled> factors = factors_of<kScaled>(t);
  alignas(64) float best[16][16];
  for (int i = 0; i < 16; ++i) {
    const float* scores = group.scores + i * kAttentionScoresStride;
    const __m512 largest = group.whole ? largest_scores(scores, factors)
                           : i < group.rows
                               ? largest_scores_in(scores, factors, s.ranges[group.row + i])
                               : _mm512_set1_ps(kLowest);
    _mm512_store_ps(best[i], largest);
  }
  const __m512 before = _mm512_loadu_ps(s.m + group.row);
  __m512 scaled = largest_lanes(best);
  if constexpr (!kScaled) scaled = _mm512_mul_ps(scaled, _mm512_set1_ps(t.factor));
  const __m512 after = _mm512_max_ps(scaled, before);
  _mm512_storeu_ps(s.m + group.row, after);
  _mm512_storeu_ps(s.alpha + group.row, power_of_two(_mm512_sub_ps(before, after)));
}

// Scores of one row become weights in bf16, in the steps of 32 keys of its group. Returns what they
// add to l.
template <bool kAll, bool kScaled>
JIGE_INLINE __m512 weigh_step(const float* scores, int step, AttentionRange range,
                              const Factors<kScaled>& factors, __m512 shift, __m512 sum,
                              uint16_t* weights) {
  __m512 halves[2];
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const int block = 2 * step + half;
    const __m512 x =
        _mm512_fmadd_ps(_mm512_loadu_ps(scores + block * 16), factors.of_scores(block), shift);
    const __mmask16 lanes = kAll ? __mmask16{0xffff} : lanes_of(range, block);
    const __m512 weight = kAll ? power_of_two(x) : power_of_two_in(lanes, x);
    sum = _mm512_add_ps(sum, weight);
    halves[half] = factors.weighed(weight, block, lanes);
  }
  _mm512_storeu_si512(weights + step * 32, narrow_two(halves[0], halves[1]));
  return sum;
}

// kWhole: of a whole group.
template <bool kWhole, bool kScaled>
JIGE_INLINE void weigh_row(const Tiled& t, const Group& group, int i) {
  const AttentionForwardScratch& s = t.scratch.rows;
  const int row = group.row + i;
  const AttentionRange range = kWhole ? AttentionRange{0, kKeys} : s.ranges[row];
  if (range.begin >= range.end) return;
  const float* scores = group.scores + i * kAttentionScoresStride;
  uint16_t* weights = group.weights + i * kKeys;
  const Factors<kScaled> factors = factors_of<kScaled>(t);
  const __m512 shift = _mm512_set1_ps(-s.m[row]);
  __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(s.l + row * 16), _mm512_set1_ps(s.alpha[row]));
  const int step_end = kWhole ? kKeySteps : group.step_end();
#pragma GCC unroll 2
  for (int step = kWhole ? 0 : group.step_begin(); step < step_end; ++step) {
    if (kWhole || covers(range, step, 32)) {
      sum = weigh_step<true>(scores, step, range, factors, shift, sum, weights);
    } else {
      sum = weigh_step<false>(scores, step, range, factors, shift, sum, weights);
    }
  }
  _mm512_storeu_ps(s.l + row * 16, sum);
}

template <bool kScaled>
void weigh_rows(const Tiled& t, const Group& group, TileQueue* queue) {
  raise_maxima<kScaled>(t, group);
  for (int i = 0; i < group.rows; ++i) {
    if (i % 4 == 0) queue->run(i / 4 + 1);
    group.whole ? weigh_row<true, kScaled>(t, group, i) : weigh_row<false, kScaled>(t, group, i);
  }
}

// Scores of a group become weights; m, l and alpha are brought up to date. Meanwhile the products
// of the queue are run.
void weigh(const Tiled& t, const Group& group, TileQueue* queue) {
  if (!group.empty()) {
    if (t.inner > 0) cap_scores(t, group);
    if (t.tile.args.distances) add_distances(t, group);
    t.in_8_bits() ? weigh_rows<true>(t, group, queue) : weigh_rows<false>(t, group, queue);
  }
  queue->run(4);
}

// The weights of a group times values, [16 rows][columns].
TileProduct value_product(const Tiled& t, const Group& group, const uint16_t* v_tiles) {
  TileProduct product;
  product.left = group.weights + group.step_begin() * 32;
  product.left_row_bytes = kKeys * 2;
  product.left_step_bytes = kTileRowBytes;
  product.right = v_tiles + group.step_begin() * kTileElements;
  product.panel_bytes = kKeySteps * kTileBytes;
  product.steps = group.step_end() - group.step_begin();
  product.panels = t.columns;
  product.rows = group.rows;
  product.sums = t.scratch.product;
  product.sums_stride = t.columns * 16;
  return product;
}

// o of one row takes in its product. Adding zero makes one zero of two: steps that a row does not
// see may or may not have been multiplied.
void add_product(const Tiled& t, const Group& group, int i) {
  const AttentionForwardScratch& s = t.scratch.rows;
  const __m512 alpha = _mm512_set1_ps(s.alpha[group.row + i]);
  const float* product = t.scratch.product + i * t.columns * 16;
  float* o = s.o + (group.row + i) * t.tile.row_floats;
  for (int c = 0; c < t.columns * 16; c += 16) {
    const __m512 added = _mm512_add_ps(_mm512_loadu_ps(product + c), _mm512_setzero_ps());
    _mm512_storeu_ps(o + c, _mm512_fmadd_ps(_mm512_loadu_ps(o + c), alpha, added));
  }
}

// The values' tiles with zeros for the keys outside a range.
void copy_seen_values(const Tiled& t, AttentionRange range) {
  for (int step = 0; step < kKeySteps; ++step) {
    for (int pair = 0; pair < 16; ++pair) {
      const int key = step * 32 + pair * 2;
      const auto seen = [&](int j) { return range.begin <= j && j < range.end; };
      const uint32_t lanes = (seen(key) ? 0x55555555u : 0u) | (seen(key + 1) ? 0xaaaaaaaau : 0u);
      for (int column = 0; column < t.columns; ++column) {
        const int64_t at = (column * kKeySteps + step) * kTileElements + pair * 32;
        _mm512_storeu_si512(t.scratch.v_seen + at,
                            _mm512_maskz_loadu_epi16(lanes, t.scratch.v_tiles + at));
      }
    }
  }
}

// A value that is not finite must not meet a weight of zero: rows that do not see all keys go
// alone. REQUIRES: where values are finite, the product of the whole group.
void add_values(const Tiled& t, const Group& group, const Loaded& loaded) {
  const AttentionRange* ranges = t.scratch.rows.ranges + group.row;
  for (int i = 0; i < group.rows; ++i) {
    const AttentionRange range = group.whole ? group.seen : ranges[i];
    if (range.begin >= range.end) continue;
    if (!loaded.finite) {
      copy_seen_values(t, range);
      multiply(value_product(t, group, t.scratch.v_seen));
    }
    add_product(t, group, i);
  }
}

void attend(const Tiled& t, const Loaded& loaded) {
  const int count = (t.tile.args.row_count + 15) / 16;
  std::optional<DistanceProducts> products;
  if (t.tile.args.distance_rows.row_of) products.emplace(t, loaded.tile_begin);
  Group before;
  Group present = make_group(t, 0, loaded.tile_begin);
  if (!present.empty()) multiply(score_product(t, present));
  for (int i = 0; i <= count; ++i) {
    const Group next = i + 1 < count ? make_group(t, i + 1, loaded.tile_begin) : Group{};
    TileQueue queue;
    if (!before.empty() && loaded.finite) queue.add(value_product(t, before, t.scratch.v_tiles));
    if (!next.empty()) queue.add(score_product(t, next));
    if (products && !present.empty()) products->add_to(present.row, present.rows, present.scores);
    weigh(t, present, &queue);
    if (!before.empty()) add_values(t, before, loaded);
    before = present;
    present = next;
  }
}

// Few rows of one position over a cache.
bool takes_few(const AttentionRows& args) {
  return args.keys.blocks && args.row_count <= kFewRows && args.head_dim % 32 == 0 &&
         args.row_begin / args.head_count ==
             (args.row_begin + args.row_count - 1) / args.head_count;
}

void spread_queries(const Tiled& t) {
  for (int i = 0; i < t.tile.args.row_count; ++i) {
    spread_query(t.scratch.q + i * t.depth(), t.depth(), t.scratch.factors + i * t.depth() * 8);
  }
}

template <typename Element>
void attend_few(const Tiled& t, int tile_begin) {
  const AttentionKeys& source = t.tile.args.keys;
  const Group group = make_group(t, 0, tile_begin);
  const int last = t.tile.block_last();
  const int block_begin = group.seen.begin / 16;
  const int block_end = (group.seen.end + 15) / 16;
  const auto* k = static_cast<const Element*>(source.k.data);
  const auto* v = static_cast<const Element*>(source.v.data);
  FewBlocks<Element> keys{.dim = t.depth()};
  FewBlocks<Element> values{.dim = t.depth()};
  for (int block = block_begin; block < block_end; ++block) {
    const int at = tile_begin / 16 + block;
    const int64_t offset = source.blocks[at] * source.block_stride;
    const int64_t next = source.blocks[min_of(at + kKeys / 16, last)] * source.block_stride;
    keys.at[block] = k + offset;
    keys.next[block] = k + next;
    values.at[block] = v + offset;
    values.next[block] = v + next;
    if (t.in_8_bits()) fetch(scales_at(source, next));
  }
  if (t.in_8_bits()) load_scales(t, tile_begin, block_begin, block_end);
  with_few_rows(group.rows, [&](auto rows) {
    score_blocks<rows.value>(keys, block_begin, block_end, t.scratch.factors, group.scores);
  });
  TileQueue none;
  weigh(t, group, &none);
  for (int i = 0; i < group.rows; ++i) {
    spread_weights(group.weights + i * kKeys, t.scratch.few_weights + i * kKeys);
  }
  with_few_rows(group.rows, [&](auto rows) {
    weigh_columns<rows.value, kValueRows<Element, rows.value>>(
        values, group.seen, t.scratch.few_weights, t.scratch.product);
  });
  for (int i = 0; i < group.rows; ++i) add_product(t, group, i);
}

__attribute__((noinline)) void attend_split(const Tiled& t, int split) {
  const Tile& tile = t.tile;
  start_split(tile);
  const bool few = takes_few(tile.args);
  const int end = min_of((split + 1) * kAttentionSplitKeys, tile.end_key(tile.position_last()));
  const int first_seen = tile.first_key(tile.position_first());
  int key = max_of(split * kAttentionSplitKeys, first_seen / kKeys * kKeys);
  for (; key < end; key += kKeys) {
    if (few && t.in_8_bits()) {
      attend_few<int8_t>(t, key);
    } else if (few) {
      attend_few<uint16_t>(t, key);
    } else {
      attend(t, load_tile(t, key, {max_of(first_seen - key, 0), min_of(end - key, kKeys)}));
    }
  }
  for (int i = 0; i < tile.args.row_count; ++i) tile.scratch.m[i] *= kLn2;
}

}  // namespace

void attention_rows(const AttentionRows& args) noexcept {
  const AttentionTiledScratch scratch =
      attention_tiled_scratch(args.scratch, args.head_dim, args.row_count);
  const Tiled t{.tile = {args, scratch.rows, attention_row_floats(args.head_dim)},
                .scratch = scratch,
                .steps = attention_depth_steps(args.head_dim),
                .columns = attention_column_tiles(args.head_dim),
                .factor = (args.cap > 0 ? args.cap : args.scale) * kLog2E,
                .inner = args.cap > 0 ? args.scale * (1.0f / args.cap) : 0.0f};
  load_queries(t);
  const auto attend_all = [&t] {
    run_splits(t.tile, [&t](int split) {
      const ZeroDenormals mode;
      attend_split(t, split);
    });
  };
  if (takes_few(args)) {
    spread_queries(t);
    return attend_all();
  }
  // Rows by distance come sixteen at a time, however few queries there are.
  const TileUnit unit(args.distance_rows.row_of ? 16 : min_of(args.row_count, 16));
  attend_all();
}

}  // namespace jige::cpu::JIGE_ISA_NS

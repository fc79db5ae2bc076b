#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_distance_simd.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/attention_tile.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

// A paged tile of at most this many rows is read where it lies; for more rows, widening and padding
// it once is cheaper.
constexpr int kRowsReadInPlace = 32;

void load_queries(const Tile& tile) {
  const AttentionRows& args = tile.args;
  for (int i = 0; i < args.row_count; ++i) {
    const int row = args.row_begin + i;
    const int64_t offset =
        row / args.head_count * args.q.stride + int64_t{row % args.head_count} * args.head_dim;
    with_elements(args.q, [&](const auto* q) {
      pack_rows(q + offset, 0, 1, args.head_dim, args.scale, tile.scratch.q + i * tile.row_floats,
                tile.row_floats);
    });
  }
}

// The lanes of block 16·i … 16·i + 15 that are in a range.
F32x16::Mask lanes_in(AttentionRange range, int block) {
  const F32x16 lane = F32x16::iota() + F32x16::broadcast(static_cast<float>(block * 16));
  return (F32x16::broadcast(static_cast<float>(range.begin)) <= lane) &
         (lane < F32x16::broadcast(static_cast<float>(range.end)));
}

// Calls whole(address, block) for the blocks of 16 scores that a range covers, part(address, block,
// lanes) for those that it covers in part, in ascending order.
template <typename Whole, typename Part>
JIGE_INLINE void for_each_block(float* scores, AttentionRange range, Whole&& whole, Part&& part) {
  if (range.begin == 0 && range.end == kAttentionTileKeys) {
    for (int block = 0; block < 4; ++block) whole(scores + block * 16, block);
    return;
  }
  for (int block = range.begin / 16; block * 16 < range.end; ++block) {
    if (range.begin <= block * 16 && range.end >= block * 16 + 16) {
      whole(scores + block * 16, block);
    } else {
      part(scores + block * 16, block, lanes_in(range, block));
    }
  }
}

// What becomes of scores first: nothing, a cap, or what the distance adds.
enum class ScoreForm { kPlain, kCapped, kDistant };

// Scores become weights; m, l and alpha are brought up to date. kScaled: scores are those of whole
// numbers and get the scales of the keys, weights those of the values. The tile's keys are those
// from `key` on.
template <bool kScaled, ScoreForm kForm>
void softmax(const Tile& tile, const LoadedTile& keys, int key) {
  constexpr bool kCapped = kForm == ScoreForm::kCapped;
  constexpr bool kDistant = kForm == ScoreForm::kDistant;
  const AttentionForwardScratch& s = tile.scratch;
  const float* distances = nullptr;  // of a row, from the tile's first key on
  const float cap = tile.args.cap;
  const float reciprocal = kCapped ? 1.0f / cap : 0.0f;
  const auto finished = [&](float* score, int block) {
    F32x16 value = F32x16::load(score);
    if constexpr (kScaled) value = value * F32x16::load(keys.k_scales[block]);
    if constexpr (kCapped) value = soft_cap(value, cap, reciprocal);
    if constexpr (kDistant) value = value + F32x16::load(distances + block * 16);
    if constexpr (kScaled || kForm != ScoreForm::kPlain) value.store(score);
    return value;
  };
  const auto store = [&](F32x16 weight, float* score, int block) {
    if constexpr (kScaled) weight = weight * F32x16::load(keys.v_scales[block]);
    weight.store(score);
  };
  for (int i = 0; i < tile.args.row_count; ++i) {
    if (s.ranges[i].begin >= s.ranges[i].end) continue;
    if constexpr (kDistant) distances = tile.distances_of(tile.args.row_begin + i) + key;
    F32x16 best = F32x16::broadcast(s.m[i]);
    for_each_block(
        s.scores + i * kAttentionTileKeys, s.ranges[i],
        [&](float* score, int block) { best = max(finished(score, block), best); },
        [&](float* score, int block, F32x16::Mask seen) {
          best = max(select(seen, finished(score, block), best), best);
        });
    s.m_next[i] = horizontal_max(best);
  }
  for (int i = 0; i < tile.args.row_count; i += 16) {
    exp_weight(F32x16::load(s.m + i) - F32x16::load(s.m_next + i)).store(s.alpha + i);
  }
  for (int i = 0; i < tile.args.row_count; ++i) {
    if (s.ranges[i].begin >= s.ranges[i].end) continue;
    const F32x16 m = F32x16::broadcast(s.m_next[i]);
    F32x16 sum = F32x16::load(s.l + i * 16) * F32x16::broadcast(s.alpha[i]);
    for_each_block(
        s.scores + i * kAttentionTileKeys, s.ranges[i],
        [&](float* score, int block) {
          const F32x16 weight = exp_weight(F32x16::load(score) - m);
          store(weight, score, block);
          sum = sum + weight;
        },
        [&](float* score, int block, F32x16::Mask seen) {
          const F32x16 weight = exp_weight(F32x16::load(score) - m);
          store(weight, score, block);
          sum = sum + select(seen, weight, F32x16::zero());
        });
    sum.store(s.l + i * 16);
    s.m[i] = s.m_next[i];
  }
}

template <bool kScaled>
void weigh(const Tile& tile, const LoadedTile& keys, int key) {
  if (tile.args.cap > 0) return softmax<kScaled, ScoreForm::kCapped>(tile, keys, key);
  if constexpr (!kScaled) {
    if (tile.args.distances) return softmax<kScaled, ScoreForm::kDistant>(tile, keys, key);
  }
  softmax<kScaled, ScoreForm::kPlain>(tile, keys, key);
}

// One tile of keys, from `key` on. `next` is where the blocks of the following tile lie, when
// keys.in_place; the present ones where there are none.
template <typename KElement, typename VElement, bool kInPlace, bool kScaled>
void attend(const Tile& tile, const LoadedTile& keys, int key, const int64_t* next) {
  const AttentionForwardScratch& s = tile.scratch;
  ScoresTile<KElement> scores;
  scores.q = s.q;
  scores.q_stride = tile.row_floats;
  scores.head_dim = tile.args.head_dim;
  scores.scores = s.scores;
  scores.ranges = s.ranges;
  ProductTile<VElement> product;
  product.out = s.o;
  product.out_stride = tile.row_floats;
  product.alpha = s.alpha;
  product.a = s.scores;
  product.b_stride = keys.v_stride;
  product.columns = attention_padded_dim(tile.args.head_dim);
  product.ranges = s.ranges;
  for (int block = 0; block < 4; ++block) {
    scores.k_columns[block] = static_cast<const KElement*>(keys.k_columns[block]);
    product.b[block] = static_cast<const VElement*>(keys.v_rows[block]);
    if constexpr (kInPlace) {
      scores.next[block] = static_cast<const KElement*>(tile.args.keys.k.data) + next[block];
      product.next[block] = static_cast<const VElement*>(tile.args.keys.v.data) + next[block];
      if constexpr (kScaled) fetch(scales_at(tile.args.keys, next[block]));
    }
  }
  scores_tile<kInPlace>(scores, tile.args.row_count);
  if constexpr (!kInPlace && !kScaled) {
    if (tile.args.distance_rows.row_of) DistanceProducts(tile, keys, key).add();
  }
  weigh<kScaled>(tile, keys, key);
  product_tile<false, kInPlace>(product, tile.args.row_count);
}

// Offsets in the cache of the blocks of the tile after that of `key`, where the rows see some.
void find_next(const Tile& tile, int key, int64_t* next) {
  const int last_block = tile.block_last();
  for (int i = 0; i < 4; ++i) {
    const int block = min_of((key + kAttentionTileKeys) / 16 + i, last_block);
    next[i] = tile.args.keys.blocks[block] * tile.args.keys.block_stride;
  }
}

void attend_split(const Tile& tile, int split) {
  start_split(tile);
  const int end = min_of((split + 1) * kAttentionSplitKeys, tile.end_key(tile.position_last()));
  const int first_seen = tile.first_key(tile.position_first());
  int key =
      max_of(split * kAttentionSplitKeys, first_seen / kAttentionTileKeys * kAttentionTileKeys);
  for (; key < end; key += kAttentionTileKeys) {
    find_ranges(tile, {0, tile.args.row_count}, {key, key + kAttentionTileKeys});
    const bool in_place = tile.args.row_count <= kRowsReadInPlace;
    const LoadedTile keys =
        load_tile(tile.args.keys, tile.args.head_dim, key, max_of(first_seen - key, 0),
                  min_of(end - key, kAttentionTileKeys), in_place, tile.scratch.tile);
    int64_t next[4];
    if (keys.in_place) find_next(tile, key, next);
    const bool scaled = tile.args.keys.scales != nullptr;
    if (keys.in_place && scaled) {
      attend<int8_t, int8_t, true, true>(tile, keys, key, next);
    } else if (keys.in_place) {
      keys.k_is_bf16 ? attend<Bf16, Bf16, true, false>(tile, keys, key, next)
                     : attend<float, float, true, false>(tile, keys, key, next);
    } else if (scaled) {
      attend<float, float, false, true>(tile, keys, key, nullptr);
    } else {
      keys.k_is_bf16 ? attend<Bf16, float, false, false>(tile, keys, key, nullptr)
                     : attend<float, float, false, false>(tile, keys, key, nullptr);
    }
  }
}

}  // namespace

void attention_rows(const AttentionRows& args) noexcept {
  const Tile tile = make_tile(args);
  load_queries(tile);
  run_splits(tile, [&](int split) { attend_split(tile, split); });
}

void attention_merge(const AttentionRows& args) noexcept {
  const Tile tile = make_tile(args);
  const float* partial = args.partial;
  for (int split = args.split_begin; split < args.split_end; ++split) {
    merge_split(tile, split, {partial, partial + args.row_count, partial + 2 * args.row_count});
    partial += (2 + tile.row_floats) * args.row_count;
  }
  const AttentionForwardScratch& s = tile.scratch;
  write_results(tile, {s.merged_m, s.merged_l, s.merged});
}

}  // namespace jige::cpu::JIGE_ISA_NS

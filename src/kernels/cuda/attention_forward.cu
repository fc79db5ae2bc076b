// Forward attention on tensor cores: a block of warps for a tile of queries and a query head, keys
// and values in tiles that are copied while the tile before is computed with.
#include "kernels/cuda/attention_flash.cuh"
#include "kernels/cuda/attention_plain.h"
#include "kernels/cuda/attention_soften.cuh"

namespace jige::cuda {
namespace {

template <typename Case>
struct ForwardPlan {
  static constexpr int kDim = Case::kDim;
  static constexpr int kQueries = Case::kSmall ? kSmallTile : kLargeTile;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  static constexpr int kM = kDim <= 128 && !Case::kSmall ? 2 : 1;  // matrices of 16 rows of a warp
  static constexpr int kThreads = kQueries / (16 * kM) * kWarp;
  static constexpr int kBlocks = kDim <= 64 ? 3 : kDim <= 128 ? 2 : 1;  // of a multiprocessor
  static constexpr int64_t kBytes = tile_bytes<kDim>(kQueries + 4 * kKeys);
};

struct ForwardArgs {
  FlatAttentionForward flat;
  Scores scores;
};

// `ahead` is the position of this lane's first row less that of its first key.
template <int kM, int kN>
__device__ void hide_unseen(float (&scores)[kM][kN][4], int ahead, unsigned span) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (!sees(ahead + 16 * m + 8 * (e / 2), 8 * n + e % 2, span)) scores[m][n][e] = -INFINITY;
      }
    }
  }
}

// The same of queries that see `reach` keys to either side, themselves among them; `left`: keys
// from this lane's first one to the end of the sequence.
template <int kM, int kN>
__device__ void hide_far(float (&scores)[kM][kN][4], int ahead, int reach, int left) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 8 * n + e % 2;
        const bool seen = abs(ahead + 16 * m + 8 * (e / 2) - key) < reach && key < left;
        if (!seen) scores[m][n][e] = -INFINITY;
      }
    }
  }
}

// Which keys of a sequence the queries of some rows see: those before them or, with kBothSides, to
// both sides.
template <bool kBothSides>
struct Seen {
  int window;  // 0: none
  int length;  // of the sequence

  // Of the queries from `first` on.
  __device__ int begin(int first) const { return window > 0 ? max(0, first - window + 1) : 0; }
  // Of the queries up to `last`.
  __device__ int end(int last) const {
    if constexpr (!kBothSides) return min(last + 1, length);
    return window > 0 && length - last > window ? last + window : length;
  }
  // Of queries from `first` to `last` and keys from `key` to before `key_end`: whether none sees
  // any, and whether some do not see some.
  __device__ bool none(int first, int last, int key, int key_end) const {
    const bool before = window > 0 && key_end <= first - window + 1;
    if constexpr (!kBothSides) return first >= length || key > last || before;
    return first >= length || (window > 0 && key - last >= window) || before;
  }
  __device__ bool hides(int first, int last, int key, int key_end) const {
    const bool before = window > 0 && key <= last - window;
    if constexpr (!kBothSides) return key_end - 1 > first || before;
    return key_end > length || (window > 0 && key_end - 1 - first >= window) || before;
  }
};

// Adds the numbers that distances have to products of rows, which are to be multiplied with
// `scale`. Those of keys and queries that a sequence of `length` tokens does not have may be any.
template <int kM, int kN>
__device__ void add_distances(float (&scores)[kM][kN][4], const float* distances, int ahead,
                              int length, float scale) {
  const float inverse = 1.0f / scale;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int distance = 8 * n + e % 2 - (ahead + 16 * m + 8 * (e / 2));
        const int known = min(max(distance, 1 - length), length - 1);
        scores[m][n][e] = fmaf(distances[known], inverse, scores[m][n][e]);
      }
    }
  }
}

// Products of queries from `first` on and keys from `key` on become scores, without the factor.
template <bool kBothSides, int kM, int kN>
__device__ void finish_scores(const ForwardArgs& args, const Seen<kBothSides>& seen, int head,
                              int first, int key, float (&scores)[kM][kN][4]) {
  const FlatAttention& shape = args.flat.attention;
  const int lane_first = lane_id() % 4 * 2;  // of its keys
  const int ahead = lane_id() / 4 - lane_first + first - key;
  if constexpr (kBothSides) {
    const AttentionDistances& by = args.flat.distances;
    if (by.scores) {
      add_distances(scores, by.scores + head * by.stride, ahead, seen.length, shape.scale);
    }
  }
  if (args.scores.bend > 0) bend(scores, args.scores.bend);
  if (!seen.hides(first, first + 16 * kM - 1, key, key + 8 * kN)) return;
  if constexpr (kBothSides) {
    const auto reach = static_cast<int>(span_of(shape));
    hide_far(scores, ahead, reach, seen.length - key - lane_first);
  } else {
    hide_unseen(scores, ahead, span_of(shape));
  }
}

// The sink's part, lse, and what the rows are to be multiplied with.
template <int kM>
__device__ void finish_rows(const ForwardArgs& args, RowState<kM>& state, int head, int64_t row,
                            int count, float (&factors)[kM][2]) {
  const FlatAttention& shape = args.flat.attention;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state.sum[m][half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      float base = state.most[m][half] * args.scores.factor;
      float shrink = 1.0f;
      if (shape.sinks) {
        const float sink = shape.sinks[head] * kLog2e;
        const float most = fmaxf(base, sink);
        shrink = fast_exp2(base - most);
        sum = fmaf(sum, shrink, fast_exp2(sink - most));
        base = most;
      }
      factors[m][half] = shrink / sum;
      const int r = 16 * m + 8 * half + lane_id() / 4;
      if (args.flat.lse && r < count && lane_id() % 4 == 0) {
        args.flat.lse[(row + r) * args.flat.lse_stride + head] = fmaf(base, kLn2, logf(sum));
      }
    }
  }
}

template <typename Case, bool kBothSides>
__global__ void __launch_bounds__(ForwardPlan<Case>::kThreads, ForwardPlan<Case>::kBlocks)
    flash_forward_kernel(ForwardArgs args) {
  begin_kernel();
  using Plan = ForwardPlan<Case>;
  constexpr int kDim = Plan::kDim;
  constexpr int kQueries = Plan::kQueries;
  constexpr int kKeys = Plan::kKeys;
  constexpr int kM = Plan::kM;
  constexpr int kTile = kKeys * kStride<kDim>;
  const FlatAttention& shape = args.flat.attention;
  const auto block = static_cast<int>(blockIdx.x);
  const AttentionTile tile = args.flat.tiles.data[block / shape.head_count];
  const int head = block % shape.head_count;
  const int64_t kv_column = int64_t{head / (shape.head_count / shape.kv_head_count)} * kDim;
  const Seen<kBothSides> seen = {shape.window, tile.length};
  const int key_end = seen.end(tile.begin + kQueries - 1);
  const int key_begin = seen.begin(tile.begin) / kKeys * kKeys;

  auto* q = reinterpret_cast<Bf16*>(dynamic_shared());
  Bf16* k = q + kQueries * kStride<kDim>;
  Bf16* v = k + 2 * kTile;
  const auto* k_rows = static_cast<const Bf16*>(shape.k.data) + kv_column;
  const auto* v_rows = static_cast<const Bf16*>(shape.v.data) + kv_column;
  const auto copy_keys = [&](int key, int stage) {
    const int64_t row = int64_t{tile.row} + key;
    copy_tile<kDim, kKeys, Plan::kThreads>(k + stage * kTile, k_rows + row * shape.k.stride,
                                           shape.k.stride, tile.length - key);
    copy_tile<kDim, kKeys, Plan::kThreads>(v + stage * kTile, v_rows + row * shape.v.stride,
                                           shape.v.stride, tile.length - key);
  };
  const int64_t row_begin = int64_t{tile.row} + tile.begin;
  copy_tile<kDim, kQueries, Plan::kThreads>(
      q, static_cast<const Bf16*>(shape.q.data) + row_begin * shape.q.stride + int64_t{head} * kDim,
      shape.q.stride, tile.length - tile.begin);
  copy_keys(key_begin, 0);
  copy_async_commit();

  const int own_row = 16 * kM * warp_id();
  const int first = tile.begin + own_row;  // position of the warp's first row
  const int last = first + 16 * kM - 1;
  Bf16* own_q = q + own_row * kStride<kDim>;
  float sums[kM][kDim / 8][4];
  RowState<kM> state;
  clear(sums);
  state.clear();
  int stage = 0;
  for (int key = key_begin; key < key_end; key += kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    if (key + kKeys < key_end) copy_keys(key + kKeys, stage ^ 1);
    copy_async_commit();
    if (seen.none(first, last, key, key + kKeys)) continue;
    float scores[kM][kKeys / 8][4];
    multiply_rows<kDim>(scores, own_q, k + stage * kTile);
    finish_scores(args, seen, head, first, key, scores);
    soften(scores, state, sums, args.scores.factor);
    add_weighted<kDim>(sums, scores, v + stage * kTile);
  }
  const int count = tile.length - first;
  float factors[kM][2];
  finish_rows(args, state, head, row_begin + own_row, count, factors);
  store_rows<kDim>(
      args.flat.dst, row_begin + own_row, int64_t{head} * kDim, count, sums,
      [&](int m, int half) { return factors[m][half]; }, own_q);
}

// Heads that causal attention has no tiles of.
constexpr int kNarrowHead = 32;

bool forward_on_tensor_cores(const FlatAttentionForward& args) {
  const bool narrow = args.both_sides && args.attention.head_dim == kNarrowHead;
  return (narrow ? flash_takes_types(args.attention) : flash_takes(args.attention)) &&
         flash_aligned(args.dst.data, args.dst.type, args.dst.stride) && !args.distances.row_of;
}

template <typename Case, bool kBothSides>
void launch_flash_forward(const LaunchStream& stream, const FlatAttentionForward& args) {
  using Plan = ForwardPlan<Case>;
  const auto blocks = static_cast<unsigned>(args.tiles.count * args.attention.head_count);
  launch(stream, {blocks, Plan::kThreads, Plan::kBytes}, flash_forward_kernel<Case, kBothSides>,
         ForwardArgs{args, scores_of(args.attention)});
}

}  // namespace

int32_t attention_forward_rows(const LaunchStream& stream, const FlatAttentionForward& args) {
  if (!forward_on_tensor_cores(args)) return kPlainAttentionRows;
  return flash_queries(stream, args.attention, args.rows);
}

void attention_forward(const LaunchStream& stream, const FlatAttentionForward& args) {
  if (!forward_on_tensor_cores(args)) return plain_attention_forward(stream, args);
  const bool small = args.tiles.rows == kSmallTile;
  if (args.attention.head_dim == kNarrowHead) {
    if (small) return launch_flash_forward<FlashCase<kNarrowHead, true>, true>(stream, args);
    return launch_flash_forward<FlashCase<kNarrowHead, false>, true>(stream, args);
  }
  with_flash_case(args.attention.head_dim, small, [&](auto which) {
    using Case = decltype(which);
    if (args.both_sides) return launch_flash_forward<Case, true>(stream, args);
    launch_flash_forward<Case, false>(stream, args);
  });
}

}  // namespace jige::cuda

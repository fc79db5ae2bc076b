// Backward attention on tensor cores, in two kernels that each recompute the weights of a tile from
// lse: one for the gradients of keys and values, a block for a tile of keys and a key/value head,
// and one for those of queries, a block for a tile of queries and a query head. So every sum stays
// in the registers of one warp, in a fixed order. Products of scores are (keys, queries) in the
// one and (queries, keys) in the other, so that weights are at once the left side of the next.
#include "kernels/cuda/attention_flash.cuh"
#include "kernels/cuda/attention_plain.h"

namespace jige::cuda {
namespace {

constexpr int kQueries = 128;  // of a block for gradients of queries

// A factor of all rows.
struct Constant {
  float value;
  __device__ float operator()(int, int) const { return value; }
};

struct BackwardArgs {
  FlatAttentionBackward flat;
  Scores scores;
};

__device__ const Bf16* bf16_at(const ConstRows& rows, int64_t row, int64_t column) {
  return static_cast<const Bf16*>(rows.data) + row * rows.stride + column;
}

// Calls body(m, n, e) for the registers of accumulators.
template <int kM, int kN, typename Body>
__device__ void for_registers(Body body) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) body(m, n, e);
    }
  }
}

// With scores as they come from the product and gradients of weights: those become gradients of
// scores and these weights. seen(m, n, e) tells which are not hidden, where any is; statistics(m,
// n, e) gives lse · log2 e and the sum of the query's row.
template <bool kBends, int kM, int kN, typename Seen, typename Statistics>
__device__ void weigh(float (&scores)[kM][kN][4], float (&grads)[kM][kN][4], const Scores& how,
                      bool hides, Seen seen, Statistics statistics) {
  if (kBends) {
    for_registers<kM, kN>(
        [&](int m, int n, int e) { scores[m][n][e] = bounded_tanh(scores[m][n][e] * how.bend); });
  }
  if (hides) {
    for_registers<kM, kN>([&](int m, int n, int e) {
      if (!seen(m, n, e)) scores[m][n][e] = -INFINITY;
    });
  }
  for_registers<kM, kN>([&](int m, int n, int e) {
    const float2 row = statistics(m, n, e);
    const float score = scores[m][n][e];
    const float weight = fast_exp2(fmaf(score, how.factor, -row.x));
    const float slope = kBends ? weight * fmaxf(fmaf(-score, score, 1.0f), 0.0f) : weight;
    scores[m][n][e] = weight;
    grads[m][n][e] = slope * (grads[m][n][e] - row.y);
  });
}

template <int kDim>
struct KeysPlan {
  static constexpr int kParts = kDim <= 128 ? 1 : 2;  // of the columns, each with warps of its own
  static constexpr int kColumns = kDim / kParts;
  static constexpr int kM = kDim <= 64 ? 2 : 1;
  static constexpr int kKeys = kDim <= 64 ? 128 : 64;
  static constexpr int kQueryRows = kDim > 64 && kDim <= 128 ? 64 : 32;
  static constexpr int kThreads = kKeys / (16 * kM) * kParts * kWarp;
  static constexpr int kBlocks = kDim <= 128 ? 2 : 1;
  static constexpr int64_t kTilesBytes = tile_bytes<kDim>(2 * kKeys + 4 * kQueryRows);
  static constexpr int64_t kBytes = kTilesBytes + 2 * kQueryRows * int64_t{sizeof(float2)};
};

// The tiles of queries that see a tile of keys, over the heads of a group; heads ascending.
struct QueryWalk {
  int begin, end;  // positions
  int head, heads_end;
  int at;

  __device__ bool done() const { return head == heads_end; }
  __device__ void next(int step) {
    at += step;
    if (at < end) return;
    at = begin;
    ++head;
  }
};

template <int kDim>
__device__ void copy_queries(const FlatAttentionBackward& args, const AttentionTile& tile,
                             const QueryWalk& walk, Bf16* q, Bf16* grad) {
  using Plan = KeysPlan<kDim>;
  const int64_t row = int64_t{tile.row} + walk.at;
  const int64_t column = int64_t{walk.head} * kDim;
  const int count = tile.length - walk.at;
  copy_tile<kDim, Plan::kQueryRows, Plan::kThreads>(q, bf16_at(args.attention.q, row, column),
                                                    args.attention.q.stride, count);
  copy_tile<kDim, Plan::kQueryRows, Plan::kThreads>(grad, bf16_at(args.grad_dst, row, column),
                                                    args.grad_dst.stride, count);
}

// lse · log2 e and the sum of this thread's query of a tile; weights beyond the sequence are zero.
__device__ float2 query_statistics(const FlatAttentionBackward& args, const AttentionTile& tile,
                                   const QueryWalk& walk, int query) {
  if (walk.at + query >= tile.length) return make_float2(INFINITY, 0.0f);
  const int64_t i = walk.head * args.rows + tile.row + walk.at + query;
  return make_float2(args.scratch[i], args.scratch[i + args.rows * args.attention.head_count]);
}

// One tile of queries: sums of a warp's keys from first_key on, in `own` columns of the tiles.
template <int kDim, bool kBends, typename Sums>
__device__ void add_queries(const BackwardArgs& args, const Bf16* own_k, const Bf16* own_v,
                            const Bf16* q, const Bf16* grad, const float2* statistics,
                            int first_key, int query, int column, Sums& grad_k, Sums& grad_v) {
  using Plan = KeysPlan<kDim>;
  constexpr int kM = Plan::kM;
  const int window = args.flat.attention.window;
  const int last_key = first_key + 16 * kM - 1;
  const int last_query = query + Plan::kQueryRows - 1;
  if (last_query < first_key || (window > 0 && query >= last_key + window)) return;
  // The position of this lane's first query less that of its first key.
  const int column_of_lane = lane_id() % 4 * 2;
  const int ahead = query + column_of_lane - first_key - lane_id() / 4;
  float weights[kM][Plan::kQueryRows / 8][4];
  float slopes[kM][Plan::kQueryRows / 8][4];
  multiply_rows<kDim>(weights, own_k, q);
  multiply_rows<kDim>(slopes, own_v, grad);
  const bool hides = query < last_key || (window > 0 && last_query >= first_key + window);
  weigh<kBends>(
      weights, slopes, args.scores, hides,
      [&](int m, int n, int e) {
        return sees(ahead + 8 * n + e % 2, 16 * m + 8 * (e / 2), span_of(args.flat.attention));
      },
      [&](int, int n, int e) { return statistics[8 * n + column_of_lane + e % 2]; });
  add_weighted<kDim>(grad_v, weights, grad + column);
  add_weighted<kDim>(grad_k, slopes, q + column);
}

template <int kDim, bool kBends>
__global__ void __launch_bounds__(KeysPlan<kDim>::kThreads, KeysPlan<kDim>::kBlocks)
    keys_kernel(BackwardArgs args) {
  using Plan = KeysPlan<kDim>;
  constexpr int kM = Plan::kM;
  constexpr int kTile = Plan::kQueryRows * kStride<kDim>;
  const FlatAttention& shape = args.flat.attention;
  const auto block = static_cast<int>(blockIdx.x);
  const AttentionTile tile = args.flat.key_tiles.data[block / shape.kv_head_count];
  const int kv_head = block % shape.kv_head_count;
  const int group = shape.head_count / shape.kv_head_count;
  const int thread = static_cast<int>(threadIdx.x);

  auto* k = reinterpret_cast<Bf16*>(dynamic_shared());
  Bf16* v = k + Plan::kKeys * kStride<kDim>;
  Bf16* q = v + Plan::kKeys * kStride<kDim>;
  Bf16* grad = q + 2 * kTile;
  auto* statistics = reinterpret_cast<float2*>(dynamic_shared() + Plan::kTilesBytes);
  const int64_t row = int64_t{tile.row} + tile.begin;
  const int64_t kv_column = int64_t{kv_head} * kDim;
  const int count = tile.length - tile.begin;
  copy_tile<kDim, Plan::kKeys, Plan::kThreads>(k, bf16_at(shape.k, row, kv_column), shape.k.stride,
                                               count);
  copy_tile<kDim, Plan::kKeys, Plan::kThreads>(v, bf16_at(shape.v, row, kv_column), shape.v.stride,
                                               count);
  QueryWalk walk{tile.begin, tile.length, kv_head * group, (kv_head + 1) * group, tile.begin};
  if (shape.window > 0) {
    walk.end = static_cast<int>(
        min(int64_t{tile.length}, int64_t{tile.begin} + Plan::kKeys - 1 + shape.window));
  }
  copy_queries<kDim>(args.flat, tile, walk, q, grad);
  copy_async_commit();
  if (thread < Plan::kQueryRows) {
    statistics[thread] = query_statistics(args.flat, tile, walk, thread);
  }

  const int own_row = warp_id() / Plan::kParts * 16 * kM;
  const int column = warp_id() % Plan::kParts * Plan::kColumns;
  Bf16* own_k = k + own_row * kStride<kDim>;
  Bf16* own_v = v + own_row * kStride<kDim>;
  float grad_k[kM][Plan::kColumns / 8][4];
  float grad_v[kM][Plan::kColumns / 8][4];
  clear(grad_k);
  clear(grad_v);
  for (int stage = 0; !walk.done(); stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    const int query = walk.at;
    walk.next(Plan::kQueryRows);
    float2 next = make_float2(0.0f, 0.0f);
    if (!walk.done()) {
      copy_queries<kDim>(args.flat, tile, walk, q + (stage ^ 1) * kTile,
                         grad + (stage ^ 1) * kTile);
      if (thread < Plan::kQueryRows) next = query_statistics(args.flat, tile, walk, thread);
    }
    copy_async_commit();
    add_queries<kDim, kBends>(args, own_k, own_v, q + stage * kTile, grad + stage * kTile,
                              statistics + stage * Plan::kQueryRows, tile.begin + own_row, query,
                              column, grad_k, grad_v);
    if (thread < Plan::kQueryRows) statistics[(stage ^ 1) * Plan::kQueryRows + thread] = next;
  }
  __syncthreads();  // warps of other columns are done with the rows
  store_rows<kDim>(args.flat.grad_k, row + own_row, kv_column + column, count - own_row, grad_k,
                   Constant{shape.scale}, own_k + column);
  store_rows<kDim>(args.flat.grad_v, row + own_row, kv_column + column, count - own_row, grad_v,
                   Constant{1.0f}, own_v + column);
}

template <int kDim>
struct QueriesPlan {
  static constexpr int kM = kDim <= 128 ? 2 : 1;
  static constexpr int kThreads = kQueries / (16 * kM) * kWarp;
  static constexpr int kKeys = kDim <= 64 ? 64 : 32;
  static constexpr int kBlocks = kDim <= 128 ? 2 : 1;
  static constexpr int64_t kBytes = tile_bytes<kDim>(2 * kQueries + 4 * kKeys);
};

// One tile of keys: sums of a warp's queries from `first` on.
template <int kDim, bool kBends, int kM>
__device__ void add_keys(const BackwardArgs& args, const Bf16* own_q, const Bf16* own_grad,
                         const Bf16* k, const Bf16* v, const float2 (&statistics)[kM][2], int first,
                         int key, float (&grad_q)[kM][kDim / 8][4]) {
  constexpr int kKeys = QueriesPlan<kDim>::kKeys;
  const int window = args.flat.attention.window;
  const int last = first + 16 * kM - 1;
  if (key > last || (window > 0 && key + kKeys <= first - window + 1)) return;
  const int ahead = first + lane_id() / 4 - key - lane_id() % 4 * 2;
  float weights[kM][kKeys / 8][4];
  float slopes[kM][kKeys / 8][4];
  multiply_rows<kDim>(weights, own_q, k);
  multiply_rows<kDim>(slopes, own_grad, v);
  const bool hides = key + kKeys - 1 > first || (window > 0 && key <= last - window);
  weigh<kBends>(
      weights, slopes, args.scores, hides,
      [&](int m, int n, int e) {
        return sees(ahead + 16 * m + 8 * (e / 2), 8 * n + e % 2, span_of(args.flat.attention));
      },
      [&](int m, int, int e) { return statistics[m][e / 2]; });
  add_weighted<kDim>(grad_q, slopes, k);
}

template <int kDim, bool kBends>
__global__ void __launch_bounds__(QueriesPlan<kDim>::kThreads, QueriesPlan<kDim>::kBlocks)
    queries_kernel(BackwardArgs args) {
  using Plan = QueriesPlan<kDim>;
  constexpr int kM = Plan::kM;
  constexpr int kTile = Plan::kKeys * kStride<kDim>;
  const FlatAttention& shape = args.flat.attention;
  const auto block = static_cast<int>(blockIdx.x);
  const AttentionTile tile = args.flat.query_tiles.data[block / shape.head_count];
  const int head = block % shape.head_count;
  const int64_t column = int64_t{head} * kDim;
  const int64_t kv_column = int64_t{head / (shape.head_count / shape.kv_head_count)} * kDim;
  const int key_end = min(tile.begin + kQueries, tile.length);
  const int key_begin =
      shape.window > 0 ? max(0, tile.begin - shape.window + 1) / Plan::kKeys * Plan::kKeys : 0;

  auto* q = reinterpret_cast<Bf16*>(dynamic_shared());
  Bf16* grad = q + kQueries * kStride<kDim>;
  Bf16* k = grad + kQueries * kStride<kDim>;
  Bf16* v = k + 2 * kTile;
  const auto copy_keys = [&](int key, int stage) {
    const int64_t row = int64_t{tile.row} + key;
    copy_tile<kDim, Plan::kKeys, Plan::kThreads>(
        k + stage * kTile, bf16_at(shape.k, row, kv_column), shape.k.stride, tile.length - key);
    copy_tile<kDim, Plan::kKeys, Plan::kThreads>(
        v + stage * kTile, bf16_at(shape.v, row, kv_column), shape.v.stride, tile.length - key);
  };
  const int64_t row = int64_t{tile.row} + tile.begin;
  const int count = tile.length - tile.begin;
  copy_tile<kDim, kQueries, Plan::kThreads>(q, bf16_at(shape.q, row, column), shape.q.stride,
                                            count);
  copy_tile<kDim, kQueries, Plan::kThreads>(grad, bf16_at(args.flat.grad_dst, row, column),
                                            args.flat.grad_dst.stride, count);
  copy_keys(key_begin, 0);
  copy_async_commit();

  const int own_row = 16 * kM * warp_id();
  Bf16* own_q = q + own_row * kStride<kDim>;
  float grad_q[kM][kDim / 8][4];
  float2 statistics[kM][2];
  clear(grad_q);
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const QueryWalk walk{0, 0, head, 0, tile.begin};
      statistics[m][half] =
          query_statistics(args.flat, tile, walk, own_row + 16 * m + 8 * half + lane_id() / 4);
    }
  }
  int stage = 0;
  for (int key = key_begin; key < key_end; key += Plan::kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    if (key + Plan::kKeys < key_end) copy_keys(key + Plan::kKeys, stage ^ 1);
    copy_async_commit();
    if (own_row >= count) continue;
    add_keys<kDim, kBends>(args, own_q, grad + own_row * kStride<kDim>, k + stage * kTile,
                           v + stage * kTile, statistics, tile.begin + own_row, key, grad_q);
  }
  store_rows<kDim>(args.flat.grad_q, row + own_row, column, count - own_row, grad_q,
                   Constant{shape.scale}, own_q);
}

bool on_tensor_cores(const FlatAttentionBackward& args) {
  const auto fits = [](const Rows& rows) { return aligned(rows.data, rows.type, rows.stride); };
  return flash_takes(args.attention) && flat_bf16(args.grad_dst) && fits(args.grad_q) &&
         fits(args.grad_k) && fits(args.grad_v);
}

template <int kDim, bool kBends>
void run(const LaunchStream& stream, const BackwardArgs& args) {
  const FlatAttention& shape = args.flat.attention;
  const auto key_blocks = static_cast<unsigned>(args.flat.key_tiles.count * shape.kv_head_count);
  const auto query_blocks = static_cast<unsigned>(args.flat.query_tiles.count * shape.head_count);
  launch(stream, {key_blocks, KeysPlan<kDim>::kThreads, KeysPlan<kDim>::kBytes},
         keys_kernel<kDim, kBends>, args);
  launch(stream, {query_blocks, QueriesPlan<kDim>::kThreads, QueriesPlan<kDim>::kBytes},
         queries_kernel<kDim, kBends>, args);
}

}  // namespace

AttentionBackwardRows attention_backward_rows(const FlatAttentionBackward& args) {
  if (!on_tensor_cores(args)) return {kPlainAttentionRows, kPlainAttentionRows};
  AttentionBackwardRows rows{kQueries, 0};
  with_dim(args.attention.head_dim,
           [&](auto dim) { rows.keys = KeysPlan<decltype(dim)::value>::kKeys; });
  return rows;
}

void attention_backward(const LaunchStream& stream, const FlatAttentionBackward& args) {
  attention_row_sums(stream, args);
  if (!on_tensor_cores(args)) return plain_attention_backward(stream, args);
  const BackwardArgs backward{args, scores_of(args.attention)};
  with_dim(args.attention.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    if (args.attention.cap > 0) return run<kDim, true>(stream, backward);
    run<kDim, false>(stream, backward);
  });
}

}  // namespace jige::cuda

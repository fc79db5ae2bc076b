// Gradients of keys and values (attention_backward.cuh).
#include "kernels/cuda/attention_backward.cuh"

namespace jige::cuda {
namespace {

template <typename Case>
struct KeysPlan {
  static constexpr int kDim = Case::kDim;
  static constexpr int kParts = kDim <= 128 ? 1 : 2;  // of the columns, each with warps of its own
  static constexpr int kColumns = kDim / kParts;
  static constexpr int kM = kDim <= 64 ? 2 : 1;
  static constexpr int kKeys = flash_keys(kDim, Case::kSmall);
  static constexpr int kQueryRows =
      (kDim == 64 || kDim > 128 ? 32 : 64) / (Case::kSmall && kDim >= 128 ? 2 : 1);
  static constexpr int kThreads = kKeys / (16 * kM) * kParts * kWarp;
  static constexpr int kBlocks = kDim <= 64 ? 4 : kDim <= 128 ? 2 : 1;
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

template <typename Case>
__device__ void copy_query_tiles(const FlatAttentionBackward& args, const AttentionTile& tile,
                                 const QueryWalk& walk, Bf16* q, Bf16* grad) {
  using Plan = KeysPlan<Case>;
  constexpr int kDim = Plan::kDim;
  const int64_t row = int64_t{tile.row} + walk.at;
  const int64_t column = int64_t{walk.head} * kDim;
  const int count = tile.length - walk.at;
  copy_tile<kDim, Plan::kQueryRows, Plan::kThreads>(q, bf16_at(args.attention.q, row, column),
                                                    args.attention.q.stride, count);
  copy_tile<kDim, Plan::kQueryRows, Plan::kThreads>(grad, bf16_at(args.grad_dst, row, column),
                                                    args.grad_dst.stride, count);
}

// One tile of queries: sums of a warp's keys from first_key on, in `own` columns of the tiles.
template <typename Case, bool kBends, typename Sums>
__device__ void add_queries(const BackwardArgs& args, const Bf16* own_k, const Bf16* own_v,
                            const Bf16* q, const Bf16* grad, const float2* statistics,
                            int first_key, int query, int column, Sums& grad_k, Sums& grad_v) {
  using Plan = KeysPlan<Case>;
  constexpr int kDim = Plan::kDim;
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

template <typename Case, bool kBends>
__global__ void __launch_bounds__(KeysPlan<Case>::kThreads, KeysPlan<Case>::kBlocks)
    flash_keys_kernel(BackwardArgs args) {
  begin_kernel();
  using Plan = KeysPlan<Case>;
  constexpr int kDim = Plan::kDim;
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
  copy_query_tiles<Case>(args.flat, tile, walk, q, grad);
  copy_async_commit();
  if (thread < Plan::kQueryRows) {
    statistics[thread] = query_statistics(args.flat, tile, walk.head, walk.at + thread);
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
      copy_query_tiles<Case>(args.flat, tile, walk, q + (stage ^ 1) * kTile,
                             grad + (stage ^ 1) * kTile);
      if (thread < Plan::kQueryRows)
        next = query_statistics(args.flat, tile, walk.head, walk.at + thread);
    }
    copy_async_commit();
    add_queries<Case, kBends>(args, own_k, own_v, q + stage * kTile, grad + stage * kTile,
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

}  // namespace

void flash_gradients_of_keys(const LaunchStream& stream, const BackwardArgs& args) {
  const FlatAttention& shape = args.flat.attention;
  const auto blocks = static_cast<unsigned>(args.flat.key_tiles.count * shape.kv_head_count);
  const bool small = args.flat.query_tiles.rows == kSmallTile;
  with_flash_case(shape.head_dim, small, [&](auto which) {
    using Case = decltype(which);
    using Plan = KeysPlan<Case>;
    const LaunchShape launches{blocks, Plan::kThreads, Plan::kBytes};
    if (shape.cap > 0) return launch(stream, launches, flash_keys_kernel<Case, true>, args);
    launch(stream, launches, flash_keys_kernel<Case, false>, args);
  });
}

}  // namespace jige::cuda

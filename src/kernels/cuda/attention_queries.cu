// Gradients of queries (attention_backward.cuh).
#include "kernels/cuda/attention_backward.cuh"

namespace jige::cuda {
namespace {

template <typename Case>
struct QueriesPlan {
  static constexpr int kDim = Case::kDim;
  static constexpr int kQueries = Case::kSmall ? kSmallTile : kLargeTile;
  static constexpr int kM = kDim <= 128 && !Case::kSmall ? 2 : 1;
  static constexpr int kThreads = kQueries / (16 * kM) * kWarp;
  static constexpr int kKeys = (kDim <= 64 ? 64 : 32) / (Case::kSmall && kDim > 128 ? 2 : 1);
  static constexpr int kBlocks = kDim <= 128 ? 2 : 1;
  static constexpr int64_t kBytes = tile_bytes<kDim>(2 * kQueries + 4 * kKeys);
};

// One tile of keys: sums of a warp's queries from `first` on.
template <typename Case, bool kBends, int kM>
__device__ void add_keys(const BackwardArgs& args, const Bf16* own_q, const Bf16* own_grad,
                         const Bf16* k, const Bf16* v, const float2 (&statistics)[kM][2], int first,
                         int key, float (&grad_q)[kM][Case::kDim / 8][4]) {
  constexpr int kDim = Case::kDim;
  constexpr int kKeys = QueriesPlan<Case>::kKeys;
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

template <typename Case, bool kBends>
__global__ void __launch_bounds__(QueriesPlan<Case>::kThreads, QueriesPlan<Case>::kBlocks)
    flash_queries_kernel(BackwardArgs args) {
  begin_kernel();
  using Plan = QueriesPlan<Case>;
  constexpr int kDim = Plan::kDim;
  constexpr int kQueries = Plan::kQueries;
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
      const int query = tile.begin + own_row + 16 * m + 8 * half + lane_id() / 4;
      statistics[m][half] = query_statistics(args.flat, tile, head, query);
    }
  }
  int stage = 0;
  for (int key = key_begin; key < key_end; key += Plan::kKeys, stage ^= 1) {
    copy_async_wait<0>();
    __syncthreads();
    if (key + Plan::kKeys < key_end) copy_keys(key + Plan::kKeys, stage ^ 1);
    copy_async_commit();
    if (own_row >= count) continue;
    add_keys<Case, kBends>(args, own_q, grad + own_row * kStride<kDim>, k + stage * kTile,
                           v + stage * kTile, statistics, tile.begin + own_row, key, grad_q);
  }
  store_rows<kDim>(args.flat.grad_q, row + own_row, column, count - own_row, grad_q,
                   Constant{shape.scale}, own_q);
}

}  // namespace

void flash_gradients_of_queries(const LaunchStream& stream, const BackwardArgs& args) {
  const FlatAttention& shape = args.flat.attention;
  const auto blocks = static_cast<unsigned>(args.flat.query_tiles.count * shape.head_count);
  const bool small = args.flat.query_tiles.rows == kSmallTile;
  with_flash_case(shape.head_dim, small, [&](auto which) {
    using Case = decltype(which);
    using Plan = QueriesPlan<Case>;
    const LaunchShape launches{blocks, Plan::kThreads, Plan::kBytes};
    if (shape.cap > 0) return launch(stream, launches, flash_queries_kernel<Case, true>, args);
    launch(stream, launches, flash_queries_kernel<Case, false>, args);
  });
}

}  // namespace jige::cuda

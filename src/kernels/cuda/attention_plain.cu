#include "kernels/cuda/attention_plain.h"

#include "kernels/cuda/attention_flash.cuh"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kPlainThreads = 256;
constexpr int kPlainWarps = kPlainThreads / kWarp;

// A row of one head: lane l has columns l, l + 32, …; columns beyond the head are zeros.
template <int kPer>
struct Vector {
  float values[kPer];
};

template <int kPer>
__device__ Vector<kPer> load_head(const ConstRows& rows, int64_t row, int64_t column, int dim) {
  Vector<kPer> result;
  const int64_t begin = row * rows.stride + column;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int c = i * kWarp + lane_id();
    result.values[i] = c < dim ? load_element(rows.data, rows.type, begin + c) : 0.0f;
  }
  return result;
}

template <int kPer>
__device__ void store_head(const Rows& rows, int64_t row, int64_t column, int dim,
                           const Vector<kPer>& from, float factor) {
  const int64_t begin = row * rows.stride + column;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int c = i * kWarp + lane_id();
    if (c < dim) store_element(rows.data, rows.type, begin + c, from.values[i] * factor);
  }
}

template <int kPer>
__device__ float dot(const Vector<kPer>& a, const Vector<kPer>& b) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPer; ++i) sum = fmaf(a.values[i], b.values[i], sum);
  return warp_sum(sum);
}

// With what rows of tables by distance, key - query, add to the product; `column`: of the head.
template <int kPer>
__device__ float product_of(const Vector<kPer>& q, const Vector<kPer>& k,
                            const AttentionDistances& by, int distance, int64_t column, int dim) {
  if (!by.row_of) return dot(q, k);
  const int row = by.row_of[distance];
  float sum = 0.0f;
  const auto multiply = [&](const Vector<kPer>& a, const Vector<kPer>& b) {
#pragma unroll
    for (int i = 0; i < kPer; ++i) sum = fmaf(a.values[i], b.values[i], sum);
  };
  multiply(q, k);
  if (by.for_queries.data) multiply(q, load_head<kPer>(by.for_queries, row, column, dim));
  if (by.for_keys.data) multiply(k, load_head<kPer>(by.for_keys, row, column, dim));
  return warp_sum(sum);
}

// sum = sum · shrink + weight · row
template <int kPer>
__device__ void add_head(Vector<kPer>& sum, float shrink, float weight, const Vector<kPer>& row) {
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    sum.values[i] = fmaf(weight, row.values[i], sum.values[i] * shrink);
  }
}

// Score of a product, and its slope with respect to the product times scale.
struct PlainScore {
  float value, slope;
};
__device__ PlainScore score_of(const FlatAttention& args, float product) {
  const float score = product * args.scale;
  if (args.cap == 0) return {score, 1.0f};
  const float bent = tanhf(score / args.cap);
  return {args.cap * bent, fmaf(-bent, bent, 1.0f)};
}

__device__ int first_key(int position, int window) {
  return window > 0 ? max(0, position - window + 1) : 0;
}

// Of queries that see keys behind them, too.
__device__ int last_key(int position, int length, int window) {
  return window > 0 && length - position > window ? position + window - 1 : length - 1;
}

// body(row of the batch, position, head) for a warp's rows of the block's tile.
template <typename Body>
__device__ void for_rows(const AttentionTiles& tiles, int head_count, Body body) {
  const auto block = static_cast<int>(blockIdx.x);
  const AttentionTile tile = tiles.data[block / head_count];
  const int end = min(tile.begin + kPlainAttentionRows, tile.length);
  for (int position = tile.begin + warp_id(); position < end; position += kPlainWarps) {
    body(tile, position, block % head_count);
  }
}

template <int kPer, bool kBothSides>
__global__ void __launch_bounds__(kPlainThreads) plain_forward_kernel(FlatAttentionForward args) {
  begin_kernel();
  const FlatAttention& shape = args.attention;
  const int dim = shape.head_dim;
  for_rows(args.tiles, shape.head_count, [&](const AttentionTile& tile, int position, int head) {
    const int64_t row = int64_t{tile.row} + position;
    const int64_t kv_column = int64_t{head / (shape.head_count / shape.kv_head_count)} * dim;
    const Vector<kPer> q = load_head<kPer>(shape.q, row, int64_t{head} * dim, dim);
    Vector<kPer> sum = {};
    float most = shape.sinks ? shape.sinks[head] : -INFINITY;
    float total = shape.sinks ? 1.0f : 0.0f;
    const int last = kBothSides ? last_key(position, tile.length, shape.window) : position;
    for (int key = first_key(position, shape.window); key <= last; ++key) {
      const int64_t key_row = int64_t{tile.row} + key;
      const Vector<kPer> k = load_head<kPer>(shape.k, key_row, kv_column, dim);
      float score;
      if constexpr (kBothSides) {
        const AttentionDistances& by = args.distances;
        const int distance = key - position;
        score = score_of(shape, product_of(q, k, by, distance, int64_t{head} * dim, dim)).value;
        if (by.scores) score += by.scores[head * by.stride + distance];
      } else {
        score = score_of(shape, dot(q, k)).value;
      }
      const float now = fmaxf(most, score);
      const float shrink = expf(most - now);
      const float weight = expf(score - now);
      most = now;
      total = fmaf(total, shrink, weight);
      add_head(sum, shrink, weight, load_head<kPer>(shape.v, key_row, kv_column, dim));
    }
    store_head(args.dst, row, int64_t{head} * dim, dim, sum, 1.0f / total);
    if (args.lse && lane_id() == 0) args.lse[row * args.lse_stride + head] = most + logf(total);
  });
}

// A weight and the gradient of its score, times its slope.
struct Slope {
  float weight, grad;
};
__device__ Slope slope_of(const FlatAttentionBackward& args, int64_t row, int head, float product,
                          float grad) {
  const int64_t i = head * args.rows + row;
  const PlainScore score = score_of(args.attention, product);
  const float weight = expf(score.value - args.lse[row * args.lse_stride + head]);
  const float mean = args.scratch[i + args.rows * args.attention.head_count];
  return {weight, weight * (grad - mean) * score.slope};
}

template <int kPer>
__global__ void __launch_bounds__(kPlainThreads) plain_queries_kernel(FlatAttentionBackward args) {
  begin_kernel();
  const FlatAttention& shape = args.attention;
  const int dim = shape.head_dim;
  for_rows(
      args.query_tiles, shape.head_count, [&](const AttentionTile& tile, int position, int head) {
        const int64_t row = int64_t{tile.row} + position;
        const int64_t column = int64_t{head} * dim;
        const int64_t kv_column = int64_t{head / (shape.head_count / shape.kv_head_count)} * dim;
        const Vector<kPer> q = load_head<kPer>(shape.q, row, column, dim);
        const Vector<kPer> grad = load_head<kPer>(args.grad_dst, row, column, dim);
        Vector<kPer> sum = {};
        for (int key = first_key(position, shape.window); key <= position; ++key) {
          const int64_t key_row = int64_t{tile.row} + key;
          const Vector<kPer> k = load_head<kPer>(shape.k, key_row, kv_column, dim);
          const Vector<kPer> v = load_head<kPer>(shape.v, key_row, kv_column, dim);
          add_head(sum, 1.0f, slope_of(args, row, head, dot(q, k), dot(grad, v)).grad, k);
        }
        store_head(args.grad_q, row, column, dim, sum, shape.scale);
      });
}

template <int kPer>
__global__ void __launch_bounds__(kPlainThreads) plain_keys_kernel(FlatAttentionBackward args) {
  begin_kernel();
  const FlatAttention& shape = args.attention;
  const int dim = shape.head_dim;
  const int group = shape.head_count / shape.kv_head_count;
  for_rows(args.key_tiles, shape.kv_head_count,
           [&](const AttentionTile& tile, int position, int kv_head) {
             const int64_t key_row = int64_t{tile.row} + position;
             const int64_t kv_column = int64_t{kv_head} * dim;
             const Vector<kPer> k = load_head<kPer>(shape.k, key_row, kv_column, dim);
             const Vector<kPer> v = load_head<kPer>(shape.v, key_row, kv_column, dim);
             const int64_t seen = shape.window > 0 ? int64_t{position} + shape.window : tile.length;
             const int end = static_cast<int>(min(seen, int64_t{tile.length}));
             Vector<kPer> grad_k = {};
             Vector<kPer> grad_v = {};
             for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
               for (int query = position; query < end; ++query) {
                 const int64_t row = int64_t{tile.row} + query;
                 const int64_t column = int64_t{head} * dim;
                 const Vector<kPer> q = load_head<kPer>(shape.q, row, column, dim);
                 const Vector<kPer> grad = load_head<kPer>(args.grad_dst, row, column, dim);
                 const Slope slope = slope_of(args, row, head, dot(q, k), dot(grad, v));
                 add_head(grad_v, 1.0f, slope.weight, grad);
                 add_head(grad_k, 1.0f, slope.grad, q);
               }
             }
             store_head(args.grad_k, key_row, kv_column, dim, grad_k, shape.scale);
             store_head(args.grad_v, key_row, kv_column, dim, grad_v, 1.0f);
           });
}

// body(row, head, Σ dst · grad_dst) for each row and head, on one of the eight lanes that sum it in
// vectors of W elements.
constexpr int kSumLanes = 8;
template <int W, typename Body>
__device__ void for_row_sums(const ConstRows& dst, const ConstRows& grad_dst, int64_t rows,
                             int64_t heads, int64_t dim, Body body) {
  const int64_t i = (int64_t{blockIdx.x} * kPlainThreads + threadIdx.x) / kSumLanes;
  const bool valid = i < rows * heads;
  const int64_t row = i / heads;
  const int64_t head = i % heads;
  float sum = 0.0f;
  for (int64_t c = lane_id() % kSumLanes * W; valid && c < dim; c += kSumLanes * W) {
    float a[W];
    float b[W];
    load_packed<W>(dst, row, head * dim + c).unpack(dst.type, a);
    load_packed<W>(grad_dst, row, head * dim + c).unpack(grad_dst.type, b);
    for (int e = 0; e < W; ++e) sum = fmaf(a[e], b[e], sum);
  }
  for (int lanes = kSumLanes / 2; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  }
  if (valid && lane_id() % kSumLanes == 0) body(row, head, sum);
}

template <int W>
__global__ void __launch_bounds__(kPlainThreads) row_sums_kernel(FlatAttentionBackward args) {
  begin_kernel();
  const int64_t heads = args.attention.head_count;
  for_row_sums<W>(args.dst, args.grad_dst, args.rows, heads, args.attention.head_dim,
                  [&](int64_t row, int64_t head, float sum) {
                    float* at = args.scratch + head * args.rows + row;
                    at[0] = args.lse[row * args.lse_stride + head] * kLog2e;
                    at[args.rows * heads] = sum;
                  });
}

template <int W>
__global__ void __launch_bounds__(kPlainThreads)
    sink_slopes_kernel(cpu::SinkSlopesArgs args, int64_t rows) {
  begin_kernel();
  for_row_sums<W>(args.dst, args.grad_dst, rows, args.head_count, args.head_dim,
                  [&](int64_t row, int64_t head, float sum) {
                    const float lse = args.lse[row * args.lse_stride + head];
                    args.slopes[row * args.head_count + head] = -expf(args.sinks[head] - lse) * sum;
                  });
}

// Whether all heads of both begin at multiples of 16 bytes.
bool heads_in_vectors(const ConstRows& dst, const ConstRows& grad_dst, int64_t dim) {
  return dim % kVector == 0 && flash_aligned(dst.data, dst.type, dst.stride) &&
         flash_aligned(grad_dst.data, grad_dst.type, grad_dst.stride);
}

// Calls body with the columns of a lane as a constant.
template <int kPer>
struct Per {
  static constexpr int value = kPer;
};
template <typename Body>
void with_head_columns(int dim, Body body) {
  if (dim <= 2 * kWarp) return body(Per<2>());
  if (dim <= 4 * kWarp) return body(Per<4>());
  if (dim <= 8 * kWarp) return body(Per<8>());
  body(Per<20>());
}

}  // namespace

void plain_attention_forward(const LaunchStream& stream, const FlatAttentionForward& args) {
  const auto blocks = static_cast<unsigned>(args.tiles.count * args.attention.head_count);
  with_head_columns(args.attention.head_dim, [&](auto per) {
    constexpr int kPer = decltype(per)::value;
    launch(stream, {blocks, kPlainThreads},
           args.both_sides ? plain_forward_kernel<kPer, true> : plain_forward_kernel<kPer, false>,
           args);
  });
}

void plain_attention_backward(const LaunchStream& stream, const FlatAttentionBackward& args) {
  const FlatAttention& shape = args.attention;
  const auto key_blocks = static_cast<unsigned>(args.key_tiles.count * shape.kv_head_count);
  const auto query_blocks = static_cast<unsigned>(args.query_tiles.count * shape.head_count);
  with_head_columns(shape.head_dim, [&](auto per) {
    launch(stream, {key_blocks, kPlainThreads}, plain_keys_kernel<decltype(per)::value>, args);
    launch(stream, {query_blocks, kPlainThreads}, plain_queries_kernel<decltype(per)::value>, args);
  });
}

void attention_row_sums(const LaunchStream& stream, const FlatAttentionBackward& args) {
  const FlatAttention& shape = args.attention;
  const bool vectors = heads_in_vectors(args.dst, args.grad_dst, shape.head_dim);
  launch(stream,
         {blocks_for(args.rows * shape.head_count * kSumLanes, kPlainThreads), kPlainThreads},
         vectors ? row_sums_kernel<kVector> : row_sums_kernel<1>, args);
}

void attention_sink_slopes(const LaunchStream& stream, const cpu::SinkSlopesArgs& args,
                           int64_t rows) {
  const bool vectors = heads_in_vectors(args.dst, args.grad_dst, args.head_dim);
  launch(stream, {blocks_for(rows * args.head_count * kSumLanes, kPlainThreads), kPlainThreads},
         vectors ? sink_slopes_kernel<kVector> : sink_slopes_kernel<1>, args, rows);
}

}  // namespace jige::cuda

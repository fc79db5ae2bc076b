// The gradient: tokens are sorted by counting for each how many come before it, so that the rows of
// a token are neighbours, in ascending order. A block each adds those of a token.
#include "kernels/cuda/embedding.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

struct GatherTokens {
  Rows dst;
  ConstRows table;
  const int32_t* tokens;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float x[W];
    load_packed<W>(table, tokens[row], column).unpack(table.type, x);
    store_vector(dst, row, column, x);
  }
};

constexpr int kSortThreads = 256;
constexpr int kSortTile = 1024;  // tokens in shared memory
constexpr int32_t kNoToken = 0x7fffffff;

// Where a token goes, by a warp each: order[rank of t] = t.
__global__ void __launch_bounds__(kSortThreads)
    sort_tokens_kernel(const int32_t* tokens, int32_t* order, int64_t count) {
  begin_kernel();
  __shared__ int4 tile[kSortTile / 4];
  constexpr int kWarps = kSortThreads / kWarp;
  const int64_t own = int64_t{blockIdx.x} * kWarps + warp_id();
  const int32_t token = own < count ? tokens[own] : 0;
  int rank = 0;
  for (int64_t begin = 0; begin < count; begin += kSortTile) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kSortTile; i += kSortThreads) {
      reinterpret_cast<int32_t*>(tile)[i] = begin + i < count ? tokens[begin + i] : kNoToken;
    }
    __syncthreads();
    // Of the tokens that are equal, those ahead of the own one go before it.
    const int64_t ahead = own - begin;
    if (0 <= ahead && ahead < kSortTile) {
      for (int i = lane_id(); i < kSortTile; i += kWarp) {
        rank += reinterpret_cast<const int32_t*>(tile)[i] < token + (i < ahead ? 1 : 0) ? 1 : 0;
      }
      continue;
    }
    const int32_t limit = token + (ahead > 0 ? 1 : 0);
    for (int i = lane_id(); i < kSortTile / 4; i += kWarp) {
      const int4 four = tile[i];
      rank += (four.x < limit ? 1 : 0) + (four.y < limit ? 1 : 0) + (four.z < limit ? 1 : 0) +
              (four.w < limit ? 1 : 0);
    }
  }
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    rank += __shfl_xor_sync(kAllLanes, rank, lanes);
  }
  if (own < count && lane_id() == 0) order[rank] = static_cast<int32_t>(own);
}

__global__ void __launch_bounds__(kSortThreads)
    known_tokens_kernel(int32_t* dst, const int32_t* src, int64_t count, int32_t limit) {
  begin_kernel();
  const int64_t t = int64_t{blockIdx.x} * kSortThreads + threadIdx.x;
  if (t < count) dst[t] = src[t] < limit ? src[t] : 0;
}

constexpr int kAddThreads = 64;
constexpr int kRowsAtOnce = 8;

// A thread adds W columns of the rows from order[blockIdx.x] on, if that is the first of a token.
template <int W>
__global__ void __launch_bounds__(kAddThreads)
    add_rows_kernel(cpu::EmbeddingBackwardArgs args, const int32_t* order, int64_t width) {
  begin_kernel();
  const int64_t begin = blockIdx.x;
  const int32_t token = args.tokens[order[begin]];
  if (begin > 0 && args.tokens[order[begin - 1]] == token) return;
  const int64_t column = (int64_t{blockIdx.y} * kAddThreads + threadIdx.x) * W;
  if (column >= width) return;
  float* const table_row = args.grad_table + token * args.grad_table_stride;
  float sum[W];
  load_vector<W>(table_row, column, sum);
  bool more = true;
  for (int64_t next = begin; more && next < args.row_count; next += kRowsAtOnce) {
    Packed<W> rows[kRowsAtOnce];
    bool of_token[kRowsAtOnce];
    for (int n = 0; n < kRowsAtOnce; ++n) {
      const int64_t t = next + n < args.row_count ? order[next + n] : 0;
      of_token[n] = next + n < args.row_count && args.tokens[t] == token;
      if (!of_token[n]) continue;
      rows[n] =
          Packed<W>::load(args.grad_dst, ElementType::kF32, t * args.grad_dst_stride + column);
    }
    for (int n = 0; n < kRowsAtOnce; ++n) {
      if (!of_token[n]) continue;
      float x[W];
      rows[n].unpack(ElementType::kF32, x);
      for (int i = 0; i < W; ++i) sum[i] += x[i];
    }
    more = of_token[kRowsAtOnce - 1];
  }
  store_vector(table_row, ElementType::kF32, column, sum);
}

}  // namespace

void embedding_forward(const LaunchStream& stream, const cpu::EmbeddingForwardArgs& args,
                       int64_t rows) {
  const Rows dst = {args.dst, ElementType::kF32, args.dst_stride};
  // Of the table any row may be asked for.
  const bool vectors = aligned(rows, dst) && aligned(2, args.table);
  launch_elementwise(stream, {rows, args.width}, vectors,
                     GatherTokens{dst, args.table, args.tokens});
}

void known_tokens(const LaunchStream& stream, int32_t* dst, const int32_t* src, int64_t count,
                  int32_t limit) {
  if (count == 0) return;
  launch(stream, {blocks_for(count, kSortThreads), kSortThreads}, known_tokens_kernel, dst, src,
         count, limit);
}

int64_t embedding_backward_scratch(const cpu::EmbeddingBackwardArgs& args) {
  return args.row_count * static_cast<int64_t>(sizeof(int32_t));
}

void embedding_backward(const LaunchStream& stream, const cpu::EmbeddingBackwardArgs& args,
                        int64_t width, void* scratch) {
  if (args.row_count == 0 || width == 0) return;
  auto* const order = static_cast<int32_t*>(scratch);
  launch(stream, {blocks_for(args.row_count, kSortThreads / kWarp), kSortThreads},
         sort_tokens_kernel, args.tokens, order, args.row_count);
  const Rows table = {args.grad_table, ElementType::kF32, args.grad_table_stride};
  const ConstRows grad_dst = {args.grad_dst, ElementType::kF32, args.grad_dst_stride};
  const bool vectors = width % kVector == 0 && aligned(2, table, grad_dst);
  const dim3 grid(static_cast<unsigned>(args.row_count),
                  blocks_for(width, kAddThreads * (vectors ? kVector : 1)));
  launch(stream, {grid, kAddThreads}, vectors ? add_rows_kernel<kVector> : add_rows_kernel<1>, args,
         order, width);
}

}  // namespace jige::cuda

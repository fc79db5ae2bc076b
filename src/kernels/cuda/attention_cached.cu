#include "kernels/cuda/attention_cached.h"

#include "kernels/cuda/attention_cached.cuh"

namespace jige::cuda {
namespace {

constexpr int kMergeColumns = 128;
constexpr int kMergeThreads = 256;
constexpr int kMergeWarps = kMergeThreads / kWarp;

// Blocks (row, query head, 128 of its columns). Warps take every eighth split.
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(CachedAttention a) {
  begin_kernel();
  const CachedItem item = a.merges[blockIdx.x];
  if (item.sequence < 0) return;
  const CachedSequence sequence = a.sequences[item.sequence];
  const int head = static_cast<int>(blockIdx.y);
  const int64_t step = int64_t{sequence.row_count} * a.head_count;
  const int64_t begin = int64_t{sequence.partials_begin + item.row_begin} * a.head_count + head;
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  float top = -INFINITY;
  for (int i = static_cast<int>(threadIdx.x); i < sequence.split_count; i += kMergeThreads) {
    top = fmaxf(top, partial_statistics(a, begin + i * step)[0]);
  }
  top = block_max(top, shared);
  float l = 0;
  float o[kMergeColumns / kWarp] = {};
  const int column = static_cast<int>(blockIdx.z) * kMergeColumns + lane_id();
  const int first = (warp_id() - sequence.split_begin % kMergeWarps + kMergeWarps) % kMergeWarps;
#pragma unroll 4
  for (int i = first; i < sequence.split_count; i += kMergeWarps) {
    const int64_t partial = begin + i * step;
    const float weight = fast_exp2(partial_statistics(a, partial)[0] - top);
    l = fmaf(partial_statistics(a, partial)[1], weight, l);
#pragma unroll
    for (int j = 0; j < kMergeColumns / kWarp; ++j) {
      const int c = column + j * kWarp;
      if (c < a.value_columns) o[j] = fmaf(a.partials[partial * a.head_dim + c], weight, o[j]);
    }
  }
  float* sums = shared + kWarp + warp_id() * (kMergeColumns + 1);
#pragma unroll
  for (int j = 0; j < kMergeColumns / kWarp; ++j) sums[lane_id() + j * kWarp] = o[j];
  if (lane_id() == 0) sums[kMergeColumns] = l;
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  const int c = static_cast<int>(blockIdx.z) * kMergeColumns + thread;
  if (thread >= kMergeColumns || c >= a.value_columns) return;
  float total = 0;
  float weights = 0;
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) {
    const float* of_warp = shared + kWarp + w * (kMergeColumns + 1);
    total += of_warp[thread];
    weights += of_warp[kMergeColumns];
  }
  const int64_t row = int64_t{sequence.row_begin} + item.row_begin;
  store_element(a.dst.data, a.dst.type, row * a.dst.stride + int64_t{head} * a.head_dim + c,
                total * cached_scale(a, head, top, weights));
}

}  // namespace

int32_t cached_tile_rows(const LaunchStream& stream, const CachedAttention& args, int64_t rows) {
  if (cached_latent_takes(args)) return kCachedLatentRows;
  return cached_flash_takes(args) ? cached_flash_rows(stream, args, rows) : kPlainRows;
}

void attention_cached(const LaunchStream& stream, const CachedAttention& given) {
  CachedAttention args = given;
  args.heads = args.head_count / args.kv_head_count;
  const uint64_t two_32 = uint64_t{1} << 32;
  const auto heads = static_cast<uint64_t>(args.heads);
  args.heads_inverse = static_cast<uint32_t>((two_32 + heads - 1) / heads);
  const bool latent = cached_latent_takes(args);
  if (args.tile_items > 0) {
    if (latent) {
      launch_cached_latent(stream, args, false);
    } else if (cached_flash_takes(args)) {
      launch_cached_flash(stream, args);
    } else {
      launch_cached_plain(stream, args, false);
    }
  }
  if (args.few_items > 0) {
    if (latent) {
      launch_cached_latent(stream, args, true);
    } else if (cached_few_takes(args)) {
      launch_cached_few(stream, args);
    } else {
      launch_cached_plain(stream, args, true);
    }
  }
  if (args.merge_items == 0) return;
  launch(stream,
         {{static_cast<unsigned>(args.merge_items), static_cast<unsigned>(args.head_count),
           blocks_for(args.value_columns, kMergeColumns)},
          kMergeThreads,
          (kWarp + kMergeWarps * (kMergeColumns + 1)) * int64_t{sizeof(float)}},
         merge_kernel, args);
}

}  // namespace jige::cuda

// What the kernels of attention_cached.h share: which rows and keys a block works on, scores, and
// where results go. Scores are in powers of two: e^x is 2^(x log2 e). Threads: device code.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/cuda/attention_cached.h"
#include "kernels/cuda/attention_flash.cuh"
#include "kernels/cuda/portable.cuh"

namespace jige::cuda {

constexpr int kCachedSlots = 16;  // tokens of a cache block
constexpr int kCachedThreads = 128;
constexpr int kCachedWarps = kCachedThreads / kWarp;

// The kernels, each in its file: for few rows or for tiles, whatever the types and the heads; for
// few rows on tensor cores; for tiles on tensor cores; for either of a cache of latents there.
constexpr int kPlainRows = 8;
void launch_cached_plain(const LaunchStream& stream, const CachedAttention& args, bool few);
bool cached_few_takes(const CachedAttention& args);
void launch_cached_few(const LaunchStream& stream, const CachedAttention& args);
bool cached_flash_takes(const CachedAttention& args);
int32_t cached_flash_rows(const LaunchStream& stream, const CachedAttention& args, int64_t rows);
void launch_cached_flash(const LaunchStream& stream, const CachedAttention& args);
constexpr int kCachedLatentRows = 64;  // of a tile
bool cached_latent_takes(const CachedAttention& args);
void launch_cached_latent(const LaunchStream& stream, const CachedAttention& args, bool few);

// Scores from products: factor · x, or under a cap factor · tanh(bend · x).
struct CachedScore {
  float factor, bend;

  explicit __device__ CachedScore(const CachedAttention& a)
      : factor((a.cap > 0 ? a.cap : a.scale) * kLog2e), bend(a.cap > 0 ? a.scale / a.cap : 0) {}
  template <int kCount>
  __device__ void operator()(float (&x)[kCount]) const {
    if (bend == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) x[i] *= factor;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = factor * bounded_tanh(x[i] * bend);
  }
};

// Packed rows [base, base + count) of a sequence and key/value head, and the keys they see.
struct CachedWork {
  CachedSequence sequence;
  int kv_head;
  int heads;  // query heads of a key/value head
  uint32_t heads_inverse;
  int base, count;
  int split;   // or -1
  int lo, hi;  // the first and last position that one of the rows sees here; lo > hi: none

  __device__ CachedWork(const CachedAttention& a, const CachedItem& item, int rows_max)
      : sequence(load_table(a.sequences + item.sequence)),
        kv_head(static_cast<int>(blockIdx.y)),
        heads(a.heads),
        heads_inverse(a.heads_inverse),
        base(item.row_begin + static_cast<int>(blockIdx.z) * rows_max),
        count(min(rows_max, sequence.row_count * heads - base)),
        split(item.split) {
    lo = first_of(a, position_of(0));
    hi = position_of(count - 1);
    if (split >= 0) {
      lo = max(lo, split * sequence.split_keys);
      hi = min(hi, (split + 1) * sequence.split_keys - 1);
    }
  }

  static __device__ int first_of(const CachedAttention& a, int position) {
    return a.window > 0 ? max(0, position - a.window + 1) : 0;
  }
  // The row of the sequence.
  __device__ int own_row_of(int packed) const {
    const auto i = static_cast<uint32_t>(base + packed);
    return static_cast<int>(heads_inverse == 0 ? i : (uint64_t{i} * heads_inverse) >> 32);
  }
  __device__ int position_of(int packed) const {
    return sequence.context_count + own_row_of(packed);
  }
  // Whether every row sees every key at positions [begin, end).
  __device__ bool all_see(const CachedAttention& a, int begin, int end) const {
    return end - 1 <= position_of(0) && first_of(a, position_of(count - 1)) <= begin &&
           begin >= lo && end - 1 <= hi;
  }
  // The row of the matrices, and the query head.
  __device__ int64_t row_of(int packed) const {
    return int64_t{sequence.row_begin} + own_row_of(packed);
  }
  __device__ int head_of(int packed) const {
    return kv_head * heads + base + packed - own_row_of(packed) * heads;
  }
  // Keys of a block of the sequence; values follow them.
  __device__ int64_t keys_at(const CachedAttention& a, int block) const {
    return keys_at(a, block, a.head_dim);
  }
  // The same in 8 bits, where scales follow them.
  __device__ int64_t bytes_at(const CachedAttention& a, int block) const {
    return keys_at(a, block, a.head_dim + int{sizeof(Bf16)});
  }
  __device__ int64_t keys_at(const CachedAttention& a, int block, int token_elements) const {
    const int64_t id = load_table(a.blocks + sequence.blocks_begin + block);
    return (id * a.kv_head_count + kv_head) * 2 * kCachedSlots * token_elements;
  }
  // Whether its results are to be merged with those of other splits.
  __device__ bool partial() const { return split >= 0 && sequence.split_count > 1; }
  __device__ int64_t partial_of(const CachedAttention& a, int packed) const {
    const int64_t row =
        int64_t{split - sequence.split_begin} * sequence.row_count + own_row_of(packed);
    return (sequence.partials_begin + row) * a.head_count + head_of(packed);
  }
};

__device__ inline float* partial_statistics(const CachedAttention& a, int64_t partial) {
  return a.partials + a.partial_rows * a.head_count * a.head_dim + partial * 2;
}

// Two neighbours of a row of outputs, the first in an even column.
__device__ inline void store_two(const Rows& to, int64_t at, float low, float high) {
  if (to.type == ElementType::kBf16) {
    *reinterpret_cast<uint32_t*>(static_cast<Bf16*>(to.data) + at) = floats_to_bf16x2(low, high);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(to.data) + at) = make_float2(low, high);
  }
}

// Starts copies of the rows of queries that a block works on, into a tile; others become zeros.
// Plan has kDim, kRows and kThreads of the block.
template <typename Plan>
__device__ void copy_queries(const CachedAttention& a, const CachedWork& work, Bf16* to) {
  constexpr int kChunks = Plan::kDim / 8;
  const auto* q = static_cast<const Bf16*>(a.q.data);
  for (int i = static_cast<int>(threadIdx.x); i < Plan::kRows * kChunks; i += Plan::kThreads) {
    const int row = i / kChunks;
    const int c = i % kChunks * 8;
    const int from = min(row, work.count - 1);
    const int64_t column = int64_t{work.head_of(from)} * Plan::kDim + c;
    copy_async_16(to + row * kStride<Plan::kDim> + c, q + work.row_of(from) * a.q.stride + column,
                  row < work.count);
  }
}

// The cache blocks of a tile of Plan::kKeys keys, of which each warp copies one or a part of one.
template <typename Plan, typename T>
struct TileBlocks {
  static constexpr bool kBytes = std::is_same_v<T, int8_t>;
  static constexpr int kBlocks = Plan::kKeys / kCachedSlots;
  static constexpr int kBlockWarps = Plan::kThreads / kWarp / kBlocks;
  static_assert(Plan::kThreads == kBlockWarps * kBlocks * kWarp);

  // Where the keys of this warp's block are, or those of another where no row sees it.
  static __device__ const T* block(const CachedAttention& a, const CachedWork& work, int begin) {
    const int own = begin / kCachedSlots + warp_id() % kBlocks;
    const int seen = min(max(own, work.lo / kCachedSlots), work.hi / kCachedSlots);
    return static_cast<const T*>(a.cache) +
           (kBytes ? work.bytes_at(a, seen) : work.keys_at(a, seen));
  }
};

// Scales of keys and of values of a block in 8 bits, which begins at `keys`.
struct CachedScales {
  const Bf16* keys;
  __device__ CachedScales(const int8_t* block, int head_dim)
      : keys(reinterpret_cast<const Bf16*>(block + 2 * kCachedSlots * head_dim)) {}
  __device__ float of_key(int slot) const { return to_float(keys[slot]); }
  __device__ float of_value(int slot) const { return to_float(keys[kCachedSlots + slot]); }
};

// What a sum of values is multiplied with in the end, by the maximum and the sum of the weights.
__device__ inline float cached_scale(const CachedAttention& a, int head, float m, float l) {
  if (!a.sinks) return 1.0f / l;
  const float sink = a.sinks[head] * kLog2e;
  const float top = fmaxf(m, sink);
  const float scale = fast_exp2(m - top);
  return scale / fmaf(l, scale, fast_exp2(sink - top));
}

// Memory of a block of threads in which its warps add their results up.
struct CachedSums {
  float *m, *l;  // [warps][rows]
  float* o;      // [rows][stride]
  int rows, stride;

  static constexpr int64_t bytes(int rows, int stride) {
    return (int64_t{2} * kCachedWarps * rows + int64_t{rows} * stride) * int64_t{sizeof(float)};
  }
  __device__ CachedSums(unsigned char* shared, int rows_in, int stride_in)
      : m(reinterpret_cast<float*>(shared)),
        l(m + kCachedWarps * rows_in),
        o(l + kCachedWarps * rows_in),
        rows(rows_in),
        stride(stride_in) {}

  __device__ float largest(int row) const {
    float top = m[row];
    for (int w = 1; w < kCachedWarps; ++w) top = fmaxf(top, m[w * rows + row]);
    return top;
  }
  // A warp's share in the sums of a row.
  __device__ float weight(int warp, int row) const {
    const float own = m[warp * rows + row];
    return own == -INFINITY ? 0.0f : fast_exp2(own - largest(row));
  }
  __device__ float total(int row) const {
    float sum = 0;
    for (int w = 0; w < kCachedWarps; ++w) sum = fmaf(l[w * rows + row], weight(w, row), sum);
    return sum;
  }
};

// Stores the sums as results, or as partial ones where there are other splits. After a barrier.
__device__ inline void store_sums(const CachedAttention& a, const CachedWork& work,
                                  const CachedSums& sums) {
  for (int row = warp_id(); row < work.count; row += kCachedWarps) {
    const float m = sums.largest(row);
    const float l = sums.total(row);
    const float* o = sums.o + row * sums.stride;
    if (work.partial()) {
      const int64_t at = work.partial_of(a, row);
      for (int c = lane_id(); c < a.head_dim; c += kWarp) a.partials[at * a.head_dim + c] = o[c];
      if (lane_id() == 0) partial_statistics(a, at)[0] = m;
      if (lane_id() == 1) partial_statistics(a, at)[1] = l;
      continue;
    }
    const float scale = cached_scale(a, work.head_of(row), m, l);
    const int64_t at = work.row_of(row) * a.dst.stride + int64_t{work.head_of(row)} * a.head_dim;
    for (int c = lane_id(); c < a.head_dim; c += kWarp) {
      store_element(a.dst.data, a.dst.type, at + c, o[c] * scale);
    }
  }
}

// Adds up what the splits of the block's rows gave, a warp each row, in the order of merge_kernel:
// every eighth split, counted from the first of all, and then these sums.
__device__ inline void merge_splits(const CachedAttention& a, const CachedWork& work) {
  constexpr int kWays = 8;
  constexpr int kPiece = 4;  // columns of a lane
  const CachedSequence& sequence = work.sequence;
  const int count = sequence.split_count;
  const int64_t step = int64_t{sequence.row_count} * a.head_count;
  for (int row = warp_id(); row < work.count; row += kCachedWarps) {
    const int head = work.head_of(row);
    const int64_t begin =
        int64_t{sequence.partials_begin + work.own_row_of(row)} * a.head_count + head;
    float top = -INFINITY;
    for (int i = lane_id(); i < count; i += kWarp) {
      top = fmaxf(top, __ldcg(partial_statistics(a, begin + i * step)));
    }
    top = warp_max(top);
    for (int c = lane_id() * kPiece; c < a.head_dim; c += kWarp * kPiece) {
      float4 o[kWays] = {};
      float l[kWays] = {};
      for (int base = -(sequence.split_begin % kWays); base < count; base += kWays) {
#pragma unroll
        for (int way = 0; way < kWays; ++way) {
          const int i = base + way;
          if (i < 0 || i >= count) continue;
          const int64_t partial = begin + i * step;
          const auto* numbers =
              reinterpret_cast<const float4*>(a.partials + partial * a.head_dim + c);
          const float4 x = __ldcg(numbers);
          const float* statistics = partial_statistics(a, partial);
          const float weight = fast_exp2(__ldcg(statistics) - top);
          l[way] = fmaf(__ldcg(statistics + 1), weight, l[way]);
          o[way] = make_float4(fmaf(x.x, weight, o[way].x), fmaf(x.y, weight, o[way].y),
                               fmaf(x.z, weight, o[way].z), fmaf(x.w, weight, o[way].w));
        }
      }
      float total[kPiece] = {};
      float weights = 0;
#pragma unroll
      for (int way = 0; way < kWays; ++way) {
        total[0] += o[way].x;
        total[1] += o[way].y;
        total[2] += o[way].z;
        total[3] += o[way].w;
        weights += l[way];
      }
      const float scale = cached_scale(a, head, top, weights);
      const int64_t at = work.row_of(row) * a.dst.stride + int64_t{head} * a.head_dim + c;
      for (int j = 0; j < kPiece; ++j) {
        store_element(a.dst.data, a.dst.type, at + j, total[j] * scale);
      }
    }
  }
}

}  // namespace jige::cuda

// Attention on tensor cores: tiles of bf16 rows in shared memory and products of them.
//
// A tile holds rows of kDim elements, each padded to an odd number of 16 bytes, so that eight rows
// of a matrix lie in different banks. Accumulators are [m][n][4] registers of mma_bf16: rows
// 16 m + g and 16 m + g + 8 of the warp, columns 8 n + 2t and 8 n + 2t + 1, g = lane / 4,
// t = lane % 4. Threads: device code.
#pragma once

#include "kernels/cuda/attention_flat.h"
#include "kernels/cuda/portable.cuh"

namespace jige::cuda {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

template <int kDim>
constexpr int kStride = (kDim / 8 | 1) * 8;  // elements from one row of a tile to the next
template <int kDim>
constexpr int64_t tile_bytes(int rows) {
  return int64_t{2} * rows * kStride<kDim>;
}

// Starts copies of kRows rows; those from `count` on become zeros.
template <int kDim, int kRows, int kThreads>
__device__ inline void copy_tile(Bf16* tile, const Bf16* from, int64_t stride, int count) {
  constexpr int kChunks = kDim / 8;
  constexpr int kCopies = kRows * kChunks;
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kThreads % kChunks == 0 && kCopies % kThreads == 0) {
    // A thread's column is one and its rows are even.
    constexpr int kStep = kThreads / kChunks;
    const int first = thread / kChunks;
    const int column = thread % kChunks * 8;
    const Bf16* source = from + first * stride + column;
    Bf16* target = tile + first * kStride<kDim> + column;
#pragma unroll
    for (int row = 0; row < kRows; row += kStep) {
      copy_async_16(target + row * kStride<kDim>, source + row * stride, first + row < count);
    }
  } else {
#pragma unroll
    for (int begin = 0; begin < kCopies; begin += kThreads) {
      const int row = (begin + thread) / kChunks;
      const int column = (begin + thread) % kChunks * 8;
      if (row >= kRows) break;
      copy_async_16(tile + row * kStride<kDim> + column, from + row * stride + column, row < count);
    }
  }
}

template <int kM, int kN>
__device__ inline void clear(float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f;
    }
  }
}

// sums = rows 0 … 16 kM of `a` times rows 0 … 8 kN of `b`, over kDim columns.
template <int kDim, int kM, int kN>
__device__ inline void multiply_rows(float (&sums)[kM][kN][4], const Bf16* a, const Bf16* b) {
  static_assert(kDim % 16 == 0 && kN % 2 == 0);
  const int lane = lane_id();
  const Bf16* a_row = a + lane % 16 * kStride<kDim> + lane / 16 * 8;
  const Bf16* b_row = b + (lane / 16 * 8 + lane % 8) * kStride<kDim> + lane / 8 % 2 * 8;
  clear(sums);
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_matrices_x4(left[m], a_row + m * 16 * kStride<kDim> + k);
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t right[4];
      load_matrices_x4(right, b_row + n * 8 * kStride<kDim> + k);
      const uint32_t first[2] = {right[0], right[1]};
      const uint32_t second[2] = {right[2], right[3]};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_bf16(sums[m][n], left[m], first);
        mma_bf16(sums[m][n + 1], left[m], second);
      }
    }
  }
}

// sums += weights, rounded to bf16, times rows 0 … 8 kK of `b` in its columns 0 … 8 kN.
template <int kDim, int kM, int kK, int kN>
__device__ inline void add_weighted(float (&sums)[kM][kN][4], const float (&weights)[kM][kK][4],
                                    const Bf16* b) {
  static_assert(kK % 2 == 0 && kN % 2 == 0);
  const int lane = lane_id();
  const Bf16* b_row = b + lane % 16 * kStride<kDim> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kK; k += 2) {
    uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const float(&low)[4] = weights[m][k];
      const float(&high)[4] = weights[m][k + 1];
      left[m][0] = floats_to_bf16x2(low[0], low[1]);
      left[m][1] = floats_to_bf16x2(low[2], low[3]);
      left[m][2] = floats_to_bf16x2(high[0], high[1]);
      left[m][3] = floats_to_bf16x2(high[2], high[3]);
    }
#pragma unroll
    for (int n = 0; n < kN; n += 2) {
      uint32_t right[4];
      load_matrices_x4_transposed(right, b_row + k * 8 * kStride<kDim> + n * 8);
      const uint32_t first[2] = {right[0], right[1]};
      const uint32_t second[2] = {right[2], right[3]};
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma_bf16(sums[m][n], left[m], first);
        mma_bf16(sums[m][n + 1], left[m], second);
      }
    }
  }
}

// Stores the first `count` of a warp's 16 kM rows, each times factor_of(m, half), at
// (row, column) of `to`. bf16 goes by `staging`, rows of a tile that are the warp's own.
template <int kDim, int kM, int kN, typename Factor>
__device__ inline void store_rows(const Rows& to, int64_t row, int64_t column, int count,
                                  const float (&sums)[kM][kN][4], Factor factor_of, Bf16* staging) {
  const int lane = lane_id();
  const int g = lane / 4;
  const int t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = 16 * m + 8 * half + g;
      const float factor = factor_of(m, half);
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        const float low = sums[m][n][2 * half] * factor;
        const float high = sums[m][n][2 * half + 1] * factor;
        if (to.type == ElementType::kBf16) {
          *reinterpret_cast<uint32_t*>(staging + r * kStride<kDim> + 8 * n + 2 * t) =
              floats_to_bf16x2(low, high);
        } else if (r < count) {
          float* at = static_cast<float*>(to.data) + (row + r) * to.stride + column + 8 * n + 2 * t;
          *reinterpret_cast<float2*>(at) = make_float2(low, high);
        }
      }
    }
  }
  if (to.type != ElementType::kBf16) return;
  __syncwarp();
  auto* data = static_cast<Bf16*>(to.data) + row * to.stride + column;
  for (int i = lane; i < 16 * kM * kN; i += kWarp) {
    const int r = i / kN;
    if (r >= count) break;
    *reinterpret_cast<uint4*>(data + r * to.stride + i % kN * 8) =
        *reinterpret_cast<const uint4*>(staging + r * kStride<kDim> + i % kN * 8);
  }
}

// How many positions back a query sees, itself among them.
__device__ inline unsigned span_of(const FlatAttention& args) {
  return args.window > 0 ? static_cast<unsigned>(args.window) : 0x7fffffffu;
}
__device__ inline bool sees(int query, int key, unsigned span) {
  return static_cast<unsigned>(query - key) < span;
}

// tanh, to a few units in the last place of one.
__device__ inline float bounded_tanh(float x) {
  const float power = fast_exp2(fminf(fmaxf(x * (2.0f * kLog2e), -60.0f), 60.0f));
  return 1.0f - __fdividef(2.0f, power + 1.0f);
}

// How products of rows become scores: value = bend(product), a power of two of factor · value.
struct Scores {
  float bend;    // scale / cap, of the product; 0 without a cap
  float factor;  // (cap or scale) · log2 e
};
inline Scores scores_of(const FlatAttention& args) {
  return args.cap > 0 ? Scores{args.scale / args.cap, args.cap * kLog2e}
                      : Scores{0.0f, args.scale * kLog2e};
}

inline bool flash_aligned(const void* data, ElementType type, int64_t stride) {
  constexpr int64_t kBytes = 16;
  const int64_t elements = type == ElementType::kF32 ? 4 : 8;
  return reinterpret_cast<uintptr_t>(data) % kBytes == 0 && stride % elements == 0;
}
inline bool flat_bf16(const ConstRows& rows) {
  return rows.type == ElementType::kBf16 && flash_aligned(rows.data, rows.type, rows.stride);
}
// Whether the kernels on tensor cores take the inputs, but for the head dimension, and with it.
inline bool flash_takes_types(const FlatAttention& args) {
  return args.scale > 0 && flat_bf16(args.q) && flat_bf16(args.k) && flat_bf16(args.v);
}
inline bool flash_takes(const FlatAttention& args) {
  const int dim = args.head_dim;
  return (dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 192 || dim == 256) &&
         flash_takes_types(args);
}

// Calls body with the head dimension, and whether tiles are small, as constants.
// REQUIRES: flash_takes().
template <int kHeadDim, bool kSmallTiles>
struct FlashCase {
  static constexpr int kDim = kHeadDim;
  static constexpr bool kSmall = kSmallTiles;
};
template <bool kSmall, typename Body>
void with_dim(int dim, Body body) {
  if (dim == 64) return body(FlashCase<64, kSmall>());
  if (dim == 80) return body(FlashCase<80, kSmall>());
  if (dim == 96) return body(FlashCase<96, kSmall>());
  if (dim == 128) return body(FlashCase<128, kSmall>());
  if (dim == 192) return body(FlashCase<192, kSmall>());
  body(FlashCase<256, kSmall>());
}
template <typename Body>
void with_flash_case(int dim, bool small, Body body) {
  if (small) return with_dim<true>(dim, body);
  with_dim<false>(dim, body);
}

constexpr int kLargeTile = 128;  // queries
constexpr int kSmallTile = 64;

// Queries of a tile: many where tiles are enough for the GPU and shared memory has two.
inline int32_t flash_queries(const LaunchStream& stream, const FlatAttention& args, int64_t rows) {
  constexpr int64_t kSharedOfLarge = 200 * 1024;
  const bool enough = rows * args.head_count / kLargeTile >= int64_t{2} * stream.multiprocessors;
  return enough && shared_bytes_max() >= kSharedOfLarge ? kLargeTile : kSmallTile;
}

}  // namespace jige::cuda

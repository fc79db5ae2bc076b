// Tiles of packed rows in bf16 on tensor cores: 128 rows a block of threads, 32 a warp, over tiles
// of 64 keys, which come into shared memory a tile ahead. Rows there are 16 bytes longer than the
// heads, so that matrices are read without conflicts of banks.
#include "kernels/cuda/attention_cached.cuh"

namespace jige::cuda {
namespace {

constexpr int kEight = 8;
constexpr int kSixteen = 16;
constexpr int kKeys = 64;  // of a tile
constexpr int kStages = 2;
static_assert(kKeys == kCachedWarps * kCachedSlots);
constexpr int kBands = kFlashRows / kCachedWarps / kSixteen;  // of 16 rows, of a warp

template <int kDim>
struct Shared {
  static constexpr int kStride = kDim + kEight;
  Bf16 q[kFlashRows][kStride];
  Bf16 keys[kStages][kKeys][kStride];
  Bf16 values[kStages][kKeys][kStride];
};

template <int kDim>
__device__ void load_queries(const CachedAttention& a, const CachedWork& work,
                             Shared<kDim>& shared) {
  constexpr int kPieces = kDim / kEight;
  const auto* q = static_cast<const Bf16*>(a.q.data);
  for (int i = static_cast<int>(threadIdx.x); i < kFlashRows * kPieces; i += kCachedThreads) {
    const int row = i / kPieces;
    const int c = i % kPieces * kEight;
    const int from = min(row, work.count - 1);
    const int64_t column = int64_t{work.head_of(from)} * kDim + c;
    copy_async_16(&shared.q[row][c], q + work.row_of(from) * a.q.stride + column, row < work.count);
  }
}

// Of a tile of keys each warp loads one cache block: where its keys are, also where no row sees it.
__device__ inline int64_t block_of_warp(const CachedAttention& a, const CachedWork& work,
                                        int begin) {
  const int block = begin / kCachedSlots + warp_id();
  return work.keys_at(a, min(max(block, work.lo / kCachedSlots), work.hi / kCachedSlots));
}

// Keys or values of the tile from position `begin` on; those that no row sees are zeros.
template <int kDim>
__device__ void load_tile(const CachedWork& work, int begin, const Bf16* block,
                          Bf16 (*to)[kDim + kEight]) {
  constexpr int kPieces = kDim / kEight;
  const int first = warp_id() * kCachedSlots;
  const int lo = work.lo - begin - first;
  const int hi = work.hi - begin - first;
#pragma unroll
  for (int i = lane_id(); i < kCachedSlots * kPieces; i += kWarp) {
    const int slot = i / kPieces;
    copy_async_16(&to[first + slot][i % kPieces * kEight], block + i * kEight,
                  lo <= slot && slot <= hi);
  }
}

// Scores of the warp's bands of rows with all keys of a tile: [band][8 keys][operand D].
using Scores = float[kBands][kKeys / kEight][4];

template <int kDim>
__device__ void multiply(const Shared<kDim>& shared, const Bf16 (*keys)[kDim + kEight], Scores& s) {
  const int lane = lane_id();
#pragma unroll
  for (int c = 0; c < kDim; c += kSixteen) {
    uint32_t left[kBands][4];
#pragma unroll
    for (int band = 0; band < kBands; ++band) {
      const int row = (warp_id() * kBands + band) * kSixteen + lane % kSixteen;
      load_matrices_x4(left[band], &shared.q[row][c + lane / kSixteen * kEight]);
    }
#pragma unroll
    for (int j = 0; j < kKeys / kSixteen; ++j) {
      uint32_t right[4];
      const int slot = j * kSixteen + lane / kSixteen * kEight + lane % kEight;
      load_matrices_x4(right, &keys[slot][c + lane / kEight % 2 * kEight]);
      const uint32_t first[2] = {right[0], right[1]};
      const uint32_t second[2] = {right[2], right[3]};
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        mma_bf16(s[band][2 * j], left[band], first);
        mma_bf16(s[band][2 * j + 1], left[band], second);
      }
    }
  }
}

// The softmax of a lane's rows: g and g + 8 of each band. l is this lane's share.
struct State {
  float m[kBands][2], l[kBands][2];
};

// Products become scores, or -infinity where the row does not see the key.
__device__ inline void score_tile(const CachedAttention& a, const CachedWork& work, int begin,
                                  Scores& s) {
  const CachedScore score(a);
  const bool all_see = work.all_see(a, begin, begin + kKeys);
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = (warp_id() * kBands + band) * kSixteen + lane_id() / 4 + i * kEight;
      const int position = all_see ? 0 : work.position_of(min(row, work.count - 1));
      const int first = all_see ? 0 : CachedWork::first_of(a, position);
#pragma unroll
      for (int e = 0; e < kKeys / 4; ++e) {
        float& x = s[band][e / 2][2 * i + e % 2];
        const int token = begin + e / 2 * kEight + lane_id() % 4 * 2 + e % 2;
        x = all_see || (first <= token && token <= position) ? score(x) : -INFINITY;
      }
    }
  }
}

// Scores become weights, and outputs so far are scaled down to them.
template <int kDim>
__device__ void weigh(Scores& s, State& state, float (&o)[kBands][kDim / kEight][4]) {
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = state.m[band][i];
#pragma unroll
      for (int e = 0; e < kKeys / 4; ++e) top = fmaxf(top, s[band][e / 2][2 * i + e % 2]);
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
      const float base = top == -INFINITY ? 0.0f : top;
      const float alpha = fast_exp2(state.m[band][i] - base);
      state.m[band][i] = top;
      float sum = 0;
#pragma unroll
      for (int e = 0; e < kKeys / 4; ++e) {
        float& x = s[band][e / 2][2 * i + e % 2];
        x = fast_exp2(x - base);
        sum += x;
      }
      state.l[band][i] = fmaf(state.l[band][i], alpha, sum);
#pragma unroll
      for (int e = 0; e < kDim / 4; ++e) o[band][e / 2][2 * i + e % 2] *= alpha;
    }
  }
}

template <int kDim>
__device__ void add_values(const Bf16 (*values)[kDim + kEight], const Scores& weights,
                           float (&o)[kBands][kDim / kEight][4]) {
  const int lane = lane_id();
#pragma unroll
  for (int j = 0; j < kKeys / kSixteen; ++j) {
    uint32_t left[kBands][4];
#pragma unroll
    for (int band = 0; band < kBands; ++band) {
      const float(&low)[4] = weights[band][2 * j];
      const float(&high)[4] = weights[band][2 * j + 1];
      left[band][0] = floats_to_bf16x2(low[0], low[1]);
      left[band][1] = floats_to_bf16x2(low[2], low[3]);
      left[band][2] = floats_to_bf16x2(high[0], high[1]);
      left[band][3] = floats_to_bf16x2(high[2], high[3]);
    }
#pragma unroll
    for (int c = 0; c < kDim; c += kSixteen) {
      uint32_t right[4];
      load_matrices_x4_transposed(
          right, &values[j * kSixteen + lane % kSixteen][c + lane / kSixteen * kEight]);
      const uint32_t first[2] = {right[0], right[1]};
      const uint32_t second[2] = {right[2], right[3]};
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        mma_bf16(o[band][c / kEight], left[band], first);
        mma_bf16(o[band][c / kEight + 1], left[band], second);
      }
    }
  }
}

template <int kDim>
__device__ void store_outputs(const CachedAttention& a, const CachedWork& work, const State& state,
                              const float (&o)[kBands][kDim / kEight][4]) {
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = (warp_id() * kBands + band) * kSixteen + lane_id() / 4 + i * kEight;
      float l = state.l[band][i] + __shfl_xor_sync(kAllLanes, state.l[band][i], 1);
      l += __shfl_xor_sync(kAllLanes, l, 2);
      if (row >= work.count) continue;
      const float scale = cached_scale(a, work.head_of(row), state.m[band][i], l);
      const int64_t at =
          work.row_of(row) * a.dst.stride + int64_t{work.head_of(row)} * kDim + lane_id() % 4 * 2;
#pragma unroll
      for (int c = 0; c < kDim / kEight; ++c) {
        const float low = o[band][c][2 * i] * scale;
        const float high = o[band][c][2 * i + 1] * scale;
        if (a.dst.type == ElementType::kBf16) {
          *reinterpret_cast<uint32_t*>(static_cast<Bf16*>(a.dst.data) + at + c * kEight) =
              floats_to_bf16x2(low, high);
        } else {
          *reinterpret_cast<float2*>(static_cast<float*>(a.dst.data) + at + c * kEight) =
              make_float2(low, high);
        }
      }
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kCachedThreads, 2) flash_kernel(CachedAttention a) {
  const CachedWork work(a, a.tiles[blockIdx.x], false, kFlashRows);
  auto& shared = *reinterpret_cast<Shared<kDim>*>(dynamic_shared());
  float o[kBands][kDim / kEight][4] = {};
  State state;
#pragma unroll
  for (int i = 0; i < kBands * 2; ++i) {
    state.m[i / 2][i % 2] = -INFINITY;
    state.l[i / 2][i % 2] = 0;
  }
  int begin = work.lo / kKeys * kKeys;
  const auto* cache = static_cast<const Bf16*>(a.cache);
  constexpr int kValues = kCachedSlots * kDim;  // behind the keys of a block
  const Bf16* block = cache + block_of_warp(a, work, begin);
  load_queries(a, work, shared);
  load_tile<kDim>(work, begin, block, shared.keys[0]);
  copy_async_commit();
  load_tile<kDim>(work, begin, block + kValues, shared.values[0]);
  copy_async_commit();
  block = cache + block_of_warp(a, work, begin + kKeys);
  // Of each tile two groups are under way, keys and values, and none behind the last tile.
  for (int stage = 0; begin <= work.hi; stage ^= 1, begin += kKeys) {
    const bool more = begin + kKeys <= work.hi;
    copy_async_wait<1>();
    __syncthreads();  // the keys are there, and the other stage is free
    if (more) load_tile<kDim>(work, begin + kKeys, block, shared.keys[stage ^ 1]);
    copy_async_commit();
    Scores s = {};
    multiply<kDim>(shared, shared.keys[stage], s);
    score_tile(a, work, begin, s);
    weigh<kDim>(s, state, o);
    copy_async_wait<1>();
    __syncthreads();
    if (more) load_tile<kDim>(work, begin + kKeys, block + kValues, shared.values[stage ^ 1]);
    copy_async_commit();
    block = cache + block_of_warp(a, work, begin + 2 * kKeys);
    add_values<kDim>(shared.values[stage], s, o);
  }
  store_outputs<kDim>(a, work, state, o);
}

template <int kDim>
void launch_flash(const LaunchStream& stream, const CachedAttention& args) {
  launch(stream,
         {{static_cast<unsigned>(args.tile_items), static_cast<unsigned>(args.kv_head_count)},
          kCachedThreads,
          int64_t{sizeof(Shared<kDim>)}},
         flash_kernel<kDim>, args);
}

bool aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % kSixteen == 0 && stride % kEight == 0;
}

}  // namespace

bool cached_flash_takes(const CachedAttention& args) {
  const int d = args.head_dim;
  return args.cache_type == ElementType::kBf16 && args.q.type == ElementType::kBf16 &&
         (d == 64 || d == 80 || d == 96 || d == 128) && aligned(args.cache, 0) &&
         aligned(args.q.data, args.q.stride) && aligned(args.dst.data, args.dst.stride);
}

void launch_cached_flash(const LaunchStream& stream, const CachedAttention& args) {
  switch (args.head_dim) {
    case 64:
      return launch_flash<64>(stream, args);
    case 80:
      return launch_flash<80>(stream, args);
    case 96:
      return launch_flash<96>(stream, args);
    default:
      return launch_flash<128>(stream, args);
  }
}

}  // namespace jige::cuda

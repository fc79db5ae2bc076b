// Tiles of packed rows in bf16 on tensor cores: a warp has one or two bands of 16 rows, over tiles
// of keys that come into shared memory a tile ahead. Rows there are 16 bytes longer than the heads,
// so that matrices are read without conflicts of banks.
#include "kernels/cuda/attention_cached.cuh"

namespace jige::cuda {
namespace {

constexpr int kEight = 8;
constexpr int kSixteen = 16;
constexpr int kStages = 2;

template <int kDim>
struct Tile {
  static constexpr int kBands = kDim <= 128 ? 2 : 1;  // of 16 rows, of a warp
  static constexpr int kRows = kBands * kSixteen * kCachedWarps;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  static constexpr int kBlocks = kKeys / kCachedSlots;
  using Row = Bf16[kDim + kEight];
  // Scores of a warp's rows with the keys, and its outputs: operand D of 8 columns each.
  using Scores = float[kBands][kKeys / kEight][4];
  using Outputs = float[kBands][kDim / kEight][4];

  struct Shared {
    Row q[kRows];
    Row keys[kStages][kKeys];
    Row values[kStages][kKeys];
  };
  // The softmax of a lane's rows: g and g + 8 of each band. l is this lane's share.
  struct State {
    float m[kBands][2], l[kBands][2];
  };
  // The packed row of g + 8 half of a band.
  static __device__ int row_of(int band, int half) {
    return (warp_id() * kBands + band) * kSixteen + lane_id() / 4 + half * kEight;
  }
};

template <int kDim>
__device__ void load_queries(const CachedAttention& a, const CachedWork& work,
                             typename Tile<kDim>::Row* to) {
  constexpr int kPieces = kDim / kEight;
  const auto* q = static_cast<const Bf16*>(a.q.data);
  for (int i = static_cast<int>(threadIdx.x); i < Tile<kDim>::kRows * kPieces;
       i += kCachedThreads) {
    const int row = i / kPieces;
    const int c = i % kPieces * kEight;
    const int from = min(row, work.count - 1);
    const int64_t column = int64_t{work.head_of(from)} * kDim + c;
    copy_async_16(&to[row][c], q + work.row_of(from) * a.q.stride + column, row < work.count);
  }
}

// Of a tile of keys each warp loads a cache block or a part of one: where that block's keys are, or
// those of another one that is seen where no row sees it.
template <int kDim>
__device__ int64_t block_of_warp(const CachedAttention& a, const CachedWork& work, int begin) {
  const int block = begin / kCachedSlots + warp_id() % Tile<kDim>::kBlocks;
  return work.keys_at(a, min(max(block, work.lo / kCachedSlots), work.hi / kCachedSlots));
}

// Keys or values of the tile from position `begin` on; those that no row sees are zeros.
template <int kDim>
__device__ void load_tile(const CachedWork& work, int begin, const Bf16* block,
                          typename Tile<kDim>::Row* to) {
  constexpr int kPieces = kDim / kEight;
  constexpr int kBlocks = Tile<kDim>::kBlocks;
  const int first = warp_id() % kBlocks * kCachedSlots;
  const int lo = work.lo - begin - first;
  const int hi = work.hi - begin - first;
#pragma unroll
  for (int i = warp_id() / kBlocks * kWarp + lane_id(); i < kCachedSlots * kPieces;
       i += kCachedWarps / kBlocks * kWarp) {
    const int slot = i / kPieces;
    copy_async_16(&to[first + slot][i % kPieces * kEight], block + i * kEight,
                  lo <= slot && slot <= hi);
  }
}

template <int kDim>
__device__ void multiply(const typename Tile<kDim>::Row* q, const typename Tile<kDim>::Row* keys,
                         typename Tile<kDim>::Scores& s) {
  constexpr int kBands = Tile<kDim>::kBands;
  const int lane = lane_id();
#pragma unroll
  for (int c = 0; c < kDim; c += kSixteen) {
    uint32_t left[kBands][4];
#pragma unroll
    for (int band = 0; band < kBands; ++band) {
      const int row = (warp_id() * kBands + band) * kSixteen + lane % kSixteen;
      load_matrices_x4(left[band], &q[row][c + lane / kSixteen * kEight]);
    }
#pragma unroll
    for (int j = 0; j < Tile<kDim>::kKeys / kSixteen; ++j) {
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

// Products become scores, or -infinity where the row does not see the key.
template <int kDim>
__device__ void score_tile(const CachedAttention& a, const CachedWork& work, int begin,
                           typename Tile<kDim>::Scores& s) {
  constexpr int kBands = Tile<kDim>::kBands;
  constexpr int kKeys = Tile<kDim>::kKeys;
  const CachedScore score(a);
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
#pragma unroll
    for (int j = 0; j < kKeys / kEight; ++j) score(s[band][j]);
  }
  if (work.all_see(a, begin, begin + kKeys)) return;
#pragma unroll
  for (int i = 0; i < kBands * 2; ++i) {
    const int row = Tile<kDim>::row_of(i / 2, i % 2);
    const int position = work.position_of(min(row, work.count - 1));
    const int first = CachedWork::first_of(a, position);
#pragma unroll
    for (int e = 0; e < kKeys / 4; ++e) {
      const int token = begin + e / 2 * kEight + lane_id() % 4 * 2 + e % 2;
      if (token < first || token > position) s[i / 2][e / 2][i % 2 * 2 + e % 2] = -INFINITY;
    }
  }
}

// Scores become weights, and outputs so far are scaled down to them.
template <int kDim>
__device__ void weigh(typename Tile<kDim>::Scores& s, typename Tile<kDim>::State& state,
                      typename Tile<kDim>::Outputs& o) {
#pragma unroll
  for (int i = 0; i < Tile<kDim>::kBands * 2; ++i) {
    auto& own = s[i / 2];
    float& m = state.m[i / 2][i % 2];
    float top = m;
#pragma unroll
    for (int e = 0; e < Tile<kDim>::kKeys / 4; ++e) {
      top = fmaxf(top, own[e / 2][i % 2 * 2 + e % 2]);
    }
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float base = top == -INFINITY ? 0.0f : top;
    const float alpha = fast_exp2(m - base);
    m = top;
    float sum = 0;
#pragma unroll
    for (int e = 0; e < Tile<kDim>::kKeys / 4; ++e) {
      float& x = own[e / 2][i % 2 * 2 + e % 2];
      x = fast_exp2(x - base);
      sum += x;
    }
    state.l[i / 2][i % 2] = fmaf(state.l[i / 2][i % 2], alpha, sum);
#pragma unroll
    for (int e = 0; e < kDim / 4; ++e) o[i / 2][e / 2][i % 2 * 2 + e % 2] *= alpha;
  }
}

template <int kDim>
__device__ void add_values(const typename Tile<kDim>::Row* values,
                           const typename Tile<kDim>::Scores& weights,
                           typename Tile<kDim>::Outputs& o) {
  constexpr int kBands = Tile<kDim>::kBands;
  const int lane = lane_id();
#pragma unroll
  for (int j = 0; j < Tile<kDim>::kKeys / kSixteen; ++j) {
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

// Stores results, or partial ones, which are not scaled.
template <int kDim>
__device__ void store_outputs(const CachedAttention& a, const CachedWork& work,
                              const typename Tile<kDim>::State& state,
                              const typename Tile<kDim>::Outputs& o) {
#pragma unroll
  for (int i = 0; i < Tile<kDim>::kBands * 2; ++i) {
    const int row = Tile<kDim>::row_of(i / 2, i % 2);
    const float m = state.m[i / 2][i % 2];
    float l = state.l[i / 2][i % 2];
    l += __shfl_xor_sync(kAllLanes, l, 1);
    l += __shfl_xor_sync(kAllLanes, l, 2);
    if (row >= work.count) continue;
    const int head = work.head_of(row);
    float scale = 1;
    bool in_bf16 = false;
    void* data = a.partials;
    int64_t at;
    if (work.partial()) {
      const int64_t partial = work.partial_of(a, row);
      partial_statistics(a, partial)[0] = m;
      partial_statistics(a, partial)[1] = l;
      at = partial * kDim;
    } else {
      scale = cached_scale(a, head, m, l);
      in_bf16 = a.dst.type == ElementType::kBf16;
      data = a.dst.data;
      at = work.row_of(row) * a.dst.stride + int64_t{head} * kDim;
    }
    at += lane_id() % 4 * 2;
#pragma unroll
    for (int c = 0; c < kDim / kEight; ++c) {
      const float low = o[i / 2][c][i % 2 * 2] * scale;
      const float high = o[i / 2][c][i % 2 * 2 + 1] * scale;
      if (in_bf16) {
        *reinterpret_cast<uint32_t*>(static_cast<Bf16*>(data) + at + c * kEight) =
            floats_to_bf16x2(low, high);
      } else {
        *reinterpret_cast<float2*>(static_cast<float*>(data) + at + c * kEight) =
            make_float2(low, high);
      }
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kCachedThreads, 2) flash_kernel(CachedAttention a) {
  using Of = Tile<kDim>;
  constexpr int kKeys = Of::kKeys;
  constexpr int kValues = kCachedSlots * kDim;  // behind the keys of a block
  const CachedItem item = a.tiles[blockIdx.x];
  if (item.sequence < 0) return;
  const CachedWork work(a, item, Of::kRows);
  auto& shared = *reinterpret_cast<typename Of::Shared*>(dynamic_shared());
  typename Of::Outputs o = {};
  typename Of::State state;
#pragma unroll
  for (int i = 0; i < Of::kBands * 2; ++i) {
    state.m[i / 2][i % 2] = -INFINITY;
    state.l[i / 2][i % 2] = 0;
  }
  int begin = work.lo / kKeys * kKeys;
  const auto* cache = static_cast<const Bf16*>(a.cache);
  const Bf16* block = cache + block_of_warp<kDim>(a, work, begin);
  load_queries<kDim>(a, work, shared.q);
  load_tile<kDim>(work, begin, block, shared.keys[0]);
  copy_async_commit();
  load_tile<kDim>(work, begin, block + kValues, shared.values[0]);
  copy_async_commit();
  block = cache + block_of_warp<kDim>(a, work, begin + kKeys);
  // Of each tile two groups are under way, keys and values, which are empty behind the last tile.
  for (int stage = 0; begin <= work.hi; stage ^= 1, begin += kKeys) {
    const bool more = begin + kKeys <= work.hi;
    copy_async_wait<1>();
    __syncthreads();  // the keys are there, and the other stage is free
    if (more) load_tile<kDim>(work, begin + kKeys, block, shared.keys[stage ^ 1]);
    copy_async_commit();
    typename Of::Scores s = {};
    multiply<kDim>(shared.q, shared.keys[stage], s);
    score_tile<kDim>(a, work, begin, s);
    weigh<kDim>(s, state, o);
    copy_async_wait<1>();
    __syncthreads();
    if (more) load_tile<kDim>(work, begin + kKeys, block + kValues, shared.values[stage ^ 1]);
    copy_async_commit();
    block = cache + block_of_warp<kDim>(a, work, begin + 2 * kKeys);
    add_values<kDim>(shared.values[stage], s, o);
  }
  store_outputs<kDim>(a, work, state, o);
}

template <int kDim>
void launch_flash(const LaunchStream& stream, const CachedAttention& args) {
  launch(stream,
         {{static_cast<unsigned>(args.tile_items), static_cast<unsigned>(args.kv_head_count)},
          kCachedThreads,
          int64_t{sizeof(typename Tile<kDim>::Shared)}},
         flash_kernel<kDim>, args);
}

// Calls body.operator()<kDim>() for the heads that the kernels are made for; whether they are.
template <typename Body>
bool with_dim(int head_dim, Body body) {
  switch (head_dim) {
    case 64:
      body.template operator()<64>();
      return true;
    case 80:
      body.template operator()<80>();
      return true;
    case 96:
      body.template operator()<96>();
      return true;
    case 128:
      body.template operator()<128>();
      return true;
    case 192:
      body.template operator()<192>();
      return true;
    case 256:
      body.template operator()<256>();
      return true;
    default:
      return false;
  }
}

bool aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % kSixteen == 0 && stride % kEight == 0;
}

}  // namespace

int32_t cached_flash_rows(const CachedAttention& args) {
  int32_t rows = 0;
  with_dim(args.head_dim, [&]<int kDim>() { rows = Tile<kDim>::kRows; });
  return rows;
}

bool cached_flash_takes(const CachedAttention& args) {
  return cached_flash_rows(args) > 0 && args.cache_type == ElementType::kBf16 &&
         args.q.type == ElementType::kBf16 && aligned(args.cache, 0) &&
         aligned(args.q.data, args.q.stride) && aligned(args.dst.data, args.dst.stride);
}

void launch_cached_flash(const LaunchStream& stream, const CachedAttention& args) {
  with_dim(args.head_dim, [&]<int kDim>() { launch_flash<kDim>(stream, args); });
}

}  // namespace jige::cuda

// Tiles of packed rows in bf16 on tensor cores, as attention_forward.cu has them of flat sequences:
// cache blocks of keys and values are copied while those before are computed with. Of a cache in 8
// bits they are turned into bf16 on the way.
#include "kernels/cuda/attention_cached.cuh"
#include "kernels/cuda/attention_soften.cuh"

namespace jige::cuda {
namespace {

template <typename Case>
struct CachedPlan {
  static constexpr int kDim = Case::kDim;
  static constexpr int kRows = Case::kSmall ? kSmallTile : kLargeTile;
  static constexpr int kKeys = kDim <= 128 ? 64 : 32;
  static constexpr int kM = kDim <= 128 && !Case::kSmall ? 2 : 1;  // matrices of 16 rows of a warp
  static constexpr int kThreads = kRows / (16 * kM) * kWarp;
  static constexpr int kBlocks = kDim <= 64 ? 3 : kDim <= 128 ? 2 : 1;  // of a multiprocessor
  static constexpr int kTile = kKeys * kStride<kDim>;
  static constexpr int64_t kBytes = tile_bytes<kDim>(kRows + 4 * kKeys);
};

// Eight numbers of 8 bits as bf16, which holds them.
__device__ uint4 wide_bytes(uint2 bytes) {
  const auto low = [](uint32_t word) { return bytes_to_bf16x2((word & 0xffu) | word << 8); };
  const auto high = [](uint32_t word) {
    return bytes_to_bf16x2((word >> 16 & 0xffu) | (word >> 8 & 0xff0000u));
  };
  return make_uint4(low(bytes.x), high(bytes.x), low(bytes.y), high(bytes.y));
}

// The scale of a row of 8 bits is in its tile, behind the row's end.
template <int kDim>
__device__ float& row_scale(Bf16* row) {
  static_assert((kStride<kDim> - kDim) * sizeof(Bf16) >= sizeof(float));
  return *reinterpret_cast<float*>(row + kDim);
}

// Scores or weights times the scales of their keys or values.
template <int kDim, int kM, int kN>
__device__ void scale_by_tile(float (&x)[kM][kN][4], Bf16* tile) {
#pragma unroll
  for (int n = 0; n < kN; ++n) {
    Bf16* const row = tile + (8 * n + lane_id() % 4 * 2) * kStride<kDim>;
    const float2 two = make_float2(row_scale<kDim>(row), row_scale<kDim>(row + kStride<kDim>));
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      x[m][n][0] *= two.x;
      x[m][n][1] *= two.y;
      x[m][n][2] *= two.x;
      x[m][n][3] *= two.y;
    }
  }
}

// Keys and values from position `begin` on, of which each warp copies a cache block or a part of
// one; those that no row sees become zeros.
template <typename Plan, typename T>
struct FlashCopies : TileBlocks<Plan, T> {
  using TileBlocks<Plan, T>::kBytes, TileBlocks<Plan, T>::kBlocks, TileBlocks<Plan, T>::kBlockWarps;

  // Numbers i · 8 … i · 8 + 7 of a block in 8 bits, and scales by the first ones of a row.
  static __device__ void widen(const int8_t* from, int i, int slot, bool seen, Bf16* keys,
                               Bf16* values) {
    uint4 two[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
    if (seen) {
      two[0] = wide_bytes(*reinterpret_cast<const uint2*>(from + i * 8));
      two[1] =
          wide_bytes(*reinterpret_cast<const uint2*>(from + (kCachedSlots * Plan::kDim + i * 8)));
    }
    *reinterpret_cast<uint4*>(keys) = two[0];
    *reinterpret_cast<uint4*>(values) = two[1];
    if (i % (Plan::kDim / 8) != 0) return;
    const CachedScales of_block(from, Plan::kDim);
    row_scale<Plan::kDim>(keys) = seen ? of_block.of_key(slot) : 0.0f;
    row_scale<Plan::kDim>(values) = seen ? of_block.of_value(slot) : 0.0f;
  }

  static __device__ void start(const CachedWork& work, int begin, const T* from, Bf16* keys,
                               Bf16* values) {
    constexpr int kChunks = Plan::kDim / 8;
    const int first = warp_id() % kBlocks * kCachedSlots;
    const int lo = work.lo - begin - first;
    const int hi = work.hi - begin - first;
#pragma unroll
    for (int i = warp_id() / kBlocks * kWarp + lane_id(); i < kCachedSlots * kChunks;
         i += kBlockWarps * kWarp) {
      const int slot = i / kChunks;
      const int to = (first + slot) * kStride<Plan::kDim> + i % kChunks * 8;
      const bool seen = lo <= slot && slot <= hi;
      if constexpr (kBytes) {
        widen(from, i, slot, seen, keys + to, values + to);
      } else {
        copy_async_16(keys + to, from + i * 8, seen);
        copy_async_16(values + to, from + kCachedSlots * Plan::kDim + i * 8, seen);
      }
    }
  }
};

// Of the warp's rows, which begin with packed row `own` of the block.
template <int kM, int kN>
__device__ void hide_unseen_packed(float (&scores)[kM][kN][4], const CachedWork& work, int own,
                                   int begin, unsigned span) {
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const int row = own + 8 * i + lane_id() / 4;
    const int ahead = work.position_of(min(row, work.count - 1)) - begin - lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (!sees(ahead, 8 * n + e, span)) scores[i / 2][n][i % 2 * 2 + e] = -INFINITY;
      }
    }
  }
}

// Stores results, or partial ones, which are not scaled.
template <int kDim, int kM>
__device__ void store_outputs(const CachedAttention& a, const CachedWork& work, int own,
                              const RowState<kM>& state, float factor,
                              const float (&sums)[kM][kDim / 8][4]) {
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) {
    const int row = own + 8 * i + lane_id() / 4;
    const float m = state.most[i / 2][i % 2] * factor;
    float l = state.sum[i / 2][i % 2];
    l += __shfl_xor_sync(kAllLanes, l, 1);
    l += __shfl_xor_sync(kAllLanes, l, 2);
    if (row >= work.count) continue;
    const int head = work.head_of(row);
    float scale = 1;
    Rows to = {a.partials, ElementType::kF32, 0};
    int64_t at;
    if (work.partial()) {
      const int64_t partial = work.partial_of(a, row);
      partial_statistics(a, partial)[0] = m;
      partial_statistics(a, partial)[1] = l;
      at = partial * kDim;
    } else {
      scale = cached_scale(a, head, m, l);
      to = a.dst;
      at = work.row_of(row) * to.stride + int64_t{head} * kDim;
    }
    at += lane_id() % 4 * 2;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      store_two(to, at + 8 * n, sums[i / 2][n][i % 2 * 2] * scale,
                sums[i / 2][n][i % 2 * 2 + 1] * scale);
    }
  }
}

template <typename Case, typename T>
__global__ void __launch_bounds__(CachedPlan<Case>::kThreads, CachedPlan<Case>::kBlocks)
    flash_kernel(CachedAttention a, Scores how) {
  begin_kernel();
  using Plan = CachedPlan<Case>;
  using Copies = FlashCopies<Plan, T>;
  constexpr int kKeys = Plan::kKeys;
  const CachedItem item = a.tiles[blockIdx.x];
  if (item.sequence < 0) return;
  const CachedWork work(a, item, Plan::kRows);
  auto* q = reinterpret_cast<Bf16*>(dynamic_shared());
  Bf16* keys = q + Plan::kRows * kStride<Plan::kDim>;
  Bf16* values = keys + 2 * Plan::kTile;
  int begin = work.lo / kKeys * kKeys;
  copy_queries<Plan>(a, work, q);
  Copies::start(work, begin, Copies::block(a, work, begin), keys, values);
  copy_async_commit();
  const T* block = Copies::block(a, work, begin + kKeys);

  const int own = 16 * Plan::kM * warp_id();
  const int first = work.position_of(min(own, work.count - 1));
  const int last = work.position_of(min(own + 16 * Plan::kM, work.count) - 1);
  const unsigned span = a.window > 0 ? static_cast<unsigned>(a.window) : 0x7fffffffu;
  float sums[Plan::kM][Plan::kDim / 8][4];
  RowState<Plan::kM> state;
  clear(sums);
  state.clear();
  for (int stage = 0; begin <= work.hi; stage ^= 1, begin += kKeys) {
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and the other stage is free
    if (begin + kKeys <= work.hi) {
      const int other = (stage ^ 1) * Plan::kTile;
      Copies::start(work, begin + kKeys, block, keys + other, values + other);
    }
    copy_async_commit();
    block = Copies::block(a, work, begin + 2 * kKeys);
    const bool before = begin + kKeys <= CachedWork::first_of(a, first);
    if (own >= work.count || begin > last || before) continue;
    float scores[Plan::kM][kKeys / 8][4];
    multiply_rows<Plan::kDim>(scores, q + own * kStride<Plan::kDim>, keys + stage * Plan::kTile);
    if constexpr (Copies::kBytes) scale_by_tile<Plan::kDim>(scores, keys + stage * Plan::kTile);
    if (how.bend > 0) bend(scores, how.bend);
    const bool hides = begin + kKeys - 1 > first || begin < CachedWork::first_of(a, last);
    if (hides) hide_unseen_packed(scores, work, own, begin, span);
    soften(scores, state, sums, how.factor);
    if constexpr (Copies::kBytes) scale_by_tile<Plan::kDim>(scores, values + stage * Plan::kTile);
    add_weighted<Plan::kDim>(sums, scores, values + stage * Plan::kTile);
  }
  store_outputs<Plan::kDim>(a, work, own, state, how.factor, sums);
}

bool on_16_bytes(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

bool cached_flash_takes(const CachedAttention& args) {
  const int dim = args.head_dim;
  return (dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 192 || dim == 256) &&
         args.scale > 0 && (args.in_8_bits || args.cache_type == ElementType::kBf16) &&
         args.q.type == ElementType::kBf16 && on_16_bytes(args.cache, 0) &&
         on_16_bytes(args.q.data, args.q.stride) && on_16_bytes(args.dst.data, args.dst.stride);
}

int32_t cached_flash_rows(const LaunchStream& stream, const CachedAttention& args, int64_t rows) {
  FlatAttention flat = {};
  flat.head_count = args.head_count;
  return flash_queries(stream, flat, rows);
}

void launch_cached_flash(const LaunchStream& stream, const CachedAttention& args) {
  FlatAttention flat = {};
  flat.scale = args.scale;
  flat.cap = args.cap;
  with_flash_case(args.head_dim, args.tile_rows == kSmallTile, [&](auto which) {
    using Plan = CachedPlan<decltype(which)>;
    launch(stream,
           {{static_cast<unsigned>(args.tile_items), static_cast<unsigned>(args.kv_head_count)},
            Plan::kThreads,
            Plan::kBytes},
           args.in_8_bits ? flash_kernel<decltype(which), int8_t>
                          : flash_kernel<decltype(which), Bf16>,
           args, scores_of(flat));
  });
}

}  // namespace jige::cuda

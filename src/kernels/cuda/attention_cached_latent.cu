// A cache of latents in bf16 on tensor cores: values are the first columns of keys, which come
// once, and all query heads read the same. The keys are multiplied where they lie in shared memory,
// by queries first and then by weights.
//
// Eight warps share a tile of packed rows and one of keys: of the products of both each has some
// keys, whose scores go to shared memory; a row's weights are made there by neighbouring threads;
// and of the sums of values each warp has its own columns, kept in registers. Copies of the next
// keys are under way meanwhile. Rows are 16 or 64, by the number of heads, so that a row's sums
// have the same order whatever its neighbours.
#include "kernels/cuda/attention_cached.cuh"
#include "kernels/cuda/attention_flash.cuh"

namespace jige::cuda {
namespace {

constexpr int kLatentWarps = 8;
constexpr int kLatentThreads = kLatentWarps * kWarp;
constexpr int kFewHeads = 16;  // of which there are packed rows in a small tile

template <int kDimIn, int kValueIn, int kRowsIn>
struct LatentPlan {
  static constexpr int kDim = kDimIn;
  static constexpr int kThreads = kLatentThreads;
  static constexpr int kValue = kValueIn;
  static constexpr int kRows = kRowsIn;
  static constexpr int kKeys = kRows == kCachedLatentRows ? 32 : 64;
  static constexpr int kTile = kKeys * kStride<kDim>;  // elements
  // Of products: tiles of 8 keys of a warp, with one tile of 16 rows.
  static constexpr int kRowTiles = kRows / 16;
  static constexpr int kKeyTiles = kKeys / 8 * kRowTiles / kLatentWarps;
  // Of weights: neighbouring threads of a row, and the keys of each.
  static constexpr int kLanes = kLatentThreads / kRows;
  static constexpr int kOwnKeys = kKeys / kLanes;
  // Of sums: warps along the rows and along columns, tiles of 16 rows and of 16 columns of each.
  static constexpr int kWarpsDown = kRowTiles > 1 ? 2 : 1;
  static constexpr int kWarpsAlong = kLatentWarps / kWarpsDown;
  static constexpr int kM = kRowTiles / kWarpsDown;
  static constexpr int kN = kValue / 16 / kWarpsAlong;
  static_assert(kKeyTiles == 1 || kKeyTiles == 2);
  static_assert(kN * kWarpsAlong * 16 == kValue && kDim % 32 == 0);
  static constexpr int kScoreStride = kKeys + 4;
  static constexpr int kWeightStride = kKeys + 8;
  static constexpr int64_t kBytes = tile_bytes<kDim>(kRows + 2 * kKeys) +
                                    int64_t{4} * kRows * kScoreStride +
                                    int64_t{2} * kRows * kWeightStride + int64_t{3} * 4 * kRows;
};

template <typename Plan>
struct LatentShared {
  Bf16* queries;
  Bf16* keys;  // two tiles
  float* scores;
  Bf16* weights;
  float *alpha, *m, *l;  // of rows

  __device__ LatentShared()
      : queries(reinterpret_cast<Bf16*>(dynamic_shared())),
        keys(queries + Plan::kRows * kStride<Plan::kDim>),
        scores(reinterpret_cast<float*>(keys + 2 * Plan::kTile)),
        weights(reinterpret_cast<Bf16*>(scores + Plan::kRows * Plan::kScoreStride)),
        alpha(reinterpret_cast<float*>(weights + Plan::kRows * Plan::kWeightStride)),
        m(alpha + Plan::kRows),
        l(m + Plan::kRows) {}
};

// Each warp copies a part of one cache block; keys that no row sees become zeros.
template <typename Plan>
struct LatentCopies : TileBlocks<Plan, Bf16> {
  using TileBlocks<Plan, Bf16>::kBlocks, TileBlocks<Plan, Bf16>::kBlockWarps;

  static __device__ void start(const CachedWork& work, int begin, const Bf16* from, Bf16* keys) {
    constexpr int kChunks = Plan::kDim / 8;
    const int first = warp_id() % kBlocks * kCachedSlots;
    const int lo = work.lo - begin - first;
    const int hi = work.hi - begin - first;
#pragma unroll 6
    for (int i = warp_id() / kBlocks * kWarp + lane_id(); i < kCachedSlots * kChunks;
         i += kBlockWarps * kWarp) {
      const int slot = i / kChunks;
      copy_async_16(keys + (first + slot) * kStride<Plan::kDim> + i % kChunks * 8, from + i * 8,
                    lo <= slot && slot <= hi);
    }
  }
};

// Products of the warp's rows and keys.
template <typename Plan>
__device__ void multiply_keys(const LatentShared<Plan>& shared, const Bf16* keys) {
  constexpr int kLine = kStride<Plan::kDim>;
  const int lane = lane_id();
  const int row = warp_id() % Plan::kRowTiles * 16;
  const int key = warp_id() / Plan::kRowTiles * Plan::kKeyTiles * 8;
  const Bf16* q_row = shared.queries + (row + lane % 16) * kLine + lane / 16 * 8;
  // Matrices of a load: two of columns for each of two tiles of keys, or four for one.
  const bool two = Plan::kKeyTiles == 2;
  const Bf16* k_row = keys + (key + (two ? lane / 16 * 8 : 0) + lane % 8) * kLine +
                      (two ? lane / 8 % 2 : lane / 8) * 8;
  float s[Plan::kKeyTiles][4] = {};
#pragma unroll 6
  for (int c = 0; c < Plan::kDim; c += 32) {
    uint32_t left[2][4];
    uint32_t right[2][4];
    load_matrices_x4(left[0], q_row + c);
    load_matrices_x4(left[1], q_row + c + 16);
    load_matrices_x4(right[0], k_row + c);
    if constexpr (Plan::kKeyTiles == 2) {
      load_matrices_x4(right[1], k_row + c + 16);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        mma_bf16(s[0], left[half], {right[half][0], right[half][1]});
        mma_bf16(s[1], left[half], {right[half][2], right[half][3]});
      }
    } else {
      mma_bf16(s[0], left[0], {right[0][0], right[0][1]});
      mma_bf16(s[0], left[1], {right[0][2], right[0][3]});
    }
  }
#pragma unroll
  for (int n = 0; n < Plan::kKeyTiles; ++n) {
    float* to = shared.scores + (row + lane / 4) * Plan::kScoreStride + key + 8 * n + lane % 4 * 2;
    *reinterpret_cast<float2*>(to) = make_float2(s[n][0], s[n][1]);
    *reinterpret_cast<float2*>(to + 8 * Plan::kScoreStride) = make_float2(s[n][2], s[n][3]);
  }
}

// The softmax so far of the row that is a thread's; l is the share of its keys.
template <typename Plan>
struct LatentRow {
  int row, key;         // the first of its keys in a tile
  int first, position;  // what the row sees
  float m = -INFINITY;
  float l = 0;

  __device__ LatentRow(const CachedAttention& a, const CachedWork& work)
      : row(static_cast<int>(threadIdx.x) / Plan::kLanes),
        key(static_cast<int>(threadIdx.x) % Plan::kLanes * Plan::kOwnKeys),
        first(0),
        position(work.position_of(min(row, work.count - 1))) {
    first = max(CachedWork::first_of(a, position), work.lo);
    position = min(position, work.hi);
  }

  // Scores become weights.
  __device__ void weigh(const CachedScore& score, const LatentShared<Plan>& shared, int begin) {
    float x[Plan::kOwnKeys];
    const float* from = shared.scores + row * Plan::kScoreStride + key;
#pragma unroll
    for (int i = 0; i < Plan::kOwnKeys; ++i) x[i] = from[i];
    score(x);
    float top = m;
#pragma unroll
    for (int i = 0; i < Plan::kOwnKeys; ++i) {
      const int token = begin + key + i;
      if (token < first || token > position) x[i] = -INFINITY;
      top = fmaxf(top, x[i]);
    }
#pragma unroll
    for (int lanes = 1; lanes < Plan::kLanes; lanes *= 2) {
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, lanes));
    }
    const float base = top == -INFINITY ? 0.0f : top;
    const float alpha = fast_exp2(m - base);
    m = top;
    float sum = 0;
    auto* to = reinterpret_cast<uint32_t*>(shared.weights + row * Plan::kWeightStride + key);
#pragma unroll
    for (int i = 0; i < Plan::kOwnKeys; i += 2) {
      const float low = fast_exp2(x[i] - base);
      const float high = fast_exp2(x[i + 1] - base);
      sum += low + high;
      to[i / 2] = floats_to_bf16x2(low, high);
    }
    l = fmaf(l, alpha, sum);
    if (key == 0) shared.alpha[row] = alpha;
  }
  // Puts the maximum and the sum where all threads read them.
  __device__ void put(const LatentShared<Plan>& shared) {
#pragma unroll
    for (int lanes = 1; lanes < Plan::kLanes; lanes *= 2) {
      l += __shfl_xor_sync(kAllLanes, l, lanes);
    }
    if (key != 0) return;
    shared.m[row] = m;
    shared.l[row] = l;
  }
};

// The warp's sums of values: rows from `row` on; tiles of 16 columns from `column` on, side by
// side.
template <typename Plan>
struct LatentSums {
  float of[Plan::kM][2 * Plan::kN][4] = {};
  int row = warp_id() % Plan::kWarpsDown * Plan::kM * 16;
  int column = warp_id() / Plan::kWarpsDown * Plan::kN * 16;

  __device__ void rescale(const float* alpha) {
    float by[2 * Plan::kM];
    bool changed = false;
#pragma unroll
    for (int i = 0; i < 2 * Plan::kM; ++i) {
      by[i] = alpha[row + 8 * i + lane_id() / 4];
      changed |= by[i] != 1.0f;
    }
    if (__any_sync(kAllLanes, changed) == 0) return;
#pragma unroll
    for (int i = 0; i < 2 * Plan::kM; ++i) {
#pragma unroll
      for (int n = 0; n < 2 * Plan::kN; ++n) {
        of[i / 2][n][i % 2 * 2] *= by[i];
        of[i / 2][n][i % 2 * 2 + 1] *= by[i];
      }
    }
  }

  __device__ void add(const Bf16* weights, const Bf16* keys) {
    constexpr int kLine = kStride<Plan::kDim>;
    const int lane = lane_id();
    const Bf16* w_row = weights + (row + lane % 16) * Plan::kWeightStride + lane / 16 * 8;
    const Bf16* v_row = keys + lane % 16 * kLine + column + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < Plan::kKeys; k += 16) {
      uint32_t left[Plan::kM][4];
#pragma unroll
      for (int m = 0; m < Plan::kM; ++m) {
        load_matrices_x4(left[m], w_row + m * 16 * Plan::kWeightStride + k);
      }
#pragma unroll
      for (int n = 0; n < Plan::kN; ++n) {
        uint32_t right[4];
        load_matrices_x4_transposed(right, v_row + k * kLine + n * 16);
#pragma unroll
        for (int m = 0; m < Plan::kM; ++m) {
          mma_bf16(of[m][2 * n], left[m], {right[0], right[1]});
          mma_bf16(of[m][2 * n + 1], left[m], {right[2], right[3]});
        }
      }
    }
  }

  // Stores results, or partial ones, which are not scaled.
  __device__ void store(const CachedAttention& a, const CachedWork& work,
                        const LatentShared<Plan>& shared) const {
#pragma unroll
    for (int i = 0; i < 2 * Plan::kM; ++i) {
      const int own = row + 8 * i + lane_id() / 4;
      if (own >= work.count) continue;
      const int head = work.head_of(own);
      float scale = 1;
      Rows to = {a.partials, ElementType::kF32, 0};
      int64_t at;
      if (work.partial()) {
        const int64_t partial = work.partial_of(a, own);
        partial_statistics(a, partial)[0] = shared.m[own];
        partial_statistics(a, partial)[1] = shared.l[own];
        at = partial * Plan::kDim;
      } else {
        scale = cached_scale(a, head, shared.m[own], shared.l[own]);
        to = a.dst;
        at = work.row_of(own) * to.stride + int64_t{head} * Plan::kDim;
      }
      at += column + lane_id() % 4 * 2;
#pragma unroll
      for (int n = 0; n < 2 * Plan::kN; ++n) {
        store_two(to, at + 8 * n, of[i / 2][n][i % 2 * 2] * scale,
                  of[i / 2][n][i % 2 * 2 + 1] * scale);
      }
    }
  }
};

template <typename Plan>
__global__ void __launch_bounds__(kLatentThreads, 1)
    latent_kernel(CachedAttention a, const CachedItem* items) {
  begin_kernel();
  const CachedItem item = items[blockIdx.x];
  if (item.sequence < 0) return;
  const CachedWork work(a, item, Plan::kRows);
  if (work.count <= 0) return;
  using Copies = LatentCopies<Plan>;
  constexpr int kKeys = Plan::kKeys;
  const LatentShared<Plan> shared;
  int begin = work.lo / kKeys * kKeys;
  const bool any = work.lo <= work.hi;
  copy_queries<Plan>(a, work, shared.queries);
  if (any) Copies::start(work, begin, Copies::block(a, work, begin), shared.keys);
  copy_async_commit();
  const Bf16* block = any ? Copies::block(a, work, begin + kKeys) : nullptr;
  const CachedScore score(a);
  LatentRow<Plan> own(a, work);
  LatentSums<Plan> sums;
  for (int stage = 0; begin <= work.hi; stage ^= 1, begin += kKeys) {
    const Bf16* keys = shared.keys + stage * Plan::kTile;
    copy_async_wait<0>();
    __syncthreads();  // the tile is there, and the other one is free
    if (begin + kKeys <= work.hi) {
      Copies::start(work, begin + kKeys, block, shared.keys + (stage ^ 1) * Plan::kTile);
    }
    copy_async_commit();
    block = Copies::block(a, work, begin + 2 * kKeys);
    multiply_keys<Plan>(shared, keys);
    __syncthreads();
    own.weigh(score, shared, begin);
    __syncthreads();
    sums.rescale(shared.alpha);
    sums.add(shared.weights, keys);
  }
  own.put(shared);
  copy_async_wait<0>();
  __syncthreads();
  sums.store(a, work, shared);
}

template <int kDim, int kValue, int kRows>
void launch_plan(const LaunchStream& stream, const CachedAttention& args, bool few) {
  using Plan = LatentPlan<kDim, kValue, kRows>;
  const unsigned groups = few ? blocks_for(int64_t{args.few_rows_max} * args.heads, kRows) : 1;
  const auto count = static_cast<unsigned>(few ? args.few_items : args.tile_items);
  launch(stream,
         {{count, static_cast<unsigned>(args.kv_head_count), groups}, kLatentThreads, Plan::kBytes},
         latent_kernel<Plan>, args, few ? args.few : args.tiles);
}

template <int kDim, int kValue>
void launch_latent(const LaunchStream& stream, const CachedAttention& args, bool few) {
  constexpr int kSmall = 16;
  const bool small = few && args.heads <= kFewHeads &&
                     LatentPlan<kDim, kValue, kSmall>::kBytes <= shared_bytes_max();
  if (small) return launch_plan<kDim, kValue, kSmall>(stream, args, few);
  launch_plan<kDim, kValue, kCachedLatentRows>(stream, args, few);
}

// The sizes that there are kernels for: of DeepSeek and of MiniCPM3.
bool is_large(const CachedAttention& args) {
  return args.head_dim == 576 && args.value_columns == 512;
}
bool is_medium(const CachedAttention& args) {
  return args.head_dim == 288 && args.value_columns == 256;
}
int64_t bytes_of(const CachedAttention& args) {
  return is_large(args) ? LatentPlan<576, 512, kCachedLatentRows>::kBytes
                        : LatentPlan<288, 256, kCachedLatentRows>::kBytes;
}

}  // namespace

bool cached_latent_takes(const CachedAttention& args) {
  return args.values_in_keys && (is_large(args) || is_medium(args)) && !args.in_8_bits &&
         args.cache_type == ElementType::kBf16 && args.q.type == ElementType::kBf16 &&
         flash_aligned(args.cache, args.cache_type, 0) &&
         flash_aligned(args.q.data, args.q.type, args.q.stride) &&
         flash_aligned(args.dst.data, args.dst.type, args.dst.stride) &&
         bytes_of(args) <= shared_bytes_max();
}

void launch_cached_latent(const LaunchStream& stream, const CachedAttention& args, bool few) {
  if (is_large(args)) return launch_latent<576, 512>(stream, args, few);
  launch_latent<288, 256>(stream, args, few);
}

}  // namespace jige::cuda

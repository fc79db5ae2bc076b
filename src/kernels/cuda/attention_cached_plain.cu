// Attention over the cache in f32: 8 packed rows a block of threads, whose warps take every fourth
// cache block. Of 8 bits integers are multiplied, and their scales come to scores and weights. Of
// products of queries and keys 8 lanes share a token; of sums of values a lane has some columns of
// all rows.
#include <type_traits>

#include "kernels/cuda/attention_cached.cuh"

namespace jige::cuda {
namespace {

constexpr int kTokenLanes = 8;                      // that share a token
constexpr int kTokensAtOnce = kWarp / kTokenLanes;  // that a warp multiplies at once
constexpr int kTurns = kCachedSlots / kTokensAtOnce;
constexpr int kFour = 4;  // columns a lane takes at once

__host__ __device__ constexpr int stride_of(int head_dim) {
  return (head_dim + kWarp - 1) / kWarp * kWarp;
}

// Memory of the block: queries, what CachedSums has, and the weights of the warps.
struct Shared {
  float* q;  // [8][stride]
  CachedSums sums;
  float* p;      // of this warp [16][8]
  float* alpha;  // of this warp [8]

  static constexpr int64_t bytes(int stride) {
    return CachedSums::bytes(kPlainRows, stride) +
           int64_t{kPlainRows} * (stride + kCachedWarps * (kCachedSlots + 1)) *
               int64_t{sizeof(float)};
  }
  __device__ Shared(unsigned char* shared, int stride)
      : q(reinterpret_cast<float*>(shared)),
        sums(reinterpret_cast<unsigned char*>(q + kPlainRows * stride), kPlainRows, stride),
        p(sums.o + kPlainRows * stride + warp_id() * kPlainRows * (kCachedSlots + 1)),
        alpha(p + kPlainRows * kCachedSlots) {}
};

__device__ inline float4 load_four(const float* at, int left, bool vector) {
  if (vector) return *reinterpret_cast<const float4*>(at);
  return make_float4(at[0], left > 1 ? at[1] : 0.0f, left > 2 ? at[2] : 0.0f,
                     left > 3 ? at[3] : 0.0f);
}
__device__ inline float4 load_four(const Bf16* at, int left, bool vector) {
  if (vector) {
    const uint2 pairs = *reinterpret_cast<const uint2*>(at);
    return make_float4(bits_to_float(pairs.x << 16), bits_to_float(pairs.x & 0xffff0000u),
                       bits_to_float(pairs.y << 16), bits_to_float(pairs.y & 0xffff0000u));
  }
  return make_float4(to_float(at[0]), left > 1 ? to_float(at[1]) : 0.0f,
                     left > 2 ? to_float(at[2]) : 0.0f, left > 3 ? to_float(at[3]) : 0.0f);
}

__device__ inline float4 load_four(const int8_t* at, int left, bool vector) {
  if (!vector) {
    return make_float4(at[0], left > 1 ? at[1] : 0, left > 2 ? at[2] : 0, left > 3 ? at[3] : 0);
  }
  const uint32_t word = *reinterpret_cast<const uint32_t*>(at);
  const auto byte = [word](int i) {
    return static_cast<float>(static_cast<int8_t>(word >> (8 * i) & 0xffu));
  };
  return make_float4(byte(0), byte(1), byte(2), byte(3));
}

// What keys and weights of a cache block are multiplied with.
template <typename T>
struct BlockFactors {
  __device__ BlockFactors(const T*, int) {}
  __device__ float of_key(int) const { return 1.0f; }
  __device__ float weight(float weight, int) const { return weight; }
};
template <>
struct BlockFactors<int8_t> : CachedScales {
  using CachedScales::CachedScales;
  __device__ float weight(float weight, int slot) const {
    return weight == 0.0f ? 0.0f : weight * of_value(slot);  // slots may hold anything
  }
};

// sums[turn][row] += products of a lane's columns, of all its tokens.
template <typename T>
__device__ void multiply_tokens(const float* q, int stride, const T* keys, int head_dim,
                                bool vector, float (&sums)[kTurns][kPlainRows]) {
  const int lane = lane_id() % kTokenLanes;
  const int token = lane_id() / kTokenLanes;
  for (int c = lane * kFour; c < head_dim; c += kTokenLanes * kFour) {
    float4 k[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      k[turn] =
          load_four(keys + (turn * kTokensAtOnce + token) * head_dim + c, head_dim - c, vector);
    }
#pragma unroll
    for (int row = 0; row < kPlainRows; ++row) {
      const float4 part = *reinterpret_cast<const float4*>(q + row * stride + c);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        float& sum = sums[turn][row];
        sum = fmaf(part.x, k[turn].x, sum);
        sum = fmaf(part.y, k[turn].y, sum);
        sum = fmaf(part.z, k[turn].z, sum);
        sum = fmaf(part.w, k[turn].w, sum);
      }
    }
  }
}

// The sum over 8 lanes of the row that is this lane's among them.
__device__ inline float sum_of_row(const float (&sums)[kPlainRows]) {
  const int lane = lane_id() % kTokenLanes;
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float other = lane & 4 ? sums[i] : sums[i + 4];
    four[i] = (lane & 4 ? sums[i + 4] : sums[i]) + __shfl_xor_sync(kAllLanes, other, 4);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float other = lane & 2 ? four[i] : four[i + 2];
    two[i] = (lane & 2 ? four[i + 2] : four[i]) + __shfl_xor_sync(kAllLanes, other, 2);
  }
  const float other = lane & 1 ? two[0] : two[1];
  return (lane & 1 ? two[1] : two[0]) + __shfl_xor_sync(kAllLanes, other, 1);
}

// The softmax of a lane's row (lane % 8) so far; l is the share of its tokens.
struct State {
  float m = -INFINITY;
  float l = 0;
};

// Scores of a cache block become weights in shared memory.
template <typename T>
__device__ void weigh_block(const CachedAttention& a, const CachedWork& work, int begin,
                            const BlockFactors<T>& factors, const float (&sums)[kTurns][kPlainRows],
                            State* state, const Shared& shared) {
  const CachedScore score(a);
  const int row = lane_id() % kTokenLanes;
  const int position = work.position_of(row);
  const int first = CachedWork::first_of(a, position);
  float s[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    s[turn] =
        sum_of_row(sums[turn]) * factors.of_key(turn * kTokensAtOnce + lane_id() / kTokenLanes);
  }
  score(s);
  float top = state->m;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int token = begin + turn * kTokensAtOnce + lane_id() / kTokenLanes;
    const bool seen = first <= token && token <= position && token <= work.hi && token >= work.lo;
    if (!seen) s[turn] = -INFINITY;
    top = fmaxf(top, s[turn]);
  }
  top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, kTokenLanes));
  top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2 * kTokenLanes));
  const float base = top == -INFINITY ? 0.0f : top;
  const float alpha = fast_exp2(state->m - base);
  state->m = top;
  state->l *= alpha;
  __syncwarp();
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const float weight = fast_exp2(s[turn] - base);
    state->l += weight;
    shared.p[turn * kWarp + lane_id()] =  // token · 8 + row
        factors.weight(weight, turn * kTokensAtOnce + lane_id() / kTokenLanes);
  }
  if (lane_id() < kPlainRows) shared.alpha[lane_id()] = alpha;
  __syncwarp();
}

// o[row][part] = o · alpha + weights · values, columns 4 lane + 128 part of all rows.
template <typename T, int kParts>
__device__ void add_values(const Shared& shared, const T* values, int slot_begin, int slot_end,
                           int head_dim, bool vector, float4 (&o)[kPlainRows][kParts]) {
#pragma unroll
  for (int row = 0; row < kPlainRows; ++row) {
    const float alpha = shared.alpha[row];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float4& sum = o[row][part];
      sum = make_float4(sum.x * alpha, sum.y * alpha, sum.z * alpha, sum.w * alpha);
    }
  }
#pragma unroll(sizeof(T) <= 2 && kParts > 2 ? 1 : 4)
  for (int slot = slot_begin; slot < slot_end; ++slot) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int c = part * kWarp * kFour + lane_id() * kFour;
      if (c >= head_dim) continue;
      const float4 v = load_four(values + slot * head_dim + c, head_dim - c, vector);
#pragma unroll
      for (int row = 0; row < kPlainRows; ++row) {
        const float weight = shared.p[slot * kPlainRows + row];
        float4& sum = o[row][part];
        sum.x = fmaf(weight, v.x, sum.x);
        sum.y = fmaf(weight, v.y, sum.y);
        sum.z = fmaf(weight, v.z, sum.z);
        sum.w = fmaf(weight, v.w, sum.w);
      }
    }
  }
}

// The warps add their sums up, the first one first.
template <int kParts>
__device__ void add_up_rows(const CachedAttention& a, const State& state,
                            const float4 (&o)[kPlainRows][kParts], CachedSums& sums) {
  float l = state.l + __shfl_xor_sync(kAllLanes, state.l, kTokenLanes);
  l += __shfl_xor_sync(kAllLanes, l, 2 * kTokenLanes);
  if (lane_id() < kPlainRows) {
    sums.m[warp_id() * kPlainRows + lane_id()] = state.m;
    sums.l[warp_id() * kPlainRows + lane_id()] = l;
  }
  for (int warp = 0; warp < kCachedWarps; ++warp) {
    __syncthreads();
    if (warp != warp_id()) continue;
#pragma unroll
    for (int row = 0; row < kPlainRows; ++row) {
      const float weight = sums.weight(warp, row);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int c = part * kWarp * kFour + lane_id() * kFour;
        if (c >= a.head_dim) continue;
        auto& to = *reinterpret_cast<float4*>(sums.o + row * sums.stride + c);
        const float4& own = o[row][part];
        const float4 before = warp == 0 ? make_float4(0, 0, 0, 0) : to;
        to = make_float4(fmaf(own.x, weight, before.x), fmaf(own.y, weight, before.y),
                         fmaf(own.z, weight, before.z), fmaf(own.w, weight, before.w));
      }
    }
  }
  __syncthreads();
}

template <typename T, int kParts>
__global__ void __launch_bounds__(kCachedThreads)
    plain_kernel(CachedAttention a, const CachedItem* items, bool vector) {
  begin_kernel();
  const CachedItem item = items[blockIdx.x];
  if (item.sequence < 0) return;
  const CachedWork work(a, item, kPlainRows);
  if (work.count <= 0) return;
  const int stride = stride_of(a.head_dim);
  Shared shared(dynamic_shared(), stride);
  for (int i = static_cast<int>(threadIdx.x); i < kPlainRows * stride; i += kCachedThreads) {
    const int row = i / stride;
    const int c = i % stride;
    float value = 0;
    if (row < work.count && c < a.head_dim) {
      const int64_t column = int64_t{work.head_of(row)} * a.head_dim + c;
      value = load_element(a.q.data, a.q.type, work.row_of(row) * a.q.stride + column);
    }
    shared.q[i] = value;
  }
  __syncthreads();
  float4 o[kPlainRows][kParts] = {};
  State state;
  const int end = work.hi >= work.lo ? work.hi / kCachedSlots + 1 : 0;
  for (int block = work.lo / kCachedSlots; block < end; ++block) {
    if (block % kCachedWarps != warp_id()) continue;
    const int begin = block * kCachedSlots;
    constexpr bool kBytes = std::is_same_v<T, int8_t>;
    const T* keys = static_cast<const T*>(a.cache) +
                    (kBytes ? work.bytes_at(a, block) : work.keys_at(a, block));
    float sums[kTurns][kPlainRows] = {};
    multiply_tokens(shared.q, stride, keys, a.head_dim, vector, sums);
    weigh_block(a, work, begin, BlockFactors<T>(keys, a.head_dim), sums, &state, shared);
    add_values<T, kParts>(shared, keys + kCachedSlots * a.head_dim, max(work.lo - begin, 0),
                          min(work.hi - begin + 1, kCachedSlots), a.head_dim, vector, o);
  }
  add_up_rows<kParts>(a, state, o, shared.sums);
  store_sums(a, work, shared.sums);
}

template <typename T>
auto plain_kernel_of(int head_dim) {
  switch ((head_dim - 1) / (kWarp * kFour)) {
    case 0:
      return plain_kernel<T, 1>;
    case 1:
      return plain_kernel<T, 2>;
    case 2:
      return plain_kernel<T, 3>;
    case 3:
      return plain_kernel<T, 4>;
    default:
      return plain_kernel<T, 5>;
  }
}

}  // namespace

void launch_cached_plain(const LaunchStream& stream, const CachedAttention& args, bool few) {
  const bool in_bf16 = args.cache_type == ElementType::kBf16;
  const uintptr_t bytes = args.in_8_bits ? kFour : kFour * (in_bf16 ? sizeof(Bf16) : sizeof(float));
  const bool vector =
      args.head_dim % kFour == 0 && reinterpret_cast<uintptr_t>(args.cache) % bytes == 0;
  const unsigned groups = few ? blocks_for(int64_t{args.few_rows_max} * args.heads, kPlainRows) : 1;
  const auto count = static_cast<unsigned>(few ? args.few_items : args.tile_items);
  const auto kernel = args.in_8_bits ? plain_kernel_of<int8_t>(args.head_dim)
                      : in_bf16      ? plain_kernel_of<Bf16>(args.head_dim)
                                     : plain_kernel_of<float>(args.head_dim);
  launch(stream,
         {{count, static_cast<unsigned>(args.kv_head_count), groups},
          kCachedThreads,
          Shared::bytes(stride_of(args.head_dim))},
         kernel, args, few ? args.few : args.tiles, vector);
}

}  // namespace jige::cuda

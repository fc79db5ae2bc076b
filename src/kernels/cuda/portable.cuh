// What kernels are written with: CUDA's own names where they will do, and small functions for the
// instructions that have none. Everything here has the same meaning on a GPU and in emulation.
//
// Rules for kernels: all threads call begin_kernel() before they touch memory, but by load_table()
// and prefetch_to_cache(); warps are whole (blocks are multiples of 32 threads) and stay together
// around warp functions, whose masks are all ones; dynamic shared memory comes from
// dynamic_shared(); sums have a fixed order, no float is added atomically. Threads: device code.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

#ifdef JIGE_CUDA_EMULATED
#include "kernels/cuda/emulation/emulated.h"
#else
#include "kernels/cuda/gpu.cuh"
#endif

namespace jige::cuda {

using cpu::Bf16;
using cpu::ConstRows;
using cpu::ElementType;
using cpu::F16;
using cpu::Rows;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kCopyBytes = 16;  // what copy_async_16() brings

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Bf16 value) {
  return bits_to_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ inline float to_float(F16 value) { return half_to_float(value.bits); }

__device__ inline void store(float* at, float value) { *at = value; }
__device__ inline void store(Bf16* at, float value) { at->bits = float_to_bf16(value); }

// Two numbers of 8 bits, in bytes 0 and 2 of a word, as bf16.
__device__ inline uint32_t bytes_to_bf16x2(uint32_t word) {
  const uint32_t magnitudes = (word & 0x007f007fu) | 0x43004300u;  // 128 + its lower seven bits
  const uint32_t offsets = (word & 0x00800080u) ^ 0xc300c300u;     // -128, of negative ones -256
  return add_bf16x2(magnitudes, offsets);
}

// Element `index` of a row whatever its type.
__device__ inline float load_element(const void* data, ElementType type, int64_t index) {
  if (type == ElementType::kF32) return static_cast<const float*>(data)[index];
  if (type == ElementType::kBf16) return to_float(static_cast<const Bf16*>(data)[index]);
  return to_float(static_cast<const F16*>(data)[index]);
}
// f32 or bf16.
__device__ inline void store_element(void* data, ElementType type, int64_t index, float value) {
  if (type == ElementType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    store(static_cast<Bf16*>(data) + index, value);
  }
}

// Sums and maxima over a warp; every lane gets the result. The order is fixed: halves, quarters, …
__device__ inline float warp_sum(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
  return value;
}
__device__ inline double warp_sum(double value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
  return value;
}
__device__ inline float warp_max(float value) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

// The same over a block of up to 1024 threads in one dimension, for all its threads. `shared` is
// memory of the block, 32 elements, free again after the call's second barrier.
template <typename T>
__device__ inline T block_sum(T value, T* shared) {
  value = warp_sum(value);
  __syncthreads();
  if (lane_id() == 0) shared[warp_id()] = value;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return warp_sum(lane_id() < warps ? shared[lane_id()] : T(0));
}
__device__ inline float block_max(float value, float* shared) {
  value = warp_max(value);
  __syncthreads();
  if (lane_id() == 0) shared[warp_id()] = value;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  return warp_max(lane_id() < warps ? shared[lane_id()] : shared[0]);
}

// Whether this block is the last of `blocks` that come here; all its threads see what the others
// wrote before, by __ldcg(). The counter is zero before and after. Once in a kernel, all threads.
__device__ inline bool is_last_block(int32_t* counter, int blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1) == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace jige::cuda

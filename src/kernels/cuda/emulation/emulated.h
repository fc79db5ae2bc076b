// portable.cuh without a GPU: CUDA's names for the host compiler. A launch runs its blocks one
// after the other on the calling thread, and the threads of a block as fibers that change at
// barriers and warp functions.
//
// What this shows: indices, bounds, barriers that not all reach, shared memory read before an
// asynchronous copy was waited for, sums in their order. What it does not: races between barriers,
// speed, the rounding of approximate instructions.
// Threads: a launch holds a lock; kernels run on one thread at a time, that of the caller or of a
// stream that runs its work late (late_queue.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "kernels/cuda/launch.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

namespace jige::cuda {

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1)
      : x(x_in), y(y_in), z(z_in) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Of the fiber that runs.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;
};

namespace emulation {

// Shared memory of a block: that of data-centre GPUs, or JIGE_EMULATED_SHARED_KIB (99 on GPUs of
// desktops).
int64_t shared_max();

class LateQueue;

// What the handle of a stream points to; none: GPU 0, at once.
struct StreamPlace {
  int gpu = 0;
  LateQueue* queue = nullptr;  // of a stream that runs late
};
inline int gpu_of(const LaunchStream& stream) {
  return stream.handle ? static_cast<const StreamPlace*>(stream.handle)->gpu : 0;
}

void run(int gpu, const LaunchShape& shape, const std::function<void()>& body);
// Puts work on the stream, where it runs in its turn.
void submit(const LaunchStream& stream, std::function<void()> work);
unsigned char* dynamic_shared();
// Waits until all lanes of the warp have come, and returns the how-manieth meeting it was. What the
// lane that runs put at place_to_give() before, given_by() finds until the warp meets again.
constexpr size_t kExchangeMax = 64;
void* place_to_give();
int meet();
const void* given_by(int lane, int turn);
void copy_async(void* to, const void* from);
void copy_async_commit();
void copy_async_wait(int left);
extern int lane_that_runs;
inline int lane() { return lane_that_runs; }
// Reads device memory before or after begin_kernel().
void load_table(void* to, const void* from, size_t bytes);
// Ends the process where an argument of a kernel of this GPU holds an address of the host's memory,
// or of another GPU's.
void check_argument(int gpu, const void* value, size_t bytes);

template <typename T>
int meet_with(const T& value) {
  static_assert(sizeof value <= kExchangeMax);
  std::memcpy(place_to_give(), &value, sizeof value);
  return meet();
}
template <typename T>
T from_lane(const T& value, int source) {
  T result;
  const int turn = meet_with(value);
  std::memcpy(&result, given_by(source, turn), sizeof result);
  return result;
}

}  // namespace emulation

inline int64_t shared_bytes_max() { return emulation::shared_max(); }

template <typename... Params, typename... Args>
void launch(const LaunchStream& stream, const LaunchShape& shape, void (*kernel)(Params...),
            Args&&... args) {
  std::tuple<Params...> values(static_cast<Params>(std::forward<Args>(args))...);
  const auto takes = [&](const auto&... value) {
    return stream.takes(kernel, shape.grid, shape.block, shape.shared_bytes, value...);
  };
  if (!std::apply(takes, values)) return;
  const int gpu = emulation::gpu_of(stream);
  const auto check = [gpu](auto value) {
    __builtin_clear_padding(&value);
    emulation::check_argument(gpu, &value, sizeof value);
  };
  std::apply([&](const auto&... value) { (check(value), ...); }, values);
  emulation::submit(stream, [gpu, shape, kernel, values] {
    emulation::run(gpu, shape, [&] { std::apply(kernel, values); });
  });
}

// Barriers. In a warp function a lane that has ended is missing, and the process ends.
void __syncthreads();
void __syncwarp(unsigned mask = 0xffffffffu);

template <typename T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const int own = emulation::lane();
  return emulation::from_lane(value, own / width * width + source % width);
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  const int own = emulation::lane();
  const int source = own ^ mask;
  return emulation::from_lane(value, source / width <= own / width ? source : own);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int delta, int width = 32) {
  const int own = emulation::lane();
  const int source = own + delta;
  return emulation::from_lane(value, source / width == own / width ? source : own);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int delta, int width = 32) {
  const int own = emulation::lane();
  const int source = own - delta;
  return emulation::from_lane(value, source >= own / width * width ? source : own);
}
unsigned __ballot_sync(unsigned mask, int predicate);
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

template <typename T>
T __ldg(const T* at) {
  return *at;
}
// Past the first cache, so that it sees what other blocks wrote.
template <typename T>
T __ldcg(const T* at) {
  return *at;
}
inline void __threadfence() {}
template <typename T>
T atomicAdd(T* at, T value) {
  return std::exchange(*at, *at + value);
}
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline float __fdividef(float a, float b) { return a / b; }
using std::max;
using std::min;

// The process ends where the first thread touches device memory before it comes here, or any thread
// never does.
void begin_kernel();

template <typename T>
T load_table(const T* at) {
  T value;
  emulation::load_table(&value, at, sizeof value);
  return value;
}
inline void prefetch_to_cache(const void*, int) {}

inline unsigned char* dynamic_shared() { return emulation::dynamic_shared(); }
inline float bits_to_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t float_to_bits(float value) { return std::bit_cast<uint32_t>(value); }
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline uint32_t floats_to_bf16x2(float low, float high) {
  return float_to_bf16(low) | static_cast<uint32_t>(float_to_bf16(high)) << 16;
}
inline uint32_t add_bf16x2(uint32_t a, uint32_t b) {
  return floats_to_bf16x2(bits_to_float(a << 16) + bits_to_float(b << 16),
                          bits_to_float(a & 0xffff0000u) + bits_to_float(b & 0xffff0000u));
}
inline float fast_exp2(float x) { return std::exp2(x); }

inline uint4 load_streamed(const void* at) { return *static_cast<const uint4*>(at); }
inline uint4 load_streamed_or_zero(const void* at, bool valid) {
  return valid ? load_streamed(at) : uint4{0, 0, 0, 0};
}
template <typename T>
T load_once(const T* at) {
  return *at;
}
template <typename T>
void store_once(T* at, T value) {
  *at = value;
}
inline uint32_t pair_low_halves(uint32_t low, uint32_t high) {
  return (low & 0xffffu) | high << 16;
}
inline uint32_t pair_high_halves(uint32_t low, uint32_t high) {
  return low >> 16 | (high & 0xffff0000u);
}

inline void copy_async_16(void* shared, const void* global, bool valid) {
  emulation::copy_async(shared, valid ? global : nullptr);
}
inline void copy_async_commit() { emulation::copy_async_commit(); }
template <int left>
void copy_async_wait() {
  emulation::copy_async_wait(left);
}

void load_matrices_x4(uint32_t (&r)[4], const void* row);
void load_matrices_x4_transposed(uint32_t (&r)[4], const void* row);
void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

}  // namespace jige::cuda

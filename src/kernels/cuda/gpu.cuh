// portable.cuh on a GPU: launches, and instructions in PTX.
//
// mma: m16n8k16 of the PTX ISA (bf16 operands, f32 sums). With g = lane / 4 and t = lane % 4:
//   A [16, 16]  a0 = row g, columns 2t 2t+1; a1 = row g+8; a2 = row g, columns 2t+8 2t+9; a3 = g+8
//   B [16, 8]   b0 = rows 2t 2t+1 of column g; b1 = rows 2t+8 2t+9
//   D [16, 8]   d0 d1 = row g, columns 2t 2t+1; d2 d3 = row g+8
// Threads: device code; launch() as launch.h says.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <tuple>
#include <utility>

#include "kernels/cuda/launch.h"

namespace jige::cuda {

// Ends the process unless a launch's status is success.
void check_launch(int status, const char* what);

// Dynamic shared memory that a block may have on the thread's GPU.
inline int64_t shared_bytes_max() {
  int device = 0;
  int bytes = 0;
  check_launch(cudaGetDevice(&device), "the device of a thread");
  check_launch(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
               "shared memory of a block");
  return bytes;
}

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int64_t shared_bytes = 0;  // of dynamic shared memory
};

// Whether the kernels that the thread's GPU runs wait in begin_kernel(): those that its driver made
// of code for older GPUs do not. Asked once for each GPU of the process.
inline bool kernels_wait(const void* any_kernel) {
  constexpr int kFirstVersion = 90;
  constexpr int kGpusMax = 64;
  enum : uint8_t { kUnknown, kWait, kDoNot };
  static std::atomic<uint8_t> known[kGpusMax] = {};
  int device = 0;
  check_launch(cudaGetDevice(&device), "the device of a thread");
  std::atomic<uint8_t>& own = known[device % kGpusMax];
  if (device < kGpusMax && own != kUnknown) return own == kWait;
  cudaFuncAttributes attributes = {};
  check_launch(cudaFuncGetAttributes(&attributes, any_kernel), "what a kernel was compiled for");
  const bool wait = attributes.ptxVersion >= kFirstVersion;
  if (device < kGpusMax) own = wait ? kWait : kDoNot;
  return wait;
}

// Puts kernel(args…) on the stream.
template <typename... Params, typename... Args>
void launch(const LaunchStream& stream, const LaunchShape& shape, void (*kernel)(Params...),
            Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  constexpr int64_t kSharedDefault = 48 * 1024;
  if (shape.shared_bytes > kSharedDefault) {
    check_launch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shape.shared_bytes)),
                 "shared memory of a kernel");
  }
  std::tuple<Params...> values(static_cast<Params>(std::forward<Args>(args))...);
  const auto takes = [&](const auto&... value) {
    return stream.takes(kernel, shape.grid, shape.block, shape.shared_bytes, value...);
  };
  if (!std::apply(takes, values)) return;
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&value))..., nullptr};
        const auto* function = reinterpret_cast<const void*>(kernel);
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = shape.grid;
        config.blockDim = shape.block;
        config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
        config.stream = static_cast<cudaStream_t>(stream.handle);
        config.attrs = &early;
        config.numAttrs = stream.starts_early && kernels_wait(function) ? 1 : 0;
        check_launch(cudaLaunchKernelExC(&config, function, pointers), "a kernel");
      },
      values);
}

// From here on a kernel may touch memory; all its threads call it first. The blocks of a stream's
// next kernel may start once all of this one's have, and wait here until this one is done and what
// it wrote can be seen.
__device__ inline void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// An element of what CudaStream::upload() gave, which is there before any kernel behind it starts:
// so this may come before begin_kernel().
template <typename T>
__device__ inline T load_table(const T* at) {
  return *at;
}

// Has the second cache fetch memory, aligned to 16 and as many bytes as a multiple of 16, from GPUs
// of compute capability 9.0 on. It changes no result, so it may come before begin_kernel().
__device__ inline void prefetch_to_cache(const void* at, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes));
#endif
}

__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char jige_dynamic_shared[];
  return jige_dynamic_shared;
}

__device__ inline float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
__device__ inline uint32_t float_to_bits(float value) { return __float_as_uint(value); }
__device__ inline float half_to_float(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline uint16_t float_to_half(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
// To nearest, ties to even.
__device__ inline uint16_t float_to_bf16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
// Two of them, `low` in the lower half.
__device__ inline uint32_t floats_to_bf16x2(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Sums of two pairs of them.
__device__ inline uint32_t add_bf16x2(uint32_t a, uint32_t b) {
  const __nv_bfloat162 sum = __hadd2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                     *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&sum);
}
// 2^x, to two units in the last place.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 bytes of device memory that are read once, past the first cache; `at` is aligned to 16. They
// may have been written by the block, before a barrier. (Volatile: what waits stays before it.)
__device__ inline uint4 load_streamed(const void* at) {
  uint4 r;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(at));
  return r;
}

// The same, or zeros.
__device__ inline uint4 load_streamed_or_zero(const void* at, bool valid) {
  uint4 r = {0, 0, 0, 0};
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0; "
      "@p ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(r.x), "+r"(r.y), "+r"(r.z), "+r"(r.w)
      : "l"(at), "r"(static_cast<int>(valid)));
  return r;
}

// Device memory that is used once: the caches keep other lines rather than these.
template <typename T>
__device__ inline T load_once(const T* at) {
  return __ldcs(at);
}
template <typename T>
__device__ inline void store_once(T* at, T value) {
  __stcs(at, value);
}

// The lower halves of two words in one, or the upper halves; those of `low` in the lower half.
__device__ inline uint32_t pair_low_halves(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, 0x5410);
}
__device__ inline uint32_t pair_high_halves(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, 0x7632);
}

// 16 bytes from device memory into shared memory, or 16 zeros; both aligned to 16. Done for this
// thread after copy_async_wait, for the block after a barrier behind that.
__device__ inline void copy_async_16(void* shared, const void* global, bool valid) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
               : "memory");
}
// Ends a group of copies.
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` groups, the newest, are under way.
template <int left>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// Four 8×8 matrices of 16-bit elements from shared memory: lanes 0-7 give the addresses of the rows
// of the first one, 8-15 of the second, … Register j has elements 2t, 2t+1 of row g of matrix j.
__device__ inline void load_matrices_x4(uint32_t (&r)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
// Transposed: register j has elements g of rows 2t, 2t+1 of matrix j.
__device__ inline void load_matrices_x4_transposed(uint32_t (&r)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

// d += a b.
__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace jige::cuda

#include <cuda_bf16.h>

#include "kernels/cuda/convert.h"

namespace jige::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void f32_to_bf16_kernel(__nv_bfloat16* dst, const float* src, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    dst[i] = __float2bfloat16_rn(src[i]);
  }
}

__global__ void bf16_to_f32_kernel(float* dst, const __nv_bfloat16* src, int64_t count) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    dst[i] = __bfloat162float(src[i]);
  }
}

unsigned grid_for(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 4096 ? (blocks > 0 ? blocks : 1) : 4096);
}

}  // namespace

void f32_to_bf16(void* stream, uint16_t* dst, const float* src, int64_t count) {
  f32_to_bf16_kernel<<<grid_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<__nv_bfloat16*>(dst), src, count);
}

void bf16_to_f32(void* stream, float* dst, const uint16_t* src, int64_t count) {
  bf16_to_f32_kernel<<<grid_for(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      dst, reinterpret_cast<const __nv_bfloat16*>(src), count);
}

}  // namespace jige::cuda

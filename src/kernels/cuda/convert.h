// Conversion between f32 and bf16 on a GPU.
//
// Threads: asynchronous on the CUDA stream given as void* (a cudaStream_t), so that callers need no
// CUDA header.
#pragma once

#include <cstdint>

namespace jige::cuda {

// dst[i] = bf16(src[i]), rounded to nearest even. Moves 6 bytes an element.
void f32_to_bf16(void* stream, uint16_t* dst, const float* src, int64_t count);
// dst[i] = f32(src[i]), exact. Moves 6 bytes an element.
void bf16_to_f32(void* stream, float* dst, const uint16_t* src, int64_t count);

}  // namespace jige::cuda

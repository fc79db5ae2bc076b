// Sums, scalings and conversions of matrices. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// dst = a + b, f32 or bf16 each; dst may be a or b.
void add(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& a,
         const cpu::ConstRows& b, int64_t rows, int64_t columns);
// dst = factor · src, f32 or bf16 each; dst may be src.
void scale(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& src,
           float factor, int64_t rows, int64_t columns);
// The same with a factor in device memory.
void scale_by(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& src,
              const float* factor, int64_t rows, int64_t columns);
// dst = factor · src + addend, by column; f32 or bf16 each, factor and addend f32 or null: 1 and 0.
void scale_columns(const LaunchStream& stream, const cpu::Rows& dst, const cpu::ConstRows& src,
                   const float* factor, const float* addend, int64_t rows, int64_t columns);
// data = cap · tanh(data / cap), f32.
void soft_cap(const LaunchStream& stream, const cpu::Rows& data, float cap, int64_t rows,
              int64_t columns);
// Zeros in `bytes` bytes of every row.
void zero_rows(const LaunchStream& stream, void* data, int64_t stride_bytes, int64_t rows,
               int64_t bytes);

}  // namespace jige::cuda

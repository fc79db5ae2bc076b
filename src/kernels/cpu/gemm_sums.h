// Moving blocks of f32 sums between a product's scratch and its output, and sums over rows.
// Threads: no state.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm_engine.h"
#include "tensor/dtype.h"

namespace jige::cpu {

struct GemmSumsBlock {
  float* sums = nullptr;  // may be `out` itself where that is f32
  int64_t sums_stride = 0;
  void* out;
  DType out_dtype;  // f32 or bf16
  int64_t out_stride;
  int64_t rows;
  int64_t columns;
  bool past_caches = false;  // see GemmStoreBF16; of f32 likewise
};

// sums = out, and zeros from `columns` up to `padded_columns`. REQUIRES: out is f32.
void gemm_load_sums(const GemmSumsBlock& block, int64_t padded_columns);

// out = sums + bias, rounded to the type of out, by the engine's own store where it has one that
// fits; `bias` is null or has `columns` elements.
void gemm_store_sums(const GemmEngine& engine, const GemmSumsBlock& block, const float* bias);

// sums[column] += src[row][column], rows in ascending order; src is f32 or bf16.
void gemm_add_rows(const void* src, DType dtype, int64_t row_stride, int64_t rows, int64_t columns,
                   float* sums);

}  // namespace jige::cpu

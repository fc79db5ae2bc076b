// Rows of a table picked by token, and the sum of gradients back into the rows.
//
// Backward runs over a range of columns and takes tokens in ascending order of t: the order of the
// sum into a table row does not depend on threads. Cost is that of T·D elements, whatever the
// table. Threads: pure functions on row ranges (forward) or column ranges (backward).
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct EmbeddingForwardArgs {
  float* dst;  // [T, D]
  int64_t dst_stride;
  ConstRows table;  // [V, D]; f32, bf16 or f16
  const int32_t* tokens;
  int64_t width;  // D
};

struct EmbeddingBackwardArgs {
  float* grad_table;  // [V, D]; added to
  int64_t grad_table_stride;
  const float* grad_dst;  // [T, D]
  int64_t grad_dst_stride;
  const int32_t* tokens;
  int64_t row_count;  // T
};

struct EmbeddingKernels {
  void (*forward)(const EmbeddingForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*backward)(const EmbeddingBackwardArgs&, int64_t column_begin, int64_t column_end) noexcept;
};

const EmbeddingKernels& embedding_kernels(Isa isa);

}  // namespace jige::cpu

// Causal depthwise convolution on column ranges of flat sequences: see ops/causal_conv.h.
//
// Columns go in blocks that keep the weights of all taps, turned so that a tap's lie in a row, in
// the first-level cache; a block runs through all rows, and finds the K - 1 rows before in caches.
// Bytes moved: every operand once. Threads: pure functions on column ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kCausalConvTapsMax = 8;

struct CausalConvSpan {
  int64_t row_begin;
  int64_t row_count;
  int64_t state;  // row of the states; not used without states
  bool resumed;   // whether the state is read
  int64_t spare;  // row that gets the state behind the first `spare_rows` rows, or below 0
  int64_t spare_rows;
};

struct CausalConvOperands {
  ConstRows src;        // [T, C]
  const float* weight;  // [C, K]
  int64_t weight_stride;
  const float* bias;  // [C] or null
  const CausalConvSpan* spans;
  int64_t span_count;
  int64_t columns;  // C
  int64_t taps;     // K
  bool silu;
};

struct CausalConvForwardArgs {
  CausalConvOperands in;
  Rows dst;
  Rows states;  // of src's type, or null data
};

struct CausalConvBackwardArgs {
  CausalConvOperands in;
  Rows grad_src;
  Rows grad_products;  // may be grad_dst
  ConstRows grad_dst;
};

struct CausalConvWeightArgs {
  CausalConvOperands in;  // without weight and bias
  float* grad_weight;     // [C, K]
  int64_t grad_weight_stride;
  float* grad_bias;  // [C] or null
  ConstRows grad_products;
};

struct CausalConvKernels {
  void (*forward)(const CausalConvForwardArgs&, int64_t column_begin, int64_t column_end) noexcept;
  void (*backward_input)(const CausalConvBackwardArgs&, int64_t column_begin,
                         int64_t column_end) noexcept;
  void (*backward_weight)(const CausalConvWeightArgs&, int64_t column_begin,
                          int64_t column_end) noexcept;
};

const CausalConvKernels& causal_conv_kernels(Isa isa);

}  // namespace jige::cpu

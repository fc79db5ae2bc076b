// The gradient of attention sinks, row by row (attention.h says what a sink is).
//
// Shapes: T rows, H query heads, d head dimension. With the weight of the sink p = exp(s − lse) and
// D = Σ dst·grad_dst of a row and head, slope[t, h] = −p D; the gradient of s is their sum over t.
// D is summed as everywhere in attention.h. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct SinkSlopesArgs {
  float* slopes;  // [T, H] without gaps
  const float* sinks;
  const float* lse;  // [T, H]
  int64_t lse_stride;
  ConstRows dst;  // [T, H·d] f32 or bf16
  ConstRows grad_dst;
  int64_t head_count;
  int64_t head_dim;
};

struct AttentionSinkKernels {
  void (*slopes)(const SinkSlopesArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const AttentionSinkKernels& attention_sink_kernels(Isa isa);

}  // namespace jige::cpu

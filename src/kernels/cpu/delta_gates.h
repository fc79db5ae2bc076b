// The gates of the delta rule on rows: see ops/delta_gates.h.
//
//   da = dlog_decay · -exp(log_scale) · sigmoid(x),  x = a + bias  (the slope is 1 above 20)
//   db = drate · rate · sigmoid(-b),  rate = rate_scale · sigmoid(b)
// or, without b, da += drate · sigmoid(x).
//   slopes: of bias da, of log_scale dlog_decay · log_decay
// Where a head has a decay for every column of its keys, all is by column but log_scale, whose
// slope is the sum of the head's columns. Bytes moved: every operand once. Threads: pure functions
// on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct DeltaGateInputs {
  ConstRows a;  // [T, H·dk]
  ConstRows b;  // [T, H]
  bool has_b;
  const float* log_scale;  // [H]
  const float* bias;       // [H·dk]
  float rate_scale;
  int64_t heads;    // H
  int64_t key_dim;  // dk; 1: a head has one decay
};

struct DeltaGateForwardArgs {
  DeltaGateInputs in;
  Rows log_decay, rate;
};

struct DeltaGateBackwardArgs {
  DeltaGateInputs in;
  Rows grad_a, grad_b, slopes_scale, slopes_bias;
  ConstRows grad_log_decay, grad_rate;
};

struct DeltaGateKernels {
  void (*forward)(const DeltaGateForwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
  void (*backward)(const DeltaGateBackwardArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const DeltaGateKernels& delta_gate_kernels(Isa isa);

}  // namespace jige::cpu

// The gated delta rule: every value head keeps a matrix that maps keys to values, lets it fade, and
// corrects it by each token. Without the correction it is the recurrence of Mamba 2 (Dao and Gu,
// Transformers are SSMs, 2024), where q is C, k is B, v is x, rate is Δ and skip is D.
//
// Shapes: T rows of all sequences flat, Hk key heads of dk columns, Hv value heads of dv (Hv a
// multiple of Hk); value head h uses key head h / (Hv / Hk). Of each head, token by token:
//   q^ = q / sqrt(Σ q² + 1e-6) / sqrt(dk),  k^ = k / sqrt(Σ k² + 1e-6)
//   S~ = exp(log_decay) · S                 S [dk, dv]
//   δ  = rate · (v - S~ᵀ k^)
//   S  = S~ + k^ δᵀ
//   dst = Sᵀ q^
// or, without the correction,
//   S  = S~ + rate · k vᵀ
//   dst = Sᵀ q + skip · v
// With decays by key, as Kimi Linear has them, log_decay has a number for every column of a key,
// and row i of S fades by the i-th: S~ = diag(exp(log_decay)) S. Then every key head has one value
// head. S is zero before a sequence's first token. A sequence goes on where it was by its row of
// the states: read when context_count > 0, and afterwards S behind the last row. At context_count 0
// it is not read, whatever it holds. A spare row gets S behind the first rows of the sequence. A
// head's S lies there in strips of 16 columns, the last of what is left:
// [strip][dk][columns of the strip].
//
// Order: sums over dk are four chains of fused multiply-adds, of every fourth index each, added in
// pairs; on a GPU others (kernels/cuda/delta_rule.h). Always a token at a time, so bits depend
// neither on chunks of a prompt, packing, threads nor instruction set. Gradients of q and k are
// summed over value heads and strips in ascending order. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// The widest heads there may be, of keys and of values.
inline constexpr int64_t kDeltaRuleDimMax = 256;

struct DeltaRuleShape {
  int64_t key_heads = 0;    // Hk
  int64_t value_heads = 0;  // Hv
  int64_t key_dim = 0;      // dk
  int64_t value_dim = 0;    // dv
  bool corrects = true;
  bool decays_by_key = false;  // only where it corrects; not on GPUs (model/device_support.h)

  int64_t decay_columns() const { return decays_by_key ? value_heads * key_dim : value_heads; }
};

struct DeltaRuleForward {
  TensorView dst;        // [T, Hv·dv] f32 or bf16
  TensorView q, k;       // [T, Hk·dk] f32 or bf16
  TensorView v;          // [T, Hv·dv] f32 or bf16
  TensorView log_decay;  // [T, Hv] f32, or [T, Hv·dk]
  TensorView rate;       // [T, Hv] f32
  TensorView skip;       // [Hv] f32, where nothing is corrected, or empty: zero
  TensorView states;     // [slots, Hv·dk·dv] f32, or empty in training
  std::vector<SequenceSpan> sequences;
  DeltaRuleShape shape;
};
void delta_rule_forward(Stream& stream, const DeltaRuleForward& args);

struct DeltaRuleBackward {
  TensorView grad_q, grad_k, grad_v;     // as q, k, v; overwritten
  TensorView grad_log_decay, grad_rate;  // as log_decay and rate; overwritten
  // [T, Hv] f32 whose sums over rows are the gradient of skip; overwritten. Where there is one.
  TensorView slopes_skip;
  TensorView grad_dst;       // [T, Hv·dv]
  DeltaRuleForward forward;  // dst is not read; no states
};
void delta_rule_backward(Stream& stream, const DeltaRuleBackward& args);

// Scratch that forward and backward take of each thread, for sequences of up to `length_max`
// tokens.
int64_t delta_rule_scratch_bytes(const DeltaRuleShape& shape, int64_t length_max);

}  // namespace jige::ops

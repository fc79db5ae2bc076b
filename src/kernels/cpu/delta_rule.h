// The gated delta rule of one head of one sequence, or the recurrence without its correction: see
// ops/delta_rule.h for what they compute.
//
// A head's S is worked on in strips of 16 columns, which do not know of each other: a strip is
// [dk][16] f32, small enough for the first-level cache, and stays there for all tokens of a chunk,
// whose queries and keys are made once for all strips. A token takes two passes over a strip:
// S~ᵀ k^, then the correction and Sᵀ q^; without a correction the second alone.
//
// Backward keeps no state of the forward pass. Strip by strip it runs forward once and keeps S at
// the first token of every chunk; then, from the last chunk to the first, it makes the states of
// the chunk's tokens again and goes through them backward. With dS the gradient of S:
//   dS += q^ doᵀ            dq^ += S do
//   dδ  = dSᵀ k^            dk^ += dS δ
//   dv  = rate · dδ         drate += dδ · (v - m)      m = S~ᵀ k^, dm = -dv
//   dS~ = dS + k^ dmᵀ       dk^ += S~ dm
//   dlog_decay += Σ dS~ ∘ S~    dS of the token before = exp(log_decay) · dS~
// Without a correction m and dm are zero, and dv += skip · do, dskip += do · v. Where every column
// of a key has a decay, dlog_decay of a column is the sum of its row alone. What is summed over
// strips and over the value heads of a key head is added in ascending order.
//
// Per token, head and 16 numbers of S forward computes 4 multiply-adds (without a correction 3):
// that is its bound.
// Threads: pure functions; the scratch is the caller's.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kDeltaStripColumns = 16;
inline constexpr int64_t kDeltaForwardTokens = 16;   // of a chunk
inline constexpr int64_t kDeltaBackwardTokens = 32;  // of a chunk, between two states kept

struct DeltaRuleOperands {
  ConstRows q, k;       // [T, Hk·dk]
  ConstRows v;          // [T, Hv·dv]
  ConstRows log_decay;  // [T, Hv] f32, or [T, Hv·dk]
  ConstRows rate;       // [T, Hv] f32
  const float* skip;    // [Hv], or null
  bool corrects;
  bool decays_by_key;     // every column of a key has a decay; corrects, and heads_per_key is 1
  int64_t heads_per_key;  // Hv / Hk
  int64_t key_dim;        // dk
  int64_t value_dim;      // dv
};

struct DeltaRuleForwardArgs {
  DeltaRuleOperands in;
  Rows dst;  // [T, Hv·dv]
};

// Some strips of a value head of a sequence.
struct DeltaRuleForwardWork {
  int64_t row_begin;
  int64_t row_count;
  int64_t head;
  int64_t strip_begin, strip_end;
  float* state;   // the head's S, or null: it starts at zero and is dropped
  bool resumed;   // S starts at what is there, else at zero
  void* scratch;  // delta_rule_forward_scratch_bytes, aligned to 64 bytes
};

struct DeltaRuleBackwardArgs {
  DeltaRuleOperands in;
  Rows grad_q, grad_k;             // [T, Hk·dk]
  Rows grad_v;                     // [T, Hv·dv]
  Rows grad_log_decay, grad_rate;  // as log_decay and rate
  Rows slopes_skip;                // [T, Hv] f32; not read where there is no skip
  ConstRows grad_dst;              // [T, Hv·dv]
};

// A key head of a sequence, with its value heads.
struct DeltaRuleBackwardWork {
  int64_t row_begin;
  int64_t row_count;
  int64_t key_head;
  void* scratch;  // delta_rule_backward_scratch_bytes, aligned to 64 bytes
};

struct DeltaRuleKernels {
  void (*forward)(const DeltaRuleForwardArgs&, const DeltaRuleForwardWork&) noexcept;
  void (*backward)(const DeltaRuleBackwardArgs&, const DeltaRuleBackwardWork&) noexcept;
};

const DeltaRuleKernels& delta_rule_kernels(Isa isa);

int64_t delta_rule_forward_scratch_bytes(int64_t key_dim, int64_t value_dim, bool by_key) noexcept;
int64_t delta_rule_backward_scratch_bytes(int64_t key_dim, int64_t row_count, bool by_key) noexcept;

}  // namespace jige::cpu

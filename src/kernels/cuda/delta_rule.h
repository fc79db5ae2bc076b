// The gated delta rule, and the recurrence without its correction: see ops/delta_rule.h.
//
// Columns of a head's S do not know of each other, so a warp takes eight of them, in registers for
// all tokens of its sequence: lane 4 i + j has two columns and every eighth group of four rows.
// Sums over rows meet in the warp. Queries and keys of a chunk of tokens are made by each block for
// its columns, and those of the next chunk are on their way meanwhile. A token alone, which is
// decoding, reads and writes S once. Always a token at a time: bits depend neither on how a prompt
// was cut nor on what runs beside.
//
// Backward keeps no states: dS and S are gone through one after the other, each in registers. With
// dS' the gradient of S that comes from later tokens, dS = dS' + q^ doᵀ:
//   memories  m, forward                                     where there is a correction
//   dS        backward: dS'ᵀ k^, and rows of dS δ
//   S         forward: rows of S~ do, and of S~ dm with dm = -rate · dδ
//   finish    dq, dk of the rows' sums, in ascending order over value heads and columns; drate, dv,
//             dskip; and dlog_decay, which needs no state:
//               Σ dS~ ∘ S~ = q^ · S~ do - rate · (q^ · k^) (do · m) - rate · (dS'ᵀ k^) · v
//                            + that of the token behind
//             where all terms are as small as the decays are, so its rounding is, too.
// Key heads are gone through in parts of so many as take little memory. Threads: asynchronous on
// the stream.
#pragma once

#include "kernels/cpu/delta_rule.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/recurrent_spans.h"

namespace jige::cuda {

struct DeltaForward {
  cpu::DeltaRuleOperands in;
  cpu::Rows dst;          // [T, Hv·dv]; with `memories` f32, and of heads from head_begin on
  bool memories = false;  // m in place of what the rule gives
  RecurrentSpans spans;
  int64_t head_begin = 0, head_count = 0;  // value heads
  float* states = nullptr;                 // [slots, Hv·dk·dv] or null
  int64_t state_stride = 0;
};
void delta_rule_forward(const LaunchStream& stream, const DeltaForward& args);

struct DeltaBackward {
  cpu::DeltaRuleBackwardArgs rule;
  RecurrentSpans spans;
  int64_t rows = 0;                              // T
  int64_t key_heads = 0;                         // Hk
  int64_t scratch_bytes_max = int64_t{1} << 30;  // what one key head takes may be more
};
int64_t delta_rule_backward_scratch(const DeltaBackward& args);
// `scratch`: device memory of that many bytes.
void delta_rule_backward(const LaunchStream& stream, const DeltaBackward& args, void* scratch);

}  // namespace jige::cuda

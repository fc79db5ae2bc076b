// The selective scan of a strip of 16 channels of one sequence: see ops/selective_scan.h for what
// it computes.
//
// Channels do not know of each other, so a lane is a channel. A strip's h is [N][16] f32 and stays
// in the first-level cache for all tokens; N is padded with numbers that stay zero, to a multiple
// of 4 forward and of 16 backward.
//
// Backward keeps no state of the forward pass. Strip by strip it runs forward once and keeps h at
// the first token of every chunk; then, from the last chunk to the first, it makes the states of
// the chunk's tokens again and goes through them backward. With dh the gradient of h,
// A = -exp(log_scale) and g = dh · exp(step A) · h of the token before:
//   dh    += C dy                     dC += Σ h dy          over channels
//   dx     = skip dy + step Σ dh B    dB += Σ dh step x     over channels
//   dstep  = x Σ dh B + Σ g A         da  = dstep · sigmoid(a + bias)
//   dlog_scale += g step A            dbias += da    dskip += dy x
//   dh of the token before = exp(step A) dh
// What is summed over channels is summed in a group of strips first, then over groups.
//
// Per token and 16 channels forward computes N exponentials and 3 N multiply-adds: that is its
// bound.
// Threads: pure functions; the scratch is the caller's.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kScanStripColumns = 16;
inline constexpr int64_t kScanGroupStrips = 16;     // whose sums over channels are made in one
inline constexpr int64_t kScanForwardTokens = 16;   // of a chunk
inline constexpr int64_t kScanBackwardTokens = 32;  // of a chunk, between two states kept

struct SelectiveScanOperands {
  ConstRows x, a;          // [T, C]
  ConstRows b, c;          // [T, N]
  const float* log_scale;  // [C, N]
  const float* bias;       // [C]
  const float* skip;       // [C]
  int64_t columns;         // C
  int64_t state_dim;       // N
};

struct SelectiveScanForwardArgs {
  SelectiveScanOperands in;
  Rows dst;  // [T, C]
};

// Some strips of a sequence.
struct SelectiveScanForwardWork {
  int64_t row_begin;
  int64_t row_count;
  int64_t strip_begin, strip_end;
  float* state;   // the sequence's h, or null: it starts at zero and is dropped
  bool resumed;   // h starts at what is there, else at zero
  void* scratch;  // selective_scan_forward_scratch_bytes, aligned to 64 bytes
};

struct SelectiveScanBackwardArgs {
  SelectiveScanOperands in;
  ConstRows grad_dst;     // [T, C]
  Rows grad_x, grad_a;    // [T, C]
  Rows sums;              // [T, groups · 2 N] f32: of B and of C, a group behind the other
  float* grad_log_scale;  // [C, N], of W
  float* grad_bias;       // [C]
  float* grad_skip;       // [C]
};

// A group of strips of a sequence (X), or a strip of it (W).
struct SelectiveScanBackwardWork {
  int64_t row_begin;
  int64_t row_count;
  int64_t strip_begin, strip_end;
  void* scratch;  // selective_scan_backward_scratch_bytes, aligned to 64 bytes
};

struct SelectiveScanSumArgs {
  ConstRows sums;       // as above
  Rows grad_b, grad_c;  // [T, N]
  int64_t groups;
  int64_t state_dim;
};

struct SelectiveScanKernels {
  void (*forward)(const SelectiveScanForwardArgs&, const SelectiveScanForwardWork&) noexcept;
  void (*backward_input)(const SelectiveScanBackwardArgs&,
                         const SelectiveScanBackwardWork&) noexcept;
  // Adds to the gradients of the strips' channels.
  void (*backward_weight)(const SelectiveScanBackwardArgs&,
                          const SelectiveScanBackwardWork&) noexcept;
  // Rows [begin, end) of the gradients of B and C from the sums of the groups, in ascending order.
  void (*sum_groups)(const SelectiveScanSumArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const SelectiveScanKernels& selective_scan_kernels(Isa isa);

int64_t selective_scan_forward_scratch_bytes(int64_t state_dim) noexcept;
int64_t selective_scan_backward_scratch_bytes(int64_t state_dim, int64_t row_count) noexcept;

}  // namespace jige::cpu

// The selective scan of Mamba 1 (Gu and Dao, 2023): every channel keeps N numbers, which fade and
// take up the token's value by steps that the token says.
//
// Shapes: T rows of all sequences flat, C channels, N numbers of each. Of channel i, token by
// token:
//   step = softplus(a + bias)
//   h_n  = exp(-exp(log_scale_n) step) h_n + step x B_n
//   dst  = Σ_n h_n C_n + skip x
// B and C are every channel's. h is zero before a sequence's first token. A sequence goes on where
// it was by its row of the states: read when context_count > 0, and afterwards h behind the last
// row. At context_count 0 it is not read, whatever it holds. A spare row gets h behind the first
// rows of the sequence. h lies there in strips of 16 channels, the last of what is left:
// [strip][N][channels of the strip].
//
// Order: sums over N are four chains of fused multiply-adds, of every fourth n each, added in
// pairs. Sums over channels are made in groups of 256, those over the tokens of a sequence from the
// last to the first; groups and sequences are added in ascending order. So bits depend neither on
// chunks of a prompt, packing, threads nor instruction set. There is no kernel for GPUs:
// model/device_support.h refuses models that need one. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// The most numbers a channel may keep.
inline constexpr int64_t kScanStateMax = 256;

struct SelectiveScan {
  TensorView dst;        // [T, C] f32 or bf16
  TensorView x, a;       // [T, C] f32 or bf16
  TensorView b, c;       // [T, N] f32 or bf16
  TensorView log_scale;  // [C, N] f32
  TensorView bias;       // [C] f32
  TensorView skip;       // [C] f32
  TensorView states;     // [slots, C·N] f32, or empty in training
  std::vector<SequenceSpan> sequences;
};
void selective_scan_forward(Stream& stream, const SelectiveScan& args);

// Columns of the sums that X needs for so many channels.
int64_t selective_scan_sum_columns(int64_t columns, int64_t state_dim);

struct SelectiveScanBackwardInput {
  TensorView grad_x, grad_a;  // as x and a; overwritten
  TensorView grad_b, grad_c;  // as b and c; overwritten
  TensorView sums;            // [T, selective_scan_sum_columns] f32; overwritten
  TensorView grad_dst;        // [T, C]
  SelectiveScan forward;      // dst is not read; no states
};
void selective_scan_backward_input(Stream& stream, const SelectiveScanBackwardInput& args);

// Goes through the sequences once more, so that nothing has to be kept for it but grad_dst.
struct SelectiveScanBackwardWeight {
  TensorView grad_log_scale, grad_bias, grad_skip;  // f32, as the parameters; added to
  TensorView grad_dst;                              // [T, C]
  SelectiveScan forward;                            // as above
};
void selective_scan_backward_weight(Stream& stream, const SelectiveScanBackwardWeight& args);

// Scratch that forward and backward take of each thread, for sequences of up to `length_max`
// tokens.
int64_t selective_scan_scratch_bytes(int64_t state_dim, int64_t length_max);

}  // namespace jige::ops

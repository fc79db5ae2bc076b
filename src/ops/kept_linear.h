// Products of which some columns of a hidden width are left out, others for other rows: what a
// feed-forward layer computes whose hidden blocks are dropped together.
//
// Shapes: T tokens, D width, F hidden width, of which K are kept. Rows come in ranges, one behind
// the other, each with runs of columns that it keeps; all keep as many. A matrix over the hidden
// width has P parts of F (gate and up, or one); what is computed of it is [T, P · K], the kept
// columns of part after part, side by side. What is left out is neither computed nor read, so a
// product takes K / F of the work.
//
// Bits: with f32 those of ops/linear.h with zeros in place of what is left out, for finite numbers,
// but for the sign of a sum that is zero; in bf16 of forward and input gradient, too, and those of
// a weight's gradient depend on where ranges of rows end.
// On CPUs, with weights in the compute type. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/linear.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// What sizes and places of columns are multiples of.
inline constexpr int64_t kKeptStep = 32;

// Columns that follow one another; both numbers are multiples of kKeptStep.
struct KeptRun {
  int64_t begin = 0;
  int64_t count = 0;
  bool operator==(const KeptRun&) const = default;
};

struct KeptRows {
  int64_t begin = 0;
  int64_t end = 0;
  std::vector<KeptRun> runs;  // ascending, apart from one another; K columns
};

struct KeptColumns {
  int64_t size = 0;  // F
  int64_t kept = 0;  // K
  std::vector<KeptRows> rows;
};

// Which side of a weight the hidden width is.
enum class KeptSide { kOutputs, kInputs };

// dst = src Wᵀ + b, or the input gradient grad_src = grad_dst W, as the weight is packed.
struct KeptProduct {
  // The hidden one has P · K columns: of dst and src that which the weight has its hidden width
  // for.
  TensorView dst;       // f32 or bf16
  TensorView src;       // f32 or bf16
  PackedWeight weight;  // [P · F, D] (kOutputs) or [D, P · F] (kInputs)
  TensorView bias;      // f32 of all outputs, or empty
  KeptSide side = KeptSide::kOutputs;
};
void kept_product(Stream& stream, const KeptProduct& args, const KeptColumns& kept);

// grads += grad_dstᵀ src.
struct KeptWeightGradient {
  std::vector<TensorView> grads;  // f32: of each part [F, D] (kOutputs), or one [D, F] (kInputs)
  TensorView grad_dst;            // [T, P · K] or [T, D]
  TensorView src;                 // [T, D] or [T, K]
  DType compute = DType::kF32;
  // u8, kept_weight_scratch_bytes: memory in which src is packed once. With less, what is needed of
  // it is packed again for every run, which takes longer and gives the same bits.
  TensorView scratch;
  KeptSide side = KeptSide::kOutputs;
};
void kept_weight_gradient(Stream& stream, const KeptWeightGradient& args, const KeptColumns& kept);
int64_t kept_weight_scratch_bytes(DType compute, int64_t token_count, int64_t src_columns);

// Bytes of scratch that these products of T tokens of one range, with P parts, D columns on the
// other side and K kept ones, take of each of so many threads at most.
struct KeptSizes {
  int64_t token_count = 0;
  int64_t parts = 1;
  int64_t width = 0;
  int64_t kept = 0;
};
int64_t kept_thread_scratch_bytes(DType compute, const KeptSizes& sizes, int threads);

// grad [F] f32 += the kept columns of a part's grad_dst [T, K], in ascending order of rows.
void kept_bias_gradient(Stream& stream, const TensorView& grad, const TensorView& grad_dst,
                        const KeptColumns& kept);

}  // namespace jige::ops

// Linear layers of many experts at once: each multiplies the rows that the router gave it.
//
// Rows as in experts.h; expert e has a weight [n, k] of its own. One loop of the team serves all
// experts: their products are cut along columns into pieces of about equal cost, so that one token,
// whose experts have a row each, keeps every thread reading weights, and many tokens, most of
// whose experts are a thread's alone, every thread computing. The bits are those of linear.h, row
// by row, however pieces fall; experts without rows cost nothing.
// On a GPU f32 has the bits of the CPU, and bf16 sums in orders that depend on the depth alone and
// on whether there are up to 16 tokens; of a weight's gradient, on how many rows its expert has.
// Quantised weights need no strip there: of more tokens their numbers, rounded to the compute type,
// are multiplied on the way, with the bits of ordinary weights of such numbers.
// Threads: asynchronous on the stream; row_ends is read when the work runs.
#pragma once

#include <vector>

#include "ops/experts.h"
#include "ops/linear.h"

namespace jige::ops {

// Packed weights of equal shape, `stride_bytes` apart.
struct ExpertWeights {
  PackedWeight first;
  int64_t stride_bytes = 0;
  int64_t count = 0;
  PackedWeight at(int64_t expert) const;
};

struct ExpertProduct {
  TensorView dst;  // [R, n], f32 or bf16; of the input gradient [R, k]
  TensorView src;  // [R, k]; of the input gradient [R, n]; on a GPU of the compute type
  ExpertWeights weights;
  PackUse use = PackUse::kForward;  // or kInputGradient
  TensorView row_ends;              // [E] i32
  int64_t token_count = 0;          // T: no expert has more rows
  TensorView strip;                 // as in LinearForward; on a GPU none
};
void expert_product(Stream& stream, const ExpertProduct& args);

// What comes of a gate and of what it gates, [gate | up] of 2F columns, of rows that are still to
// be gathered: with the bits of gather_rows(), expert_product() into bf16, and swiglu_forward(),
// geglu_forward() or bounded_gate(). False, and nothing is done, where that would gain nothing: on
// a CPU, in f32, or of many tokens.
struct ExpertGated {
  TensorView dst;         // [R, F], f32 or bf16
  TensorView src;         // [T, k]
  ExpertWeights weights;  // of [2F, k]
  Routing routing;
  GatedUnit unit = GatedUnit::kSwiGlu;
  BoundedGate bounded = {};  // where it has biases, in the place of the unit
};
bool expert_gated_forward(Stream& stream, const ExpertGated& args);

struct ExpertWeightGradient {
  std::vector<TensorView> grads;  // by expert, [n, k] f32; an empty one is not wanted
  TensorView grad_dst;            // [R, n], f32 or bf16; on a GPU of the compute type
  TensorView src;                 // [R, k], likewise
  TensorView row_ends;            // [E] i32
  DType compute = DType::kF32;
  bool accumulate = true;  // false: stored, zeros for an expert without rows
};
void expert_weight_gradient(Stream& stream, const ExpertWeightGradient& args);

}  // namespace jige::ops

// Experts: who computes which token, rows brought together by expert and taken apart again.
//
// Shapes: T tokens, D width, E experts, k chosen of them for each token, R = T · k rows. A place
// t k + j is the j-th chosen expert of token t, in ascending order of experts; a row is a place
// among those of its expert, so that the rows of expert e are [row_ends[e - 1], row_ends[e]), its
// tokens in ascending order. The arithmetic is in kernels/cpu/experts.h: a token's choice and sums
// depend on nothing but its own numbers.
// On a GPU choices, weights and all that is not an inner product of rows or a bounded gate have the
// bits of the CPU.
// Threads: asynchronous on the stream; routes are read when the work runs.
#pragma once

#include <vector>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

inline constexpr int64_t kGpuExpertsMax = 2048;  // E on a GPU

struct Routing {
  TensorView logits;        // [T, E] f32, the router's; columns of a wider tensor are fine
  TensorView chosen;        // [T, k] i32, experts in ascending order
  TensorView weights;       // [T, k] f32
  TensorView row_of_place;  // [T, k] i32
  TensorView place_of_row;  // [R] i32
  TensorView row_ends;      // [E] i32
  bool normalised = false;  // the weights of a token add up to 1, or to the scale
  bool sigmoid = false;     // scores are sigmoids of logits, not their softmax
  float scale = 1;          // of the weights
  float sum_offset = 0;     // is added to the sum of sigmoids that weights are divided by
  float sum_min = 0;        // the least that a sum of the softmax of the chosen counts as
  // Experts in groups of neighbours, of which a token has those of the best groups alone: by their
  // best score, or by the sum of their two best.
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  bool groups_by_pairs = false;
  TensorView choice_bias = {};  // [E] f32 or empty: on the scores for the choice, not the weights
  // Numbers of experts that their weights come times at last: [E] f32 or empty, and [T, k] f32.
  TensorView scales = {};
  TensorView scaled_weights = {};

  int64_t token_count() const { return logits.rows(); }
  int64_t expert_count() const { return logits.columns(); }
  int64_t chosen_count() const { return chosen.columns(); }
  int64_t row_count() const { return place_of_row.count(); }
  // What rows are weighed by.
  const TensorView& row_weights() const { return scaled_weights ? scaled_weights : weights; }
};

// From the logits, all the rest.
void route(Stream& stream, const Routing& routing);

// dst [R, D] = the rows of src [T, D] whose tokens they are; of one type.
void gather_rows(Stream& stream, const Routing& routing, const TensorView& dst,
                 const TensorView& src);

// dst [T, D] = base + the sum of a token's rows of src [R, D], ascending, weighted or not. dst and
// src f32 or bf16; base f32, or empty; addend likewise, not in dst's memory: added to dst, which is
// f32, once all else is.
enum class RowWeights { kRouter, kOnes };
void combine_rows(Stream& stream, const Routing& routing, const TensorView& dst,
                  const TensorView& src, RowWeights weights, const TensorView& base = {},
                  const TensorView& addend = {});

// Every row of data [R, F] times its weight.
void weigh_rows(Stream& stream, const Routing& routing, const TensorView& data);

// grad_weights [T, k] f32: the inner products of rows of a and b [R, F], both of one type.
void dot_rows(Stream& stream, const Routing& routing, const TensorView& grad_weights,
              const TensorView& a, const TensorView& b);

// Every row of data [T, F] times the sigmoid of its logit [T, 1] f32.
void gate_rows(Stream& stream, const TensorView& data, const TensorView& logits);
// grad_logits [T, 1] f32 from data [T, F] without gates and the gradient there, which has them in
// it; data gets its gates.
void gate_rows_backward(Stream& stream, const TensorView& grad_logits, const TensorView& grad,
                        const TensorView& data, const TensorView& logits);

// Biases of experts, [E, N] f32: every row of data [R, N] gets that of its expert on top.
void add_biases(Stream& stream, const Routing& routing, const TensorView& data,
                const TensorView& biases);
// grad_weights [T, k] f32 += the inner products of rows of data [R, N] with those.
void dot_biases(Stream& stream, const Routing& routing, const TensorView& grad_weights,
                const TensorView& data, const TensorView& biases);
// grads[e] [N] f32 += the rows of e in data [R, N], ascending; an empty one is not wanted.
void bias_gradients(Stream& stream, const Routing& routing, const std::vector<TensorView>& grads,
                    const TensorView& data, RowWeights weights);

// The gate with biases that is held in bounds.
struct BoundedGate {
  TensorView biases;  // [E, 2F] f32
  float alpha = 0;
  float limit = 0;
};
// dst [R, F] from gate_up [R, 2F] without biases; dst may be the gate columns.
void bounded_gate(Stream& stream, const Routing& routing, const BoundedGate& gate,
                  const TensorView& dst, const TensorView& gate_up);
// grad_gate_up [R, 2F] from grad_dst [R, F]; activated [R, F] gets what the forward gave, and may
// be the gate columns of gate_up.
struct BoundedGateGradients {
  TensorView grad_gate_up, grad_dst, gate_up, activated;
};
void bounded_gate_backward(Stream& stream, const Routing& routing, const BoundedGate& gate,
                           const BoundedGateGradients& args);

// With scales: grad_weights [T, k] f32, the gradient at scaled weights, becomes that at weights;
// slopes [T, k] f32 are what places add to the gradients of scales.
void scale_slopes(Stream& stream, const Routing& routing, const TensorView& grad_weights,
                  const TensorView& slopes);
// grad_scales [E] f32 += the slopes of an expert's rows, ascending.
void scale_gradients(Stream& stream, const Routing& routing, const TensorView& grad_scales,
                     const TensorView& slopes);

// grad_logits [T, E] f32 from grad_weights [T, k] f32.
void route_backward(Stream& stream, const Routing& routing, const TensorView& grad_logits,
                    const TensorView& grad_weights);

}  // namespace jige::ops

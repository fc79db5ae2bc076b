// A loss for unequal use of experts, of each sequence by itself, as DeepSeek V2 and V3 train with.
//
// Of a sequence of T tokens, E experts, of which a token has k:
//   p_te  what the router gives expert e of all scores of token t: the softmax of its logits, or
//         their sigmoids by the sum of these; whatever weights its rows come times
//   f_e = E / (k T) times how many of the tokens chose e; it carries no gradient
//   b_t = Σ_e f_e p_te, 1 where use is equal or scores are, E / k where all tokens agree
// The loss of a token is b_t: that of a sequence, Σ_e f_e mean_t p_te, is their mean. A sequence
// depends on its own tokens alone, so no bit depends on what stands beside it in a batch.
// On a GPU it has the bits of the CPU. Threads: asynchronous on the stream.
#pragma once

#include <vector>

#include "ops/attention.h"
#include "ops/experts.h"

namespace jige::ops {

struct ExpertBalance {
  TensorView losses;       // [T] f32: b
  TensorView grad_logits;  // [T, E] f32: weight times the gradient of Σ b is added
  float weight = 0;
  std::vector<SequenceSpan> sequences;  // which cover the rows
};
// What `routing` was chosen by stands there still.
void balance_experts(Stream& stream, const Routing& routing, const ExpertBalance& args);

}  // namespace jige::ops

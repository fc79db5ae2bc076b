// Softmax cross-entropy of rows of logits with its gradient: see ops/cross_entropy.h.
//
//   x = logits, or cap · tanh(logits · (1/cap)) where there is a cap
//   m = max x, s = Σ exp(x - m), loss = (m - x[target]) + log s
//   grad = exp(x - m) · (weight / s), less weight at the target; times 1 - tanh² under a cap
// s sums blocks of 4096 logits, each by the rule in simd.h, and adds the blocks in ascending order
// in double: so a large vocabulary loses no accuracy.
// Three passes over a row, of which all but the first find it in cache; a bf16 gradient is made
// from exponentials kept in a row of scratch. Under a cap one more pass leaves x in another row of
// scratch. Bytes moved: the logits and the gradient once.
// Threads: a pure function on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct CrossEntropyArgs {
  float* loss;
  const float* logits;
  int64_t logits_stride;
  const int32_t* targets;
  const float* weights;  // or null: 1
  Rows grad;             // data null: none; f32 may be the logits
  float* exponentials;   // a row of the calling thread's, where the gradient is bf16
  float* capped;         // likewise, where there is a cap
  float cap;             // 0: none
  int64_t vocabulary;
};

struct CrossEntropyKernels {
  void (*rows)(const CrossEntropyArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const CrossEntropyKernels& cross_entropy_kernels(Isa isa);

}  // namespace jige::cpu

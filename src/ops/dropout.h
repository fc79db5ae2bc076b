// Dropout: each element becomes zero with probability P, the others are multiplied by 1 / (1 - P),
// so that the mean stays.
//
// Nothing is drawn in turn and nothing is kept: whether an element stays is a function of (key,
// site, token, column), see kernels/cpu/dropout.h. So the backward pass, and a forward pass that is
// made again, on whatever device and with whatever cut into batches, see the same mask. P is
// rounded to a multiple of 2^-32, and the factor is that of the rounded P.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct Dropout {
  double rate = 0;          // P in [0, 1); 0: off
  uint64_t key = 0;         // of the run and its step
  int64_t token_begin = 0;  // of row 0, among all tokens of the step
  bool one_mask = false;    // every row has that of row 0
};

// dst = src with elements dropped; dst may be src; f32 or bf16 each. It is its own gradient: from
// that of dst it makes that of src. With rate 0 it converts between types. `site` tells apart the
// places of a model. REQUIRES: 0 <= rate < 1.
void dropout(Stream& stream, const TensorView& dst, const TensorView& src, const Dropout& dropout,
             uint64_t site);

}  // namespace jige::ops

// AdamW on arrays of a GPU: kernels/cpu/adamw.h and adamw_blocks.h, with the bits of the CPU.
//
// Every operation is one that GPUs round as processors do. Packed forms of a weight are its rows as
// they are, in the compute type, and are written in the same pass. Moves 28 bytes an element, or
// 16.1 with moments in blocks, and those of the packed forms.
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/adamw_blocks.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// Where the new weight goes besides.
struct WeightCopies {
  static constexpr int kMax = 4;
  struct Copy {
    void* data;  // its element that is the weight's first
    cpu::ElementType type;
  };
  Copy copies[kMax];
  int count;
};

void adamw(const LaunchStream& stream, const cpu::AdamWArrays& arrays,
           const cpu::AdamWFactors& factors, const WeightCopies& copies, int64_t count);
void adamw_blocks(const LaunchStream& stream, const cpu::AdamWBlockArrays& arrays,
                  const cpu::AdamWFactors& factors, const WeightCopies& copies, int64_t count);

}  // namespace jige::cuda

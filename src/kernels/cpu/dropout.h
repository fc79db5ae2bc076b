// Dropout by a counter: whether an element stays is a function of key, site, token and column.
//
//   column c = 32 g + 8 w + l   (g groups, w words, l lanes)
//   bits     word w of Philox-4x32-10 (base/rng.h) under `key` at the counter
//            (site, token · 8 G + 8 g + l), G the groups of a row
//   dst      bits >= threshold ? scale · src : 0 · src
// The order lets eight lanes hold eight blocks, whose words are eight neighbouring columns each.
// Bits do not depend on the instruction set. What is not finite stays so.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct DropoutArgs {
  Rows dst;       // f32 or bf16; may be src
  ConstRows src;  // f32 or bf16
  int64_t columns;
  uint64_t key;
  uint64_t site;
  uint64_t token_begin;  // of row 0
  uint64_t token_step;   // from row to row: 1, or 0 where all have the mask of one token
  uint32_t threshold;
  float scale;
};

struct DropoutKernels {
  void (*dropout)(const DropoutArgs& args, int64_t row_begin, int64_t row_end) noexcept;
};

const DropoutKernels& dropout_kernels(Isa isa);

}  // namespace jige::cpu

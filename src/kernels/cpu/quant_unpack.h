// Blocks of weights turned back into the numbers that they stand for.
//
// A number is its block's scale times its integer, which f32 holds exactly; as bf16 it is rounded
// once, to nearest even. Zeros are positive. One code for every instruction set.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quant_format.h"

namespace jige::cpu {

// Blocks that follow each other in one panel, padding included: row i of dst has depth i of the 32
// columns.
struct QuantUnpack {
  QuantFormat format;
  const std::byte* blocks;
  int64_t block_count;
  bool to_bf16;        // else f32
  void* dst;           // [32 block_count, 32]
  int64_t dst_stride;  // elements from row to row
};
void quant_unpack(const QuantUnpack& args) noexcept;

}  // namespace jige::cpu

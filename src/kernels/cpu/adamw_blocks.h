// One AdamW step on arrays whose moments are codes of 8 bits.
//
// A block is 128 consecutive numbers of a parameter, the last one of which may have fewer:
//   first moment            m = scale · |c|³·c      c = code, -127 … 127
//   root of the second one  r = scale · (c + 128)⁴  v = r², c = code, -127 … 127
// so scale is the block's largest magnitude over 127⁴ and over 255⁴. Rounding is to the nearest
// code: the error of the largest m of a block is below 1.6 %, of one a hundredth of it 5 %, of one
// a ten thousandth 16 %; of r half of these. Fourth powers, since a block may hold rows of an
// embedding table whose tokens are common and rare. A root is never 0 where another of its block is
// not, so no m is divided by epsilon alone because its v was rounded away.
// New moments are those of adamw.h, element by element, and change the weight as they are, before
// they are rounded. Where the largest number makes a scale below 2^-100 the block is 0, and roots
// of v end at 2^63. Codes behind a parameter's end are those of 0.
// Every instruction set gives the same bits. Moves 16.1 bytes an element, and is bound by its five
// square roots and a division: 13 GB/s where adamw.h moves 44, 1.8 times its time (Zen 4, AVX-512,
// 26 November 2026, bench/gemm_bench). Threads: pure functions.
#pragma once

#include <cstdint>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/types.h"

namespace jige::cpu {

inline constexpr int64_t kMomentBlock = 128;

struct MomentBlock {
  float scale;
  int8_t codes[kMomentBlock];
};
static_assert(sizeof(MomentBlock) == 4 + kMomentBlock);

struct AdamWBlockArrays {
  float* weight;
  MomentBlock* moment1;
  MomentBlock* moment2;  // holds the root
  const float* grad;
};

struct AdamWBlockKernels {
  // REQUIRES: `begin` is a block's, `end` too or the parameter's.
  void (*step)(const AdamWBlockArrays& arrays, const AdamWFactors& factors, int64_t begin,
               int64_t end) noexcept;
};

const AdamWBlockKernels& adamw_block_kernels(Isa isa);

}  // namespace jige::cpu

// The micro-kernels of quantised products around the integer sums of one instruction set.
//
// `Sums` is that: kRows, the rows whose sums and chains of blocks its registers hold, kRowsMax,
// those of a call at most (chains of more than kRows stay in memory), and a member template
// dots<format, rows>(row blocks, data, out), which gives the sums of one block as two F32x16, a
// lane a column.
// Included by sources compiled for one instruction set. Threads: pure functions.
#pragma once

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// Rows of a call times one panel.
template <int kRows>
struct QuantTile {
  const QuantBlock* rows;  // those of the block that comes next, as in the panel
  const char* panel;
  int64_t ahead;
  F32x16 acc[kRows][2];
};

// The next block of the depth.
template <typename Sums, QuantFormat kFormat, int kRows>
JIGE_INLINE void quant_block(QuantTile<kRows>& tile) {
  F32x16 dots[kRows][2];
  Sums::template dots<kFormat, kRows>(tile.rows, tile.panel + kQuantScaleBytes, dots);
  // Chains in memory are loaded behind this, or else they would drive the sums out of registers.
  if constexpr (kRows > Sums::kRows) asm volatile("" : "+m"(tile.acc));
  const auto* scales = reinterpret_cast<const F16*>(tile.panel);
  const F32x16 low = F32x16::load(scales);
  const F32x16 high = F32x16::load(scales + kQuantHalf);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F32x16 scale = F32x16::broadcast(tile.rows[r].scale);
    tile.acc[r][0] = fma(scale * low, dots[r][0], tile.acc[r][0]);
    tile.acc[r][1] = fma(scale * high, dots[r][1], tile.acc[r][1]);
  }
  if (tile.ahead > 0) {
#pragma GCC unroll 32
    for (int line = 0; line < QuantTraits<kFormat>::kBlockBytes; line += 64) {
      _mm_prefetch(tile.panel + tile.ahead + line, _MM_HINT_T0);
    }
  }
  tile.rows += kRows;
  tile.panel += QuantTraits<kFormat>::kBlockBytes;
}

// Writes rows of the sixteen columns from one on, with the bias, as far as the columns reach.
// sum(row) is an F32x16.
template <int kRows, typename Element, typename Sum>
JIGE_INLINE void quant_store_half(const QuantMicroArgs& args, int64_t column, int rows,
                                  Element* out, const Sum& sum) {
  const int64_t left = args.columns - column;
  if (left <= 0) return;
  const int lanes = left < kQuantHalf ? static_cast<int>(left) : kQuantHalf;
  F32x16 bias = F32x16::zero();
  if (args.bias) bias = load_lanes<F32x16>(args.bias + column, lanes);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
    const F32x16 value = args.bias ? sum(r) + bias : sum(r);
    store_lanes(value, out + r * args.out_stride + column, lanes);
  }
}

template <int kRows, typename Element>
JIGE_INLINE void quant_store(const QuantTile<kRows>& tile, const QuantMicroArgs& args,
                             int64_t column, Element* out) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    quant_store_half<kRows>(args, column + half * kQuantHalf, kRows, out,
                            [&](int r) { return tile.acc[r][half]; });
  }
}

// All rows of a call times the panel that begins with a column.
template <typename Sums, QuantFormat kFormat, int kRows>
JIGE_FLATTEN void quant_tile(const QuantMicroArgs& args, int64_t column) {
  QuantTile<kRows> tile;
  tile.rows = args.left;
  tile.ahead = args.ahead;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    tile.acc[r][0] = tile.acc[r][1] = F32x16::zero();
  }
  tile.panel =
      reinterpret_cast<const char*>(args.panels) + column / kQuantColumns * args.panel_bytes;
  for (int64_t block = 0; block < args.blocks; ++block) quant_block<Sums, kFormat>(tile);
  if (args.out_is_bf16) {
    quant_store(tile, args, column, static_cast<Bf16*>(args.out));
  } else {
    quant_store(tile, args, column, static_cast<float*>(args.out));
  }
}

// The micro-kernel of an engine: finds the code for so many rows.
template <typename Sums, QuantFormat kFormat, int kRows = Sums::kRowsMax>
void quant_micro(const QuantMicroArgs& args) {
  if (args.rows == kRows) {
    for (int64_t column = 0; column < args.columns; column += kQuantColumns) {
      quant_tile<Sums, kFormat, kRows>(args, column);
    }
    return;
  }
  if constexpr (kRows > 1) quant_micro<Sums, kFormat, kRows - 1>(args);
}

}  // namespace jige::cpu::JIGE_ISA_NS

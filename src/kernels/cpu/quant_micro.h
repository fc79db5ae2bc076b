// The micro-kernels of quantised products around the integer sums of one instruction set.
//
// `Sums` is that: kRows, the rows that its registers hold; kPanelsOf(rows), the panels side by side
// that such a call takes; and a member template dots<rows, panels>(row blocks, data, out), which
// gives the sums of one block as F32x16, a lane a column.
// Included by sources compiled for one instruction set. Threads: pure functions.
#pragma once

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

template <int kRows, int kPanels>
struct QuantTile {
  const QuantBlock* row[kRows];
  const char* panel[kPanels];  // the pair of blocks that comes next
  F32x16 acc[kRows][kPanels];
};

// One block of the depth: the even or the odd one of the pair.
template <typename Sums, QuantFormat kFormat, int kRows, int kPanels>
JIGE_INLINE void quant_block(QuantTile<kRows, kPanels>& tile, int odd) {
  using Traits = QuantTraits<kFormat>;
  const char* data[kPanels];
  F32x16 scales[kPanels];
  for (int c = 0; c < kPanels; ++c) {
    data[c] = tile.panel[c] + kQuantHeadBytes + odd * Traits::kDataBytes;
    scales[c] = F32x16::load(reinterpret_cast<const F16*>(tile.panel[c] + odd * kQuantScaleBytes));
  }
  F32x16 dots[kRows][kPanels];
  Sums::template dots<kFormat, kRows, kPanels>(tile.row, data, dots);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F32x16 scale = F32x16::broadcast(tile.row[r]->scale);
#pragma GCC unroll 2
    for (int c = 0; c < kPanels; ++c) {
      tile.acc[r][c] = fma(scale * scales[c], dots[r][c], tile.acc[r][c]);
    }
    ++tile.row[r];
  }
}

template <int kRows, int kPanels, typename Element>
JIGE_INLINE void quant_store(const QuantTile<kRows, kPanels>& tile, const QuantMicroArgs& args,
                             int64_t column, Element* out) {
#pragma GCC unroll 2
  for (int c = 0; c < kPanels; ++c) {
    const int64_t at = column + c * kQuantColumns;
    const int64_t left = args.columns - at;
    const int lanes = left < kQuantColumns ? static_cast<int>(left) : kQuantColumns;
    F32x16 bias = F32x16::zero();
    if (args.bias) bias = load_lanes<F32x16>(args.bias + at, lanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32x16 value = args.bias ? tile.acc[r][c] + bias : tile.acc[r][c];
      store_lanes(value, out + r * args.out_stride + at, lanes);
    }
  }
}

// All rows of a call times the panels from a column on.
template <typename Sums, QuantFormat kFormat, int kRows, int kPanels>
JIGE_FLATTEN void quant_tile(const QuantMicroArgs& args, int64_t column) {
  QuantTile<kRows, kPanels> tile;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    tile.row[r] = args.left + r * args.left_stride;
    for (int c = 0; c < kPanels; ++c) tile.acc[r][c] = F32x16::zero();
  }
  for (int c = 0; c < kPanels; ++c) {
    tile.panel[c] = reinterpret_cast<const char*>(args.panels) +
                    (column / kQuantColumns + c) * args.panel_bytes;
  }
  for (int64_t pair = 0; pair < args.blocks / 2; ++pair) {
    quant_block<Sums, kFormat>(tile, 0);
    quant_block<Sums, kFormat>(tile, 1);
    for (int c = 0; c < kPanels; ++c) tile.panel[c] += QuantTraits<kFormat>::kPairBytes;
  }
  if (args.blocks % 2 != 0) quant_block<Sums, kFormat>(tile, 0);
  if (args.out_is_bf16) {
    quant_store(tile, args, column, static_cast<Bf16*>(args.out));
  } else {
    quant_store(tile, args, column, static_cast<float*>(args.out));
  }
}

template <typename Sums, QuantFormat kFormat, int kRows>
JIGE_INLINE void quant_columns(const QuantMicroArgs& args) {
  constexpr int kPanels = Sums::panels_of(kRows);
  int64_t column = 0;
  if constexpr (kPanels > 1) {
    constexpr int64_t kStep = kPanels * kQuantColumns;
    for (; column + kStep - kQuantColumns < args.columns; column += kStep) {
      quant_tile<Sums, kFormat, kRows, kPanels>(args, column);
    }
  }
  for (; column < args.columns; column += kQuantColumns) {
    quant_tile<Sums, kFormat, kRows, 1>(args, column);
  }
}

// The micro-kernel of an engine: finds the code for so many rows.
template <typename Sums, QuantFormat kFormat, int kRows = Sums::kRows>
void quant_micro(const QuantMicroArgs& args) {
  if (args.rows == kRows) return quant_columns<Sums, kFormat, kRows>(args);
  if constexpr (kRows > 1) quant_micro<Sums, kFormat, kRows - 1>(args);
}

}  // namespace jige::cpu::JIGE_ISA_NS

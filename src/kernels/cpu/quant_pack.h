// Quantising: rows of a product into blocks, weights into panels. One code for every instruction
// set, so that the bits are the same; quant_plain.h is its measure.
// Threads: pure functions; several may write different weight rows of a panel at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/types.h"

namespace jige::cpu {

struct QuantRows {
  ConstRows src;  // f32 or bf16
  int64_t row_count;
  int64_t depth;
  QuantFormat weights;  // of the product, which decides the offsets
  QuantBlock* dst;      // [blocks of the depth][row_count]
};
void quant_rows(const QuantRows& args) noexcept;

// Scales that are given: an f16 for each block of a row, as bits; zero: none.
struct QuantScales {
  const uint16_t* data = nullptr;  // null: none at all
  int64_t stride = 0;              // elements from row to row
  uint16_t at(int64_t row, int64_t block) const {
    return data ? data[row * stride + block] : uint16_t{0};
  }
  QuantScales from_row(int64_t row) const { return {data ? data + row * stride : nullptr, stride}; }
};

// Columns of a weight [n, k], which are rows in memory, into panels.
struct QuantWeights {
  QuantFormat format;
  ConstRows src;  // f32, bf16 or f16; its row 0 is column `column_begin` of the panels
  QuantScales scales;
  int64_t column_begin;
  int64_t column_count;
  int64_t depth;
  std::byte* panels;  // the first column's panel is column_begin / 32
  int64_t panel_bytes;
};
void quant_weights(const QuantWeights& args) noexcept;

// Writes zeros into so many columns, the padding behind the last one. `src` is not read.
void quant_zero_columns(const QuantWeights& args) noexcept;

}  // namespace jige::cpu

// Quantised products in plain C++, as quant_format.h defines them: the measure of the kernels.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/quant_format.h"

namespace jige::cpu {

struct PlainWeightBlock {
  int8_t values[kQuantBlock];
  uint16_t scale;  // f16
};

// Blocks of a row of numbers, padded with zeros to whole ones. `scales`: those that are given, f16
// as bits, zero where there is none; null: none at all.
std::vector<PlainWeightBlock> plain_weight_blocks(QuantFormat format, const float* values,
                                                  int64_t count, const uint16_t* scales = nullptr);
std::vector<QuantBlock> plain_row_blocks(QuantFormat weights, const float* values, int64_t count);

// One output without its bias.
float plain_dot(const std::vector<QuantBlock>& row, const std::vector<PlainWeightBlock>& weights);

// A block of a column, read from panels.
PlainWeightBlock plain_block_of_panels(QuantFormat format, const std::byte* panels,
                                       int64_t panel_bytes, int64_t column, int64_t block);

// What computes with panels where nothing faster passes its check.
extern const QuantEngine kQuantPlain;

}  // namespace jige::cpu

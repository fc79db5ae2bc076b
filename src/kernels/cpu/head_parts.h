// Keys and values of heads, put together of parts that every head has and one that all share: see
// ops/head_parts.h for the shapes. All arrays of a call have one element type.
//
// Bytes moved: all operands, once. Threads: pure functions on row ranges.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"

namespace jige::cpu {

struct HeadPartsArgs {
  Rows keys;
  Rows values;
  Rows parts;
  Rows shared;
  int64_t head_count;
  int64_t own;             // n
  int64_t shared_columns;  // r
  int64_t value_columns;   // w
};

struct HeadColumnsArgs {
  Rows dst;
  ConstRows src;
  int64_t head_count;
  int64_t dst_columns;  // of a head
  int64_t src_columns;
  int64_t dst_first;  // of the columns that are written, up to the head's last
  int64_t src_first;
};

struct HeadPartsKernels {
  // keys and values from parts and shared
  void (*join)(const HeadPartsArgs&, int64_t row_begin, int64_t row_end) noexcept;
  // parts and shared from keys and values, summed over heads
  void (*split)(const HeadPartsArgs&, int64_t row_begin, int64_t row_end) noexcept;
  // the columns of every head from the first ones on, cut or followed by zeros
  void (*fit)(const HeadColumnsArgs&, int64_t row_begin, int64_t row_end) noexcept;
};

const HeadPartsKernels& head_parts_kernels(Isa isa);

}  // namespace jige::cpu

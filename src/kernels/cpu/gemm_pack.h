// Packing operands of matrix products into the layouts of gemm_engine.h, rounding on the way.
//
// Packing reads memory once and writes it once, so AVX2, which every machine has, is enough.
// Threads: no state; the caller splits the work.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm_engine.h"
#include "tensor/dtype.h"

namespace jige::cpu {

// An operand in memory. `lane` is a row of the left or a column of the right operand, `depth` the
// summed index.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::kF32;   // f32, bf16 or f16
  int64_t row_stride = 0;      // elements between rows in memory
  bool depth_across = false;   // false: a memory row is a lane; true: a memory row is a depth
  bool round_to_bf16 = false;  // round f32 and f16 elements to bf16 first
};

struct GemmPackRange {
  int64_t lane_begin;
  int64_t lane_count;
  int64_t depth_begin;
  int64_t depth_count;
};

// Packs a range of the left in blocks of `rows` lanes, one after the other; the last one of chains
// is as narrow as the lanes left. Tiles are padded with zeros to 16 lanes and 32 depths. REQUIRES:
// rows <= engine.rows; for tiles equal.
void gemm_pack_left(const GemmEngine& engine, const GemmOperand& left, const GemmPackRange& range,
                    int64_t rows, void* dst);

// Packs a range of the right into panels `panel_bytes` apart, padded with zeros to the engine's
// columns and depth step. `dst` is the place of the range's first lane and depth.
// past_caches: as of GemmTileRun, where the engine can. REQUIRES: lane_begin a multiple of the
// columns, depth_begin of the depth step.
void gemm_pack_right(const GemmEngine& engine, const GemmOperand& right, const GemmPackRange& range,
                     int64_t panel_bytes, void* dst, bool past_caches = false);

// Packs any range of the right element by element, without padding, into `panels` that hold
// `depth` summed indices; source element (0, 0) goes to (lane_begin, depth_begin).
void gemm_pack_right_elements(const GemmEngine& engine, const GemmOperand& right,
                              const GemmPackRange& range, int64_t depth, void* panels);

// Sets the elements of a range in `panels` to zero.
void gemm_zero_right_elements(const GemmEngine& engine, const GemmPackRange& range, int64_t depth,
                              void* panels);

}  // namespace jige::cpu

// Products with block-quantised weights: blocking and threads around the micro-kernels of
// quant_format.h.
//
// Work is cut into tasks over rows and columns, never over the depth. A thread quantises the rows
// of its task into its scratch, where they stay for tasks of the same rows; a micro-kernel call
// then runs along the whole depth, so that sums never leave the registers. Rows are cut so that
// they stay in a second-level cache beside a panel, and columns so that whoever is done first
// has something to take over.
// Threads: the calling thread and the device's team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/quant_format.h"
#include "kernels/cpu/quant_pack.h"
#include "kernels/cpu/types.h"
#include "tensor/cpu_device.h"

namespace jige::cpu {

struct QuantProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  ConstRows left;  // f32 or bf16
  QuantFormat format;
  const std::byte* panels = nullptr;
  Rows out;                     // f32 or bf16
  const float* bias = nullptr;  // null: none
};

// Computes a product and returns when it is done.
void quant_gemm(CpuDevice& device, const QuantEngine& engine, const QuantProduct& product);

// Bytes of scratch that it takes of each of so many threads. Reads no operand.
int64_t quant_thread_scratch_bytes(const QuantEngine& engine, const QuantProduct& product,
                                   int threads);

// Bytes of a panel, and of a whole weight in panels.
int64_t quant_panel_bytes(QuantFormat format, int64_t depth);
int64_t quant_panels_bytes(QuantFormat format, int64_t columns, int64_t depth);

// Quantises a weight [n, k], or rows of it, into panels. The part that reaches the last row also
// writes the padding behind it.
struct QuantPack {
  QuantFormat format;
  std::byte* panels;
  int64_t columns;  // n, of the whole weight
  int64_t depth;    // k
  ConstRows part;   // f32, bf16 or f16
  int64_t part_begin;
  int64_t part_count;
  QuantScales scales = {};  // of the part
};
void quant_pack(CpuDevice& device, const QuantPack& args);

}  // namespace jige::cpu

// Matrix products on the CPU: blocking and threads around the micro-kernels of gemm_engine.h.
//
//   out[m][n] = bias[n] + Σ_k left[m][k] · right[k][n]       or, with accumulate,
//   out[m][n] = (out[m][n] as the first value of the chain) + Σ_k …
//
// The sum is the engine's: over ascending k, blocking never changes a bit. The bias is one addition
// at the end, then the result is rounded to the type of `out`.
// Work is cut over (m, n) only, never over k; products of many rows with packed panels go their own
// way (gemm_many_rows.h). Otherwise a task packs a block of the left (and of the right, where that
// is not packed yet) for one stretch of the depth at a time, so that a panel of the right stays in
// the first-level cache and the block of the left in the second, and keeps its sums in scratch
// between stretches. Threads: the calling thread and the device's team; the engine picks the order
// of nothing that shows in results.
#pragma once

#include <span>

#include "kernels/cpu/gemm_engine.h"
#include "kernels/cpu/gemm_pack.h"
#include "tensor/cpu_device.h"

namespace jige::cpu {

// Columns, or summed indices, that follow one another. Both numbers are multiples of kGemmRunStep,
// which ends a panel and a step of the depth of every engine.
inline constexpr int64_t kGemmRunStep = 32;
struct GemmRun {
  int64_t begin = 0;
  int64_t count = 0;
};

// A product with some parts of a packed right alone, or into some columns of the output. Runs are
// ascending and stand for the product's own indices one after the other; none: all of them.
struct GemmParts {
  std::span<const GemmRun> depths;   // of the right's; the left has these alone, side by side
  int64_t right_depth = 0;           // of the whole right; 0: the product's
  std::span<const GemmRun> columns;  // of the right's; the output has these alone, side by side
  std::span<const GemmRun> outputs;  // columns of the output; the right has these alone
  bool any() const { return !depths.empty() || !columns.empty() || !outputs.empty(); }
};

struct GemmProduct {
  int64_t rows = 0;     // m
  int64_t columns = 0;  // n
  int64_t depth = 0;    // k
  GemmOperand left;
  // The right operand: packed panels, or, where that is null, an operand packed on the way.
  const void* right_panels = nullptr;
  GemmOperand right;
  // Memory for the whole right in panels (gemm_panels_bytes), so that it is packed once; where that
  // is null, or the product is not one that gains, every task packs its share.
  void* right_scratch = nullptr;
  void* out = nullptr;
  DType out_dtype = DType::kF32;  // f32 or bf16; f32 with accumulate
  int64_t out_stride = 0;
  const float* bias = nullptr;  // null: none
  bool accumulate = false;
  // A hint: whoever reads `out` does so in the order of memory, after it has left the caches. Of no
  // use with accumulate.
  bool out_past_caches = false;
  // REQUIRES: with any, a packed right or memory to pack it in.
  GemmParts parts = {};
};

// Computes a product and returns when it is done.
// REQUIRES: panels packed for this engine; both operands rounded where the engine is a bf16 one.
void gemm(CpuDevice& device, const GemmEngine& engine, const GemmProduct& product);

// Bytes of scratch that a product takes of each of so many threads. Reads no operand.
int64_t gemm_thread_scratch_bytes(const GemmEngine& engine, const GemmProduct& product,
                                  int threads);

// Bytes of a whole right operand packed for an engine.
int64_t gemm_panels_bytes(const GemmEngine& engine, int64_t lanes, int64_t depth);

// Packs `part`, whose element (0, 0) is (lane_begin, depth_begin) of a right operand of
// lanes x depth; the part that reaches the last lane or depth also writes the padding there.
struct GemmPanels {
  void* data;
  int64_t lanes;
  int64_t depth;
  // A hint that changes no bit: they are next read when no cache would still hold them.
  bool past_caches = false;
};
void gemm_pack_panels(CpuDevice& device, const GemmEngine& engine, const GemmPanels& panels,
                      const GemmOperand& part, const GemmPackRange& range);

}  // namespace jige::cpu

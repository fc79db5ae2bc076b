// Products with the numbers that quantised weights stand for, forward and backward: what training
// on a quantised weight [n, k] computes.
//
//   forward          out[t][n] = bias[n] + Σ_k left[t][k] · W[n][k]
//   input gradient   out[t][k] =           Σ_n left[t][n] · W[n][k]
//
// W is scale times integer, rounded to the engine's type (quant_unpack.h); nothing else is rounded
// that a product with a weight of that type would not round. So the bits are those of gemm() with
// panels packed from W, and the second is the derivative of the first.
//
// Blocks are turned back strip by strip: some lanes of the result along their whole depth, in the
// engine's panels, which gemm() then multiplies by all rows. A strip is as large as pays for
// reading the left again, and no larger than the weight. Threads: the calling thread and the
// device's team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/quant_format.h"

namespace jige::cpu {

enum class StripUse { kForward, kInputGradient };

struct StripProduct {
  StripUse use = StripUse::kForward;
  int64_t rows = 0;  // t
  int64_t n = 0;
  int64_t k = 0;
  GemmOperand left;
  QuantFormat format = QuantFormat::kQ8;
  const std::byte* blocks = nullptr;  // panels of quant_pack
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  int64_t out_stride = 0;
  const float* bias = nullptr;  // forward; null: none
  bool out_past_caches = false;
  void* strip = nullptr;  // strip_bytes, aligned to 64 bytes
};

// Computes a product and returns when it is done.
void strip_gemm(CpuDevice& device, const GemmEngine& engine, const StripProduct& product);

// Bytes of the strips of a weight [n, k], for either use.
int64_t strip_bytes(const GemmEngine& engine, int64_t n, int64_t k);

// Bytes of scratch that such a product takes of each of so many threads. Reads no operand.
int64_t strip_thread_scratch_bytes(const GemmEngine& engine, const StripProduct& product,
                                   int threads);

}  // namespace jige::cpu

// Linear layers: y = x Wᵀ + b, with separate input gradient and weight gradient.
//
// Shapes: T tokens, K inputs, N outputs; weight [N, K] as Hugging Face stores it, src [T, K], dst
// [T, N]. Compute types: f32, or bf16 (operands rounded to bf16, sums in f32).
//
// Summation order, which results are defined by:
//   f32   every element is one chain of fused multiply-adds in ascending order of the summed index,
//         starting from zero (forward, input gradient) or from the value already there (weight
//         gradient that is added to). So the bits depend neither on T, threads, blocking nor
//         instruction set.
//   bf16  the same chain on AVX2 and AVX-512; with AVX512_BF16 one whose indices are swapped in
//         pairs; with AMX, chains of 32 summed indices, added in ascending order. So the bits do
//         not depend on T, threads or blocking.
// On a GPU f32 has the same bits. In bf16 the order is another: forward of up to 16 tokens it
// depends on K alone, so the bits of a token do not depend on T. Of more tokens, and of all
// gradients, it is what cuBLASLt chooses for the sizes and strides: the bits may depend on T, the
// GPU and the library's version; a bias is rounded to bf16 there where dst is bf16.
// A weight that is not trained may be quantised instead, in blocks of 32 along K. There are two
// products with it:
//   whole numbers  forward only, the rows of src quantised as well: exact within a block and one
//                  chain over blocks, whatever the compute type, so the bits depend on neither T,
//                  threads, blocking nor instruction set (kernels/cpu/quant_format.h).
//   its numbers    forward and input gradient, where a strip of memory is given: what the blocks
//                  stand for is rounded to the compute type on the way, and the bits are those of
//                  an ordinary weight of such numbers (kernels/cpu/quant_strips.h).
// On a GPU its numbers are multiplied, and src is never quantised: by up to 16 tokens in bf16 the
// integers of a block, whose sum is f32, and then the scale; the order depends on K alone. More
// tokens, gradients and f32 need a strip, and the bits are those of an ordinary weight there, strip
// by strip (kernels/cuda/quant.h).
// Weights are packed once (load, or after an optimizer step) into the layout the kernels read.
// Threads: asynchronous on the stream; packed weights may be read by many streams at once.
#pragma once

#include <string_view>

#include "ops/norm.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

enum class PackUse {
  kForward,        // y = x Wᵀ: sums over K
  kInputGradient,  // dx = dy W: sums over N
};

// How a packed weight keeps its numbers: in the compute type, or quantised to 8.5 or 4.5 bits each:
// kQ8 as the blocks Q8_0 of GGUF, kQ4 as Q4_0 or IQ4_NL, whichever suits the weight's first row
// better (kernels/cpu/quant_levels.h), or with the numbers of MXFP4 (kernels/cpu/quant_format.h).
enum class WeightFormat { kCompute, kQ8, kQ4, kMxfp4 };
inline constexpr WeightFormat kWeightFormats[] = {WeightFormat::kCompute, WeightFormat::kQ8,
                                                  WeightFormat::kQ4, WeightFormat::kMxfp4};
inline constexpr int64_t kWeightBlock = 32;  // numbers of a block
// "none", "q8", "q4" or "mxfp4".
std::string_view weight_format_name(WeightFormat format);

// A weight [n, k] in the kernels' layout. Does not own `data`. Quantised ones are kForward, serve
// both uses, and know a compute type only for products of their numbers. Those for a GPU serve both
// uses, too.
struct PackedWeight {
  void* data = nullptr;
  DType compute = DType::kF32;
  PackUse use = PackUse::kForward;
  int64_t n = 0;
  int64_t k = 0;
  WeightFormat format = WeightFormat::kCompute;
  DeviceKind device = DeviceKind::kCpu;  // whose kernels read it
};

// A weight among the rows of a packed one: that of a part of a fused product.
struct PackPart {
  PackedWeight packed;
  int64_t row_begin = 0;
};

// Bytes a packed weight takes (padding included), for any instruction set of this machine.
int64_t packed_weight_bytes(DType compute, PackUse use, int64_t n, int64_t k,
                            WeightFormat format = WeightFormat::kCompute,
                            DeviceKind device = DeviceKind::kCpu);

// Packs rows [row_begin, row_begin + weight.rows()) of a weight; several parts make one fused
// weight (q, k and v, or gate and up). The part that ends at row n also writes the padding.
// Quantised, a number is its block's scale times an integer; NaN and infinities make a block NaN.
// Numbers that are whole multiples of a known scale are kept in q8 and q4 as they are, as far as
// the integers reach: `scales`, f16 [weight.rows(), blocks of a row], zero where none is known, or
// empty. A weight in the compute type passes them over. What is packed for a GPU may be packed by
// the host, in the host's memory.
// REQUIRES: weight f32, bf16 or f16 with k columns; scales finite; no row of a quantised weight is
// packed again before all rows are.
void pack_weight(Stream& stream, const PackedWeight& packed, const TensorView& weight,
                 int64_t row_begin = 0, const TensorView& scales = {});

struct LinearForward {
  TensorView dst;       // [T, n], f32 or bf16
  TensorView src;       // [T, k], f32 or bf16
  PackedWeight weight;  // kForward
  TensorView bias;      // [n] f32, or empty
  // A hint that changes no bit: dst is next read in the order of memory, and may go there past the
  // caches where it is large and bf16. (Read in pieces that lie apart, it would be missed there.)
  bool past_caches = false;
  // u8, linear_strip_bytes: of a quantised weight its numbers are multiplied. Empty: whole numbers.
  // On a GPU it is needed wherever a weight is quantised.
  TensorView strip;
  // What makes src, of rows that are f32, by RMSNorm and is still to be done; null: it is done. On
  // a GPU src may be left as it is.
  const NormForward* norm = nullptr;
  // [T, n] f32, not in dst's memory: added to dst, which is f32, once all else is. Or empty.
  TensorView addend;
};
void linear_forward(Stream& stream, const LinearForward& args);

// The product of a gate and of what it gates, [gate | up] of 2F columns, and gate(…) · up in one,
// with the bits of linear_forward() into bf16 and ops::swiglu_forward or geglu_forward. False, and
// nothing is done, where that would gain nothing: on a CPU, in f32, or of many tokens.
enum class GatedUnit { kSwiGlu, kGeGlu };
struct LinearGated {
  TensorView dst;         // [T, F], f32 or bf16
  LinearForward product;  // without dst and addend
  GatedUnit unit = GatedUnit::kSwiGlu;
};
bool linear_gated_forward(Stream& stream, const LinearGated& args);

struct LinearBackwardInput {
  TensorView grad_src;       // [T, k], f32 or bf16; overwritten
  TensorView grad_dst;       // [T, n], f32 or bf16
  PackedWeight weight;       // kInputGradient, or quantised
  bool past_caches = false;  // of grad_src, as for dst in forward
  TensorView strip;          // as in forward; needed by a quantised weight
};
void linear_backward_input(Stream& stream, const LinearBackwardInput& args);

// Bytes of the strip that products with the numbers of a quantised weight need.
int64_t linear_strip_bytes(DType compute, int64_t n, int64_t k,
                           DeviceKind device = DeviceKind::kCpu);

struct LinearBackwardWeight {
  TensorView grad_weight;  // [n, k] f32; added to, or stored
  TensorView grad_dst;     // [T, n], f32 or bf16
  TensorView src;          // [T, k], f32 or bf16
  DType compute = DType::kF32;
  // u8: memory in which src is packed once for all threads. Without it, or with less than the
  // product wants, every thread packs what it needs, which takes longer and gives the same bits.
  TensorView scratch;
  // False: grad_weight is overwritten; the bits are those of adding to zeros.
  bool accumulate = true;
};
// Bytes of scratch that the products of T tokens with a weight of [n, k] take of each of so many
// threads at most: forward, and in training the input gradient, be it with the numbers of a
// quantised weight; of one with a format forward in whole numbers alone.
int64_t linear_thread_scratch_bytes(DType compute, int64_t token_count, int64_t n, int64_t k,
                                    int threads, WeightFormat format = WeightFormat::kCompute);
// The same of the weight's gradient.
int64_t linear_backward_weight_thread_scratch_bytes(DType compute, int64_t token_count, int64_t n,
                                                    int64_t k, int threads);

// Bytes of scratch that make a weight gradient fast; 0 where none would.
int64_t linear_backward_weight_scratch_bytes(DType compute, int64_t token_count, int64_t k);
void linear_backward_weight(Stream& stream, const LinearBackwardWeight& args);

// grad_bias[n] += sum over t of grad_dst[t, n], in ascending t; on a GPU in an order that depends
// on T alone. grad_bias f32.
void bias_backward(Stream& stream, const TensorView& grad_bias, const TensorView& grad_dst);

}  // namespace jige::ops

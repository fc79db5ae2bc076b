// The ops of linear.h on a GPU, which call these once they checked their arguments.
//
// A packed weight there is 64 unused bytes and then its rows in the compute type without gaps, the
// same for either use; or quantised, as kernels/cuda/quant.h says.
// Threads: asynchronous on the stream, which is that of a GPU; pack_rows_for_gpu is pure.
#pragma once

#include "base/result.h"
#include "kernels/cuda/quant.h"
#include "ops/head_linear.h"
#include "ops/linear.h"

namespace jige::ops {

// Whether products in bf16 will find cuBLASLt: to be asked before a GPU is given a model. Fails
// with kNotFound or kUnsupported.
Status cuda_matmul_ready();

// The rows [n, k] of a packed weight on a GPU. REQUIRES: not quantised.
TensorView cuda_packed_rows(const PackedWeight& packed);

bool cuda_is_quantised(const PackedWeight& weight);
// Where the blocks of a packed weight are. REQUIRES: quantised.
cuda::QuantWeight cuda_quant_weight(const PackedWeight& weight);
// src in bf16 in the stream's scratch, with zeros behind each row up to a multiple of 8 columns.
TensorView cuda_padded_copy(Stream& stream, const TensorView& src);

// Packs rows of a weight into the host's memory, by the calling thread.
void pack_rows_for_gpu(const PackPart& part, const TensorView& rows);

// As linear_strip_bytes.
int64_t cuda_strip_bytes(DType compute, int64_t n, int64_t k);

void cuda_pack_weight(Stream& stream, const PackedWeight& packed, const TensorView& weight,
                      int64_t row_begin, const TensorView& scales);
void cuda_linear_forward(Stream& stream, const LinearForward& args);
bool cuda_linear_gated_forward(Stream& stream, const LinearGated& args);
void cuda_linear_backward_input(Stream& stream, const LinearBackwardInput& args);
void cuda_linear_backward_weight(Stream& stream, const LinearBackwardWeight& args);
// Packs the whole weight as [k, n], which `packed` is.
void cuda_pack_turned(Stream& stream, const PackedWeight& packed, const TensorView& weight);
// All heads at once; false, and nothing is done, where they are to be multiplied one by one.
// REQUIRES: weights for kForward.
bool cuda_head_linear(Stream& stream, const HeadLinear& args);
void cuda_bias_backward(Stream& stream, const TensorView& grad_bias, const TensorView& grad_dst);

}  // namespace jige::ops

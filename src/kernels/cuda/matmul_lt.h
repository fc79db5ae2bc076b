// Products in bf16 by cuBLASLt, which is loaded when it is first asked for.
//
// Sums are f32, in an order that the library chooses once per problem: that is sizes, strides,
// types, bias, accumulate, addend and batch, so two products that differ in none of them have it in
// common. matmul_lt.cc is for GPUs, emulation/matmul_lt.cc for the emulated one. Threads: any; a
// product is asynchronous on its stream.
#pragma once

#include "base/result.h"
#include "kernels/cuda/linear.h"

namespace jige::cuda {

// Whether the library is there. Fails with kNotFound, or kUnsupported where it lacks a function.
Status matmul_lt_ready();

// What data and the strides of rows are multiples of, in bytes.
inline constexpr int64_t kMatmulLtAlignment = 16;
// What a product may use meanwhile.
int64_t matmul_lt_workspace_bytes();

// REQUIRES: matmul_lt_ready(); the stream's GPU is that of the calling thread (CudaStream::handle);
// no size is 0; operands are bf16; they, out, addend and bias are aligned; bias has the type of
// out; workspace has matmul_lt_workspace_bytes, aligned to 256.
void multiply_lt(const LaunchStream& stream, const Product& product, void* workspace);

}  // namespace jige::cuda

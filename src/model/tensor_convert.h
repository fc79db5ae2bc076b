// Host-side conversions between stored tensors and device memory: types, the transposed matrices of
// GPT-2 folders, rows and columns in other orders.
//
// Threads: free functions; they return when the memory they were given may be released.
#pragma once

#include <span>

#include "base/result.h"
#include "model/block.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::model {

// `count` elements of f32, bf16 or f16 host memory as f32.
void widen(std::span<float> dst, const void* src, DType src_dtype);
// f32 as f32, bf16 or f16, rounded to nearest even.
void narrow(void* dst, DType dst_dtype, std::span<const float> src);

// dst (device, f32 or the type of src) = src (host), both contiguous and of one count.
// Fails with kUnsupported on other pairs of types.
Status copy_converted(Stream& stream, const TensorView& dst, const TensorView& src);

// dst [n, m] = srcᵀ, src [m, n]; host memory of one type, contiguous.
void transpose_into(const TensorView& dst, const TensorView& src);

// dst = src with the rows of files in the order of models, or the other way; host memory of one
// type and shape, contiguous.
void rows_from_files(const TensorView& dst, const TensorView& src, const StoredRows& order);
void rows_for_files(const TensorView& dst, const TensorView& src, const StoredRows& order);
// The first of them for the columns of a matrix.
void columns_from_files(const TensorView& dst, const TensorView& src, const StoredRows& order);

}  // namespace jige::model

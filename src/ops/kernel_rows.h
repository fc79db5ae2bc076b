// What the CPU ops share: views as rows of kernels, the checks of their arguments, and loops over
// rows or columns on the team of a stream's device.
//
// Checks are programmer errors: an op is never handed shapes that come straight from a user.
// Threads: pure functions, but for the loops, which run on the calling thread and the team.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_device.h"
#include "tensor/view.h"

namespace jige::ops {

// REQUIRES: f32, bf16 or f16.
inline cpu::ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return cpu::ElementType::kF32;
    case DType::kBF16:
      return cpu::ElementType::kBf16;
    case DType::kF16:
      return cpu::ElementType::kF16;
    default:
      break;
  }
  JIGE_CHECK(false, "{} has no float kernel", dtype_info(dtype).name);
  return cpu::ElementType::kF32;
}

inline cpu::Rows rows_of(const TensorView& view) {
  return {view.data, element_type(view.dtype), view.row_stride};
}

inline cpu::ConstRows const_rows_of(const TensorView& view) {
  return {view.data, element_type(view.dtype), view.row_stride};
}

// The stream as kernels of GPUs take it. REQUIRES: on_cuda(stream).
inline cuda::LaunchStream launch_stream(Stream& stream) {
  CudaStream& cuda_stream = as_cuda(stream);
  return {.handle = cuda_stream.handle(),
          .multiprocessors = cuda_stream.multiprocessor_count(),
          .starts_early = cuda_stream.starts_early(),
          .record = cuda_stream.launch_record()};
}

// Ends the process unless `view` has these rows and columns; `name` is the argument's.
inline void check_shape(const char* name, const TensorView& view, int64_t rows, int64_t columns) {
  JIGE_CHECK(view.rows() == rows && view.columns() == columns, "{} is {}, not [{}, {}]", name,
             view.shape.to_string(), rows, columns);
  JIGE_CHECK(view.data || view.count() == 0, "{} {} has no memory", name, view.shape.to_string());
  JIGE_CHECK(rows <= 1 || view.row_stride >= columns, "rows of {} overlap: {} columns, stride {}",
             name, columns, view.row_stride);
}

// As check_shape, and the elements are of type `dtype`.
inline void check_typed(const char* name, const TensorView& view, DType dtype, int64_t rows,
                        int64_t columns) {
  check_shape(name, view, rows, columns);
  JIGE_CHECK(view.dtype == dtype, "{} is {}, not {}", name, dtype_info(view.dtype).name,
             dtype_info(dtype).name);
}

// As check_shape, and the elements are f32 or bf16.
inline void check_float(const char* name, const TensorView& view, int64_t rows, int64_t columns) {
  check_shape(name, view, rows, columns);
  JIGE_CHECK(view.dtype == DType::kF32 || view.dtype == DType::kBF16, "{} is {}, not f32 or bf16",
             name, dtype_info(view.dtype).name);
}

// A vector of `count` elements without gaps, whatever its shape.
inline void check_vector(const char* name, const TensorView& view, DType dtype, int64_t count) {
  JIGE_CHECK(view.dtype == dtype && view.count() == count && view.contiguous(),
             "{} is {} {}, not {} contiguous {}", name, dtype_info(view.dtype).name,
             view.shape.to_string(), count, dtype_info(dtype).name);
  JIGE_CHECK(view.data || count == 0, "{} has no memory", name);
}

// Elements a thread should have for a loop to be worth sharing.
inline constexpr int64_t kElementsPerRange = 16384;

// Rows of `columns` elements that a thread should have for a loop to be worth sharing.
inline int64_t row_grain(int64_t columns) {
  return std::max<int64_t>(kElementsPerRange / std::max<int64_t>(columns, 1), 1);
}

// The length of ranges over [0, count) that are all alike, so that the threads' shares are too;
// `least` is worth sharing, and of several lengths a multiple of `step` is taken.
inline int64_t even_grain(CpuDevice& device, int64_t count, int64_t least, int64_t step = 1) {
  constexpr int64_t kRangesPerThread = 16;
  const int64_t threads = device.team().size();
  int64_t ranges = std::min((count + least - 1) / least, kRangesPerThread * threads);
  if (ranges > threads) ranges = ranges / threads * threads;
  const int64_t even = (count + std::max<int64_t>(ranges, 1) - 1) / std::max<int64_t>(ranges, 1);
  return (even + step - 1) / step * step;
}

// Calls body(row_begin, row_end) on the team for ranges that cover [0, row_count).
template <typename Body>
void for_row_ranges(CpuDevice& device, int64_t row_count, int64_t columns, Body&& body) {
  device.team().parallel_for(row_count, even_grain(device, row_count, row_grain(columns)),
                             [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

// Calls body(column_begin, column_end) on the team for ranges that cover [0, column_count), each of
// whole cache lines of f32 and worth sharing when every column has `row_count` elements. Two ranges
// a thread: a processor foresees long pieces of rows, and waits for short ones.
template <typename Body>
void for_column_ranges(CpuDevice& device, int64_t column_count, int64_t row_count, Body&& body) {
  constexpr int64_t kLine = 16;
  constexpr int64_t kRangesPerThread = 2;
  const int64_t wanted = std::max(kElementsPerRange / std::max<int64_t>(row_count, 1),
                                  column_count / (kRangesPerThread * device.team().size()));
  const int64_t grain = std::max<int64_t>((wanted + kLine - 1) / kLine, 1) * kLine;
  device.team().parallel_for(column_count, grain,
                             [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

}  // namespace jige::ops

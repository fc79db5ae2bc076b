#include "ops/clamp.h"

#include <algorithm>

#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// Both types: whatever lies between the bounds stays, bit for bit.
template <typename T>
void hold_row(T* row, int64_t columns, T low, T high) {
  const float least = to_float(low);
  const float most = to_float(high);
  for (int64_t i = 0; i < columns; ++i) {
    const float value = to_float(row[i]);
    row[i] = value < least ? low : value > most ? high : row[i];
  }
}

void hold_row(float* row, int64_t columns, float low, float high) {
  for (int64_t i = 0; i < columns; ++i) row[i] = std::clamp(row[i], low, high);
}

}  // namespace

void clamp(Stream& stream, const TensorView& rows, const TensorView& low, const TensorView& high) {
  check_float("rows", rows, rows.rows(), rows.columns());
  check_typed("low", low, DType::kF32, 1, 1);
  check_typed("high", high, DType::kF32, 1, 1);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const float least = *low.as<float>();
    const float most = *high.as<float>();
    for_row_ranges(device, rows.rows(), rows.columns(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * rows.row_stride;
        if (rows.dtype == DType::kF32) {
          hold_row(rows.as<float>() + at, rows.columns(), least, most);
        } else {
          hold_row(rows.as<BFloat16>() + at, rows.columns(), to_bfloat16(least), to_bfloat16(most));
        }
      }
    });
  });
}

}  // namespace jige::ops

// What the tests of matrix products share: matrices of any type, right operands packed in parts,
// and engines that cut small products into several tasks.
// Threads: values.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/rough_normal.h"
#include "kernels/cpu/gemm.h"

namespace jige::cpu::gemm_test {

// The same engine with shorter stretches of depth and smaller tasks, so that small products spill
// their sums and have several tasks.
inline GemmEngine short_stretches(const GemmEngine& engine) {
  GemmEngine copy = engine;
  copy.depth_block = std::min<int64_t>(engine.depth_block, 32);
  copy.task_rows = std::min<int64_t>(engine.task_rows, 2 * engine.rows);
  copy.panel_depth = copy.depth_block;
  copy.panel_rows = copy.task_rows;
  copy.left_bytes = 64 * 2 * copy.task_rows;
  return copy;
}

// A matrix of any type with spare room at the end of each row.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, Rng& rng)
      : dtype_(dtype), stride_(columns + 3) {
    bytes_.resize(static_cast<size_t>(dtype_bytes(dtype, rows * stride_)));
    for (int64_t i = 0; i < rows * stride_; ++i) {
      set(i, rough_normal(rng));
    }
  }
  void set(int64_t i, float value) {
    if (dtype_ == DType::kF32) std::memcpy(&bytes_[static_cast<size_t>(4 * i)], &value, 4);
    if (dtype_ == DType::kBF16) {
      const BFloat16 half = to_bfloat16(value);
      std::memcpy(&bytes_[static_cast<size_t>(2 * i)], &half, 2);
    }
    if (dtype_ == DType::kF16) {
      const Float16 half = to_float16(value);
      std::memcpy(&bytes_[static_cast<size_t>(2 * i)], &half, 2);
    }
  }
  float at(int64_t row, int64_t column) const {
    const size_t i = static_cast<size_t>(row * stride_ + column);
    float value;
    BFloat16 bfloat;
    Float16 half;
    switch (dtype_) {
      case DType::kF32:
        std::memcpy(&value, &bytes_[4 * i], 4);
        return value;
      case DType::kBF16:
        std::memcpy(&bfloat, &bytes_[2 * i], 2);
        return to_float(bfloat);
      default:
        std::memcpy(&half, &bytes_[2 * i], 2);
        return to_float(half);
    }
  }
  GemmOperand operand(bool depth_across, bool round) const {
    return {bytes_.data(), dtype_, stride_, depth_across, round};
  }
  void* data() { return bytes_.data(); }
  int64_t stride() const { return stride_; }
  DType dtype() const { return dtype_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  DType dtype_;
  int64_t stride_;
  std::vector<std::byte> bytes_;
};

struct Case {
  int64_t rows, columns, depth;
  DType left = DType::kF32;
  DType right = DType::kF32;
  DType out = DType::kF32;
  bool left_across = false;
  bool right_across = false;
  bool packed = true;
  bool scratch = false;  // where not packed: whether there is memory to pack it once
  bool accumulate = false;
  bool bias = false;
};

// Packs a right operand in `parts` parts cut along the memory rows.
inline std::vector<std::byte> pack_right(CpuDevice& device, const GemmEngine& engine,
                                         const Matrix& right, const Case& c, bool round,
                                         int64_t parts) {
  std::vector<std::byte> panels(
      static_cast<size_t>(gemm_panels_bytes(engine, c.columns, c.depth)) + 64,
      static_cast<std::byte>(0xff));
  const int64_t memory_rows = c.right_across ? c.depth : c.columns;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = memory_rows * part / parts;
    const int64_t count = memory_rows * (part + 1) / parts - begin;
    GemmOperand operand = right.operand(c.right_across, round);
    operand.data = static_cast<const std::byte*>(operand.data) +
                   dtype_bytes(operand.dtype, begin * operand.row_stride);
    const GemmPackRange range = c.right_across ? GemmPackRange{0, c.columns, begin, count}
                                               : GemmPackRange{begin, count, 0, c.depth};
    gemm_pack_panels(device, engine, {panels.data(), c.columns, c.depth}, operand, range);
  }
  return panels;
}

}  // namespace jige::cpu::gemm_test

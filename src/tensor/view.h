// Shape and TensorView: a typed window on memory that somebody else owns.
//
// Layout: row-major. Rows (the first dimension) are `row_stride` elements apart, everything inside
// a row is contiguous; so a column range of a matrix is a view too. A view never owns and never
// checks lifetime: the Tensor or the map behind it must outlive it. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"
#include "tensor/dtype.h"

namespace jige {

inline constexpr int kRankMax = 5;

class Shape {
 public:
  Shape() = default;
  // REQUIRES: at most kRankMax dimensions, none negative.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  // Product of all dimensions; 1 for rank 0.
  int64_t count() const;
  // Product of all dimensions but the first; 1 for rank 0 and 1.
  int64_t row_count_elements() const;
  bool operator==(const Shape& other) const;
  // "[4, 128]".
  std::string to_string() const;

 private:
  std::array<int64_t, kRankMax> dims_{};
  int rank_ = 0;
};

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t row_stride = 0;  // elements between the starts of consecutive rows

  // A contiguous view.
  static TensorView of(void* data, DType dtype, Shape shape);

  int64_t rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
  int64_t columns() const { return shape.row_count_elements(); }
  int64_t count() const { return shape.count(); }
  bool contiguous() const { return rows() <= 1 || row_stride == columns(); }
  explicit operator bool() const { return data != nullptr; }

  // Typed pointer to the first element. REQUIRES: T has the size of the dtype.
  template <typename T>
  T* as() const {
    JIGE_DCHECK(static_cast<int32_t>(sizeof(T)) == dtype_info(dtype).block_bytes,
                "view of {} read as {} bytes", dtype_info(dtype).name, sizeof(T));
    return static_cast<T*>(data);
  }

  // Rows [begin, end).
  TensorView row_range(int64_t begin, int64_t end) const;
  // Columns [begin, end) of a matrix. REQUIRES: rank 2.
  TensorView column_range(int64_t begin, int64_t end) const;
  // The same memory under another shape. REQUIRES: contiguous and the same count.
  TensorView reshaped(Shape new_shape) const;
};

}  // namespace jige

// Placement: cuts a buffer into tensors at 64-byte boundaries. Without a buffer it only measures,
// so the function that places the parts of a buffer also gives its size, and the two cannot
// disagree.
//
//   Views place(Placement& at, int64_t T) { return {.x = at.take(DType::kF32, {T, D}), …}; }
//   size:  Placement measure;          place(measure, T);  measure.peak_bytes()
//   views: Placement in(buffer);       place(in, T)
//
// With a cut, views of rows are of some of them alone, where all rows have their place: so W runs
// over a part of a batch (BlockContext::weight_rows). Tensors of bytes stay whole.
//
// Threads: values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "tensor/view.h"

namespace jige::model {

// Of `all` rows those of [begin, end).
struct RowCut {
  int64_t all = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

class Placement {
 public:
  Placement() = default;
  explicit Placement(const TensorView& buffer)
      : data_(static_cast<std::byte*>(buffer.data)),
        capacity_bytes_(buffer.count()),
        bound_(true) {}
  Placement(const TensorView& buffer, const RowCut& cut) : Placement(buffer) { cut_ = cut; }

  // The next tensor; its data is null when only measuring. REQUIRES: the buffer holds it.
  TensorView take(DType dtype, Shape shape) {
    const int64_t begin = offset_;
    offset_ += (dtype_bytes(dtype, shape.count()) + 63) / 64 * 64;
    peak_ = std::max(peak_, offset_);
    if (!bound_) return TensorView::of(nullptr, dtype, shape);
    JIGE_CHECK(offset_ <= capacity_bytes_, "{} {} ends at byte {} of a buffer of {}",
               dtype_info(dtype).name, shape.to_string(), offset_, capacity_bytes_);
    const TensorView all = TensorView::of(data_ + begin, dtype, shape);
    const bool is_cut = cut_.all > 0 && dtype != DType::kU8 && shape[0] == cut_.all;
    return is_cut ? all.row_range(cut_.begin, cut_.end) : all;
  }
  // The offset of the next `bytes` bytes.
  int64_t take_bytes(int64_t bytes) {
    const int64_t begin = offset_;
    take(DType::kU8, Shape{bytes});
    return begin;
  }

  // Parts that live at different times share bytes: go back to an earlier offset.
  int64_t offset() const { return offset_; }
  void rewind(int64_t offset) { offset_ = offset; }
  // Bytes of a buffer that holds everything taken so far.
  int64_t peak_bytes() const { return peak_; }

 private:
  std::byte* data_ = nullptr;
  int64_t capacity_bytes_ = 0;
  bool bound_ = false;
  int64_t offset_ = 0;
  int64_t peak_ = 0;
  RowCut cut_;
};

// The memory of a block of rows as a contiguous matrix of fewer columns: one block serves tensors
// of several widths, one after the other.
inline TensorView first_columns(const TensorView& rows, int64_t columns) {
  JIGE_DCHECK(columns <= rows.columns(), "{} of {} columns", columns, rows.columns());
  return TensorView::of(rows.data, rows.dtype, Shape{rows.rows(), columns});
}

}  // namespace jige::model

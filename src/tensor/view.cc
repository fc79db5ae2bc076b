#include "tensor/view.h"

#include <algorithm>

namespace jige {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  JIGE_CHECK(dims.size() <= static_cast<size_t>(kRankMax), "rank {} is over {}", dims.size(),
             kRankMax);
  for (size_t i = 0; i < dims.size(); ++i) {
    JIGE_CHECK(dims[i] >= 0, "dimension {} is {}", i, dims[i]);
    dims_[i] = dims[i];
  }
}

int64_t Shape::count() const {
  int64_t product = 1;
  for (int axis = 0; axis < rank_; ++axis) product *= (*this)[axis];
  return product;
}

int64_t Shape::row_count_elements() const {
  int64_t product = 1;
  for (int axis = 1; axis < rank_; ++axis) product *= (*this)[axis];
  return product;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && dims_ == other.dims_;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) {
    text += (axis ? ", " : "") + std::to_string((*this)[axis]);
  }
  return text + "]";
}

TensorView TensorView::of(void* data, DType dtype, Shape shape) {
  return {data, dtype, shape, shape.row_count_elements()};
}

TensorView TensorView::row_range(int64_t begin, int64_t end) const {
  JIGE_CHECK(0 <= begin && begin <= end && end <= rows(), "rows [{}, {}) of {}", begin, end,
             rows());
  std::array<int64_t, kRankMax> dims{};
  for (int axis = 0; axis < shape.rank(); ++axis) dims[static_cast<size_t>(axis)] = shape[axis];
  dims[0] = end - begin;
  TensorView part = *this;
  part.data = static_cast<std::byte*>(data) + dtype_bytes(dtype, begin * row_stride);
  part.shape =
      Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(std::max(shape.rank(), 1))));
  return part;
}

TensorView TensorView::column_range(int64_t begin, int64_t end) const {
  JIGE_CHECK(shape.rank() == 2 && 0 <= begin && begin <= end && end <= shape[1],
             "columns [{}, {}) of {}", begin, end, shape.to_string());
  TensorView part = *this;
  part.data = static_cast<std::byte*>(data) + dtype_bytes(dtype, begin);
  part.shape = Shape{shape[0], end - begin};
  return part;
}

TensorView TensorView::reshaped(Shape new_shape) const {
  JIGE_CHECK(contiguous() && new_shape.count() == count(), "{} cannot become {}", shape.to_string(),
             new_shape.to_string());
  return TensorView::of(data, dtype, new_shape);
}

}  // namespace jige

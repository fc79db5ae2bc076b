#include "formats/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace jige::formats {
namespace {

// Rows and columns of a matrix that are copied at a time: a transposed one is read by column, and
// so many parts of columns stay in the cache nearest to the processor.
constexpr int64_t kTile = 32;

struct Matrix {
  int64_t rows, columns;
  int64_t row_stride, column_stride;  // in elements
};

template <size_t kBytes>
void copy_matrix(const std::byte* data, const Matrix& matrix, std::byte* out) {
  for (int64_t top = 0; top < matrix.rows; top += kTile) {
    const int64_t bottom = std::min(top + kTile, matrix.rows);
    for (int64_t left = 0; left < matrix.columns; left += kTile) {
      const int64_t right = std::min(left + kTile, matrix.columns);
      for (int64_t row = top; row < bottom; ++row) {
        for (int64_t column = left; column < right; ++column) {
          const int64_t from = row * matrix.row_stride + column * matrix.column_stride;
          std::memcpy(out + (row * matrix.columns + column) * kBytes, data + from * kBytes, kBytes);
        }
      }
    }
  }
}

void copy_matrix(const std::byte* data, const Matrix& matrix, size_t element_bytes,
                 std::byte* out) {
  switch (element_bytes) {
    case 1:
      return copy_matrix<1>(data, matrix, out);
    case 2:
      return copy_matrix<2>(data, matrix, out);
    case 4:
      return copy_matrix<4>(data, matrix, out);
    case 8:
      return copy_matrix<8>(data, matrix, out);
    default:
      JIGE_CHECK(false, "elements of {} bytes", element_bytes);
  }
}

}  // namespace

void copy_strided(const std::byte* data, std::span<const int64_t> dims,
                  std::span<const int64_t> strides, size_t element_bytes, std::byte* out) {
  JIGE_CHECK(dims.size() == strides.size(), "{} strides of {} dimensions", strides.size(),
             dims.size());
  if (dims.size() <= 2) {
    const size_t last = dims.size();
    copy_matrix(data,
                {.rows = last == 2 ? dims[0] : 1,
                 .columns = last > 0 ? dims[last - 1] : 1,
                 .row_stride = last == 2 ? strides[0] : 0,
                 .column_stride = last > 0 ? strides[last - 1] : 0},
                element_bytes, out);
    return;
  }
  size_t part_bytes = element_bytes;
  for (const int64_t dim : dims.subspan(1)) part_bytes *= static_cast<size_t>(dim);
  for (int64_t i = 0; i < dims[0]; ++i) {
    copy_strided(data + static_cast<size_t>(i * strides[0]) * element_bytes, dims.subspan(1),
                 strides.subspan(1), element_bytes, out + static_cast<size_t>(i) * part_bytes);
  }
}

}  // namespace jige::formats

#include "model/tensor_convert.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace jige::model {
namespace {

constexpr int64_t kConvertElements = int64_t{1} << 16;
constexpr int64_t kTile = 32;

template <typename T>
void transpose(T* dst, const T* src, int64_t src_rows, int64_t src_columns) {
  for (int64_t row0 = 0; row0 < src_rows; row0 += kTile) {
    const int64_t row_end = std::min(row0 + kTile, src_rows);
    for (int64_t column0 = 0; column0 < src_columns; column0 += kTile) {
      const int64_t column_end = std::min(column0 + kTile, src_columns);
      for (int64_t column = column0; column < column_end; ++column) {
        for (int64_t row = row0; row < row_end; ++row) {
          dst[column * src_rows + row] = src[row * src_columns + column];
        }
      }
    }
  }
}

// Hands the rows of two tensors over with the bytes of one.
template <typename Copy>
void copy_rows(const TensorView& dst, const TensorView& src, const Copy& copy) {
  JIGE_CHECK(
      dst.dtype == src.dtype && dst.contiguous() && src.contiguous() && dst.shape == src.shape,
      "rows of {} into {}", src.shape.to_string(), dst.shape.to_string());
  const int64_t row_bytes = dtype_bytes(src.dtype, src.count()) / src.shape[0];
  copy(static_cast<std::byte*>(dst.data), static_cast<const std::byte*>(src.data), row_bytes);
}

}  // namespace

void widen(std::span<float> dst, const void* src, DType src_dtype) {
  if (src_dtype == DType::kF32) {
    std::memcpy(dst.data(), src, dst.size_bytes());
  } else if (src_dtype == DType::kBF16) {
    const auto* from = static_cast<const BFloat16*>(src);
    for (size_t i = 0; i < dst.size(); ++i) dst[i] = to_float(from[i]);
  } else {
    JIGE_CHECK(src_dtype == DType::kF16, "widening {}", dtype_info(src_dtype).name);
    const auto* from = static_cast<const Float16*>(src);
    for (size_t i = 0; i < dst.size(); ++i) dst[i] = to_float(from[i]);
  }
}

void narrow(void* dst, DType dst_dtype, std::span<const float> src) {
  if (dst_dtype == DType::kF32) {
    std::memcpy(dst, src.data(), src.size_bytes());
  } else if (dst_dtype == DType::kBF16) {
    auto* to = static_cast<BFloat16*>(dst);
    for (size_t i = 0; i < src.size(); ++i) to[i] = to_bfloat16(src[i]);
  } else {
    JIGE_CHECK(dst_dtype == DType::kF16, "narrowing to {}", dtype_info(dst_dtype).name);
    auto* to = static_cast<Float16*>(dst);
    for (size_t i = 0; i < src.size(); ++i) to[i] = to_float16(src[i]);
  }
}

Status copy_converted(Stream& stream, const TensorView& dst, const TensorView& src) {
  JIGE_CHECK(dst.contiguous() && src.contiguous() && dst.count() == src.count(), "{} into {}",
             src.shape.to_string(), dst.shape.to_string());
  if (dst.dtype == src.dtype) {
    stream.copy(dst.data, src.data, dtype_bytes(src.dtype, src.count()), CopyKind::kHostToDevice);
    stream.synchronize();
    return {};
  }
  const bool widens = src.dtype == DType::kBF16 || src.dtype == DType::kF16;
  if (dst.dtype != DType::kF32 || !widens) {
    return fail(Code::kUnsupported, "a tensor stored as {} cannot be kept as {}",
                dtype_info(src.dtype).name, dtype_info(dst.dtype).name);
  }
  const int64_t count = src.count();
  std::vector<float> chunk(static_cast<size_t>(std::min(kConvertElements, count)));
  const auto* from = static_cast<const std::byte*>(src.data);
  for (int64_t begin = 0; begin < count; begin += kConvertElements) {
    const int64_t size = std::min(kConvertElements, count - begin);
    widen(std::span(chunk).first(static_cast<size_t>(size)), from + dtype_bytes(src.dtype, begin),
          src.dtype);
    stream.copy(dst.as<float>() + begin, chunk.data(), size * 4, CopyKind::kHostToDevice);
    stream.synchronize();
  }
  return {};
}

void transpose_into(const TensorView& dst, const TensorView& src) {
  JIGE_CHECK(dst.dtype == src.dtype && dst.contiguous() && src.contiguous() &&
                 dst.shape[0] == src.shape[1] && dst.shape[1] == src.shape[0],
             "{} transposed into {}", src.shape.to_string(), dst.shape.to_string());
  if (dtype_info(src.dtype).block_bytes == 4) {
    transpose(static_cast<uint32_t*>(dst.data), static_cast<const uint32_t*>(src.data),
              src.shape[0], src.shape[1]);
  } else {
    transpose(static_cast<uint16_t*>(dst.data), static_cast<const uint16_t*>(src.data),
              src.shape[0], src.shape[1]);
  }
}

void rows_from_files(const TensorView& dst, const TensorView& src, const StoredRows& order) {
  copy_rows(dst, src, [&](std::byte* here, const std::byte* there, int64_t bytes) {
    for (int64_t row = 0; row < dst.shape[0]; ++row) {
      std::memcpy(here + row * bytes, there + order.at(row) * bytes, static_cast<size_t>(bytes));
    }
  });
}

void rows_for_files(const TensorView& dst, const TensorView& src, const StoredRows& order) {
  copy_rows(dst, src, [&](std::byte* there, const std::byte* here, int64_t bytes) {
    for (int64_t row = 0; row < dst.shape[0]; ++row) {
      std::memcpy(there + order.at(row) * bytes, here + row * bytes, static_cast<size_t>(bytes));
    }
  });
}

void columns_from_files(const TensorView& dst, const TensorView& src, const StoredRows& order) {
  const int64_t columns = src.shape[1];
  std::vector<int64_t> there(static_cast<size_t>(columns));
  for (int64_t column = 0; column < columns; ++column) {
    there[static_cast<size_t>(column)] = order.at(column);
  }
  const auto take = [&]<typename T>(T* here, const T* from) {
    for (int64_t row = 0; row < src.shape[0]; ++row) {
      for (const int64_t column : there) *here++ = from[row * columns + column];
    }
  };
  copy_rows(dst, src, [&](std::byte* here, const std::byte* from, int64_t) {
    if (dtype_info(src.dtype).block_bytes == 4) {
      take(reinterpret_cast<uint32_t*>(here), reinterpret_cast<const uint32_t*>(from));
    } else {
      take(reinterpret_cast<uint16_t*>(here), reinterpret_cast<const uint16_t*>(from));
    }
  });
}

}  // namespace jige::model

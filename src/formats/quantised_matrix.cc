#include "formats/quantised_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace jige::formats {
namespace {

// Where the code of column i of eight is in a word of AWQ.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

template <typename T>
T stored_at(const std::byte* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float scale_at(const QuantisedTensor& tensor, int64_t index) {
  if (tensor.dtype == "F32") return stored_at<float>(tensor.bytes, index);
  if (tensor.dtype == "BF16") return to_float(stored_at<BFloat16>(tensor.bytes, index));
  return to_float(stored_at<Float16>(tensor.bytes, index));
}

// Code `line` of a column packed along the lines.
int packed_in_lines(const QuantisedTensor& tensor, int bits, int64_t line, int64_t column) {
  const int per_word = 32 / bits;
  const auto word = stored_at<uint32_t>(tensor.bytes, line / per_word * tensor.columns + column);
  return static_cast<int>(word >> (line % per_word * bits) & ((1u << bits) - 1));
}

// Code `column` of a line packed along its columns.
int packed_in_columns(const QuantisedTensor& tensor, int bits, int64_t line, int64_t column,
                      bool interleaved) {
  const int per_word = 32 / bits;
  const auto word = stored_at<uint32_t>(tensor.bytes, line * tensor.columns + column / per_word);
  const int64_t place =
      interleaved ? kAwqPlaces[static_cast<size_t>(column % per_word)] : column % per_word;
  return static_cast<int>(word >> (place * bits) & ((1u << bits) - 1));
}

const std::array<float, 256>& float8_values() {
  static const auto values = [] {
    std::array<float, 256> made{};
    for (size_t i = 0; i < made.size(); ++i) made[i] = float8_value(static_cast<uint8_t>(i));
    return made;
  }();
  return values;
}

}  // namespace

float float8_value(uint8_t byte) {
  const int exponent = byte >> 3 & 15;
  const int mantissa = byte & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((byte & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
  return byte < 0x80 ? magnitude : -magnitude;
}

int64_t QuantisedMatrix::group_of(int64_t column) const {
  if (groups_.bytes) return stored_at<int32_t>(groups_.bytes, column);
  return weights_.block_columns == 0 ? 0 : column / weights_.block_columns;
}

float QuantisedMatrix::scale(int64_t row, int64_t group) const {
  const bool by_group =
      weights_.layout == QuantisedLayout::kGptq || weights_.layout == QuantisedLayout::kAwq;
  if (by_group) return scale_at(scales_, group * scales_.columns + row);
  const int64_t line = weights_.block_rows == 0 ? 0 : row / weights_.block_rows;
  return scale_at(scales_, line * scales_.columns + group);
}

float QuantisedMatrix::zero(int64_t row, int64_t group) const {
  if (!zeros_.bytes) return 0;
  const int bits = weights_.bits;
  switch (weights_.layout) {
    case QuantisedLayout::kFloat8:
      return 0;
    case QuantisedLayout::kInt8: {
      const int64_t line = weights_.block_rows == 0 ? 0 : row / weights_.block_rows;
      return stored_at<int8_t>(zeros_.bytes, line * zeros_.columns + group);
    }
    case QuantisedLayout::kPacked:
      return static_cast<float>(packed_in_lines(zeros_, bits, row, group) - (1 << (bits - 1)));
    case QuantisedLayout::kGptq: {
      const int code = packed_in_columns(zeros_, bits, group, row, false);
      const int mask = (1 << bits) - 1;
      return static_cast<float>(weights_.zeros_less_one ? (code + 1) & mask : code);
    }
    case QuantisedLayout::kAwq:
      return static_cast<float>(packed_in_columns(zeros_, bits, group, row, true));
  }
  return 0;
}

void QuantisedMatrix::read_codes(std::span<float> dst, int64_t begin, int64_t count) const {
  const int bits = weights_.bits;
  const int64_t total = count * columns_;
  float* to = dst.data();
  switch (weights_.layout) {
    case QuantisedLayout::kFloat8: {
      const std::array<float, 256>& values = float8_values();
      const std::byte* from = codes_.bytes + begin * columns_;
      for (int64_t i = 0; i < total; ++i) to[i] = values[std::to_integer<size_t>(from[i])];
      return;
    }
    case QuantisedLayout::kInt8: {
      for (int64_t i = 0; i < total; ++i) {
        to[i] = stored_at<int8_t>(codes_.bytes, begin * columns_ + i);
      }
      return;
    }
    case QuantisedLayout::kPacked: {
      for (int64_t i = 0; i < total; ++i) {
        const int code = packed_in_columns(codes_, bits, begin + i / columns_, i % columns_, false);
        to[i] = static_cast<float>(code - (1 << (bits - 1)));
      }
      return;
    }
    case QuantisedLayout::kGptq:
    case QuantisedLayout::kAwq: {
      // What is stored side by side belongs to different rows: a column of the strip at a time.
      const bool gptq = weights_.layout == QuantisedLayout::kGptq;
      for (int64_t k = 0; k < columns_; ++k) {
        for (int64_t i = 0; i < count; ++i) {
          const int code = gptq ? packed_in_lines(codes_, bits, k, begin + i)
                                : packed_in_columns(codes_, bits, k, begin + i, true);
          to[i * columns_ + k] = static_cast<float>(code);
        }
      }
      return;
    }
  }
}

void QuantisedMatrix::decode(std::span<float> dst, int64_t begin, int64_t count) const {
  JIGE_CHECK(
      begin >= 0 && count >= 0 && begin + count <= rows_ && std::ssize(dst) == count * columns_,
      "rows {} to {} of {} into {} numbers", begin, begin + count, rows_, dst.size());
  read_codes(dst, begin, count);
  std::vector<float> scales(static_cast<size_t>(group_count_));
  std::vector<float> zeros(static_cast<size_t>(group_count_));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t group = 0; group < group_count_; ++group) {
      scales[static_cast<size_t>(group)] = scale(begin + i, group);
      zeros[static_cast<size_t>(group)] = zero(begin + i, group);
    }
    const std::span<float> row =
        dst.subspan(static_cast<size_t>(i * columns_), static_cast<size_t>(columns_));
    const int64_t width = groups_.bytes                 ? 1
                          : weights_.block_columns == 0 ? columns_
                                                        : weights_.block_columns;
    for (int64_t k = 0; k < columns_; k += width) {
      const auto group = static_cast<size_t>(group_of(k));
      const int64_t end = std::min(k + width, columns_);
      for (int64_t j = k; j < end; ++j) {
        float& number = row[static_cast<size_t>(j)];
        number = (number - zeros[group]) * scales[group];
      }
    }
  }
}

}  // namespace jige::formats

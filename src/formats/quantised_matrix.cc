#include "formats/quantised_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "formats/quantised_codes.h"
#include "tensor/dtype.h"

namespace jige::formats {
namespace {

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
  const int64_t place = interleaved ? kAwqPlaces[column % per_word] : column % per_word;
  return static_cast<int>(word >> (place * bits) & ((1u << bits) - 1));
}

// Each code once: (code - zero) * scale.
void apply_scale(float* codes, float zero, float scale, int64_t count) {
  constexpr int64_t kAtOnce = 16;
  int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    for (int64_t j = i; j < i + kAtOnce; ++j) codes[j] = (codes[j] - zero) * scale;
  }
  for (; i < count; ++i) codes[i] = (codes[i] - zero) * scale;
}

// Zero where f16 has another number.
Float16 same_in_f16(float scale) {
  const Float16 narrow = to_float16(scale);
  return std::isfinite(scale) && to_float(narrow) == scale ? narrow : Float16{};
}

}  // namespace

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

void QuantisedMatrix::read_codes(float* dst, int64_t begin, int64_t count) const {
  const int bits = weights_.bits;
  const WordLines words{codes_.bytes, codes_.columns};
  switch (weights_.layout) {
    case QuantisedLayout::kFloat8:
      return read_float8(dst, codes_.bytes + begin * columns_, count * columns_);
    case QuantisedLayout::kInt8:
      return read_int8(dst, codes_.bytes + begin * columns_, count * columns_);
    case QuantisedLayout::kPacked:
      for (int64_t i = 0; i < count; ++i) {
        read_words(dst + i * columns_, words.bytes + (begin + i) * words.columns * 4, bits,
                   1 << (bits - 1), columns_);
      }
      return;
    case QuantisedLayout::kGptq:
      return read_gptq_rows(dst, words, bits, begin, count, columns_);
    case QuantisedLayout::kAwq:
      return read_awq_rows(dst, words, begin, count, columns_);
  }
}

void QuantisedMatrix::decode(std::span<float> dst, int64_t begin, int64_t count) const {
  JIGE_CHECK(
      begin >= 0 && count >= 0 && begin + count <= rows_ && std::ssize(dst) == count * columns_,
      "rows {} to {} of {} into {} numbers", begin, begin + count, rows_, dst.size());
  const std::vector<Run> runs = runs_of_groups();
  std::vector<float> zeros(static_cast<size_t>(group_count_));
  std::vector<float> scales(static_cast<size_t>(group_count_));
  for (int64_t strip = 0; strip < count; strip += kQuantisedStripRows) {
    const int64_t rows = std::min(kQuantisedStripRows, count - strip);
    float* const numbers = dst.data() + strip * columns_;
    read_codes(numbers, begin + strip, rows);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t group = 0; group < group_count_; ++group) {
        zeros[static_cast<size_t>(group)] = zero(begin + strip + i, group);
        scales[static_cast<size_t>(group)] = scale(begin + strip + i, group);
      }
      int64_t column = 0;
      for (const Run& run : runs) {
        apply_scale(numbers + i * columns_ + column, zeros[run.group], scales[run.group],
                    run.end - column);
        column = run.end;
      }
    }
  }
}

void QuantisedMatrix::block_scales(std::span<Float16> dst, int64_t begin, int64_t count,
                                   int64_t block) const {
  const int64_t blocks = (columns_ + block - 1) / block;
  JIGE_CHECK(
      begin >= 0 && count >= 0 && begin + count <= rows_ && std::ssize(dst) == count * blocks,
      "rows {} to {} of {} into {} scales", begin, begin + count, rows_, dst.size());
  std::fill(dst.begin(), dst.end(), Float16{});
  if (weights_.layout == QuantisedLayout::kFloat8) return;
  std::vector<Float16> scales(static_cast<size_t>(group_count_));
  const std::vector<Run> runs = runs_of_groups();
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t group = 0; group < group_count_; ++group) {
      scales[static_cast<size_t>(group)] = same_in_f16(scale(begin + i, group));
    }
    int64_t at = 0;  // the block that a run begins with, or next after its beginning
    for (const Run& run : runs) {
      const int64_t end = run.end == columns_ ? blocks : run.end / block;
      for (; at < end; ++at) dst[static_cast<size_t>(i * blocks + at)] = scales[run.group];
      at = (run.end + block - 1) / block;
    }
  }
}

std::vector<QuantisedMatrix::Run> QuantisedMatrix::runs_of_groups() const {
  std::vector<Run> runs;
  for (int64_t k = 0; k < columns_; ++k) {
    const auto group = static_cast<size_t>(group_of(k));
    if (runs.empty() || runs.back().group != group) runs.push_back({.group = group});
    runs.back().end = k + 1;
  }
  return runs;
}

}  // namespace jige::formats

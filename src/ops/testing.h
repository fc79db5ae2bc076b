// What the tests of ops share: matrices of any float type with guarded gaps, gradients by finite
// differences in double, and runs over instruction sets and thread counts.
//
// Included by tests only. Threads: none.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/rough_normal.h"
#include "tensor/cpu_device.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace jige::ops::test {

using Values = std::vector<double>;

// A matrix whose rows stand `gap` elements apart. All bytes start as 0xff (NaN in every float
// type), so reading what was never written shows, and gap_intact() finds writes beyond a row.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t gap = 3)
      : dtype_(dtype),
        rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        data_(static_cast<size_t>(dtype_bytes(dtype, rows * stride_ + 1)), std::byte{0xff}) {}

  TensorView view() { return {data_.data(), dtype_, Shape{rows_, columns_}, stride_}; }
  // The same as a vector. REQUIRES: one row or column, no gap.
  TensorView vector() { return TensorView::of(data_.data(), dtype_, Shape{rows_ * columns_}); }
  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  float get(int64_t row, int64_t column) const {
    const size_t i = static_cast<size_t>(row * stride_ + column);
    if (dtype_ == DType::kBF16) return to_float(reinterpret_cast<const BFloat16*>(data_.data())[i]);
    if (dtype_ == DType::kF16) return to_float(reinterpret_cast<const Float16*>(data_.data())[i]);
    return reinterpret_cast<const float*>(data_.data())[i];
  }
  void set(int64_t row, int64_t column, double value) {
    const size_t i = static_cast<size_t>(row * stride_ + column);
    const auto single = static_cast<float>(value);
    if (dtype_ == DType::kBF16) {
      reinterpret_cast<BFloat16*>(data_.data())[i] = to_bfloat16(single);
    } else if (dtype_ == DType::kF16) {
      reinterpret_cast<Float16*>(data_.data())[i] = to_float16(single);
    } else {
      reinterpret_cast<float*>(data_.data())[i] = single;
    }
  }
  Matrix& fill(double value) {
    return fill_by([value](int64_t, int64_t) { return value; });
  }
  // About normal, as base/rough_normal.h says.
  Matrix& fill_normal(Rng& rng, double deviation = 1.0, double mean = 0.0) {
    return fill_by([&](int64_t, int64_t) { return mean + deviation * rough_normal(rng); });
  }
  Matrix& fill_by(const std::function<double(int64_t row, int64_t column)>& value) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) set(r, c, value(r, c));
    }
    return *this;
  }
  // Row after row, without the gaps.
  std::vector<double> values() const {
    std::vector<double> result;
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) result.push_back(static_cast<double>(get(r, c)));
    }
    return result;
  }
  bool gap_intact() const {
    const int64_t end = dtype_bytes(dtype_, 1) * (rows_ * stride_ + 1);
    for (int64_t r = 0; r < rows_; ++r) {
      const int64_t begin = dtype_bytes(dtype_, r * stride_ + columns_);
      const int64_t next = r + 1 < rows_ ? dtype_bytes(dtype_, (r + 1) * stride_) : end;
      for (int64_t i = begin; i < next; ++i) {
        if (data_[static_cast<size_t>(i)] != std::byte{0xff}) return false;
      }
    }
    return true;
  }
  // Bit equality, gaps included.
  bool operator==(const Matrix& other) const {
    return dtype_ == other.dtype_ && rows_ == other.rows_ && columns_ == other.columns_ &&
           stride_ == other.stride_ && data_ == other.data_;
  }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t columns_;
  int64_t stride_;
  std::vector<std::byte> data_;
};

// A vector of i32, as tokens, positions and targets are.
inline TensorView view_of(std::vector<int32_t>& values) {
  return TensorView::of(values.data(), DType::kI32, Shape{static_cast<int64_t>(values.size())});
}
inline TensorView view_of(std::vector<float>& values) {
  return TensorView::of(values.data(), DType::kF32, Shape{static_cast<int64_t>(values.size())});
}

// The error a value of this type may have by rounding alone, relative.
inline double rounding_of(DType dtype) {
  return dtype == DType::kF32 ? 0x1p-24 : dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11;
}

// Every element is within absolute + relative·|expected|; `relative` is that of the sums and the
// rounding of the matrix's type is added.
inline void expect_near(const Matrix& actual, const std::vector<double>& expected, double relative,
                        double absolute, const std::string& what) {
  ASSERT_EQ(static_cast<size_t>(actual.rows() * actual.columns()), expected.size()) << what;
  for (int64_t r = 0; r < actual.rows(); ++r) {
    for (int64_t c = 0; c < actual.columns(); ++c) {
      const double want = expected[static_cast<size_t>(r * actual.columns() + c)];
      const auto have = static_cast<double>(actual.get(r, c));
      const double bound = absolute + (relative + rounding_of(actual.dtype())) * std::fabs(want);
      ASSERT_LE(std::fabs(have - want), bound)
          << what << ": row " << r << ", column " << c << " is " << have << ", not " << want;
    }
  }
  ASSERT_TRUE(actual.gap_intact()) << what << ": wrote beyond a row";
}

// The gradient of a scalar function by central differences, an element at a time. With f computed
// in double and arguments of order one, its own error is about 1e-9.
inline std::vector<double> finite_difference(
    const std::function<double(const std::vector<double>&)>& f, std::vector<double> at,
    double step = 1e-5) {
  std::vector<double> gradient(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    at[i] = value + step;
    const double above = f(at);
    at[i] = value - step;
    const double below = f(at);
    at[i] = value;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Runs body() once per instruction set of this machine, with that one active.
template <typename Body>
void for_each_isa(Body&& body) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    SCOPED_TRACE(isa_name(isa));
    set_active_isa(isa);
    body();
  }
  set_active_isa(before);
}

// A CPU device with an inline stream.
class TestStream {
 public:
  explicit TestStream(int thread_count = 2)
      : device_({.thread_count = thread_count}), stream_(std::move(*device_.make_stream())) {}
  Stream& operator*() { return *stream_; }

 private:
  CpuDevice device_;
  std::unique_ptr<Stream> stream_;
};

// Runs body(stream) with one, two and three threads on every instruction set and expects results,
// as body returns them, of the same bits.
template <typename Body>
void expect_same_bits_everywhere(Body&& body) {
  TestStream one(1);
  const auto expected = body(*one);
  for_each_isa([&] {
    for (const int thread_count : {1, 2, 3}) {
      TestStream stream(thread_count);
      EXPECT_TRUE(body(*stream) == expected) << thread_count << " threads";
    }
  });
}

}  // namespace jige::ops::test

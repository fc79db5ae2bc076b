// What the tests of linear layers share: matrices of random numbers, a device whose threads can be
// changed, and memory for packed weights.
//
// Included by tests only. Threads: none.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/rough_normal.h"
#include "ops/linear.h"
#include "tensor/cpu_device.h"

namespace jige::ops::test {

// Numbers of a matrix, f32 or bf16.
class Numbers {
 public:
  // Zeros.
  Numbers(DType dtype, int64_t rows, int64_t columns)
      : bytes_(static_cast<size_t>(dtype_bytes(dtype, rows * columns))),
        view_{TensorView::of(bytes_.data(), dtype, Shape{rows, columns})} {}
  Numbers(DType dtype, int64_t rows, int64_t columns, Rng& rng) : Numbers(dtype, rows, columns) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = rough_normal(rng);
      if (dtype == DType::kF32) {
        view_.as<float>()[i] = value;
      } else {
        view_.as<BFloat16>()[i] = to_bfloat16(value);
      }
    }
  }
  const TensorView& view() const { return view_; }
  TensorView vector() const {
    return TensorView::of(view_.data, view_.dtype, Shape{view_.count()});
  }
  double at(int64_t row, int64_t column) const {
    const int64_t i = row * view_.row_stride + column;
    return view_.dtype == DType::kF32 ? view_.as<float>()[i] : to_float(view_.as<BFloat16>()[i]);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  TensorView view_;
};

class LinearDevice {
 protected:
  // Gives a weight its memory and packs it, in so many parts.
  PackedWeight packed_in_parts(PackedWeight packed, const TensorView& weight, int64_t parts) {
    memory_.emplace_back(static_cast<size_t>(
        packed_weight_bytes(packed.compute, packed.use, packed.n, packed.k, packed.format)));
    packed.data = memory_.back().data();
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = packed.n * part / parts;
      pack_weight(*stream_, packed, weight.row_range(begin, packed.n * (part + 1) / parts), begin);
    }
    return packed;
  }

  void use_threads(int count, bool queued = false) {
    stream_.reset();
    device_ = std::make_unique<CpuDevice>(
        CpuDeviceOptions{.thread_count = count, .queued_streams = queued});
    stream_ = std::move(device_->make_stream().value());
  }

  std::unique_ptr<CpuDevice> device_ =
      std::make_unique<CpuDevice>(CpuDeviceOptions{.thread_count = 2});
  std::unique_ptr<Stream> stream_ = std::move(device_->make_stream().value());
  std::vector<std::vector<std::byte>> memory_;
};

}  // namespace jige::ops::test

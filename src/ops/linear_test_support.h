// What the tests of linear layers share: a device whose threads can be changed, and memory for
// packed weights.
//
// Included by tests only. Threads: none.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ops/linear.h"
#include "tensor/cpu_device.h"

namespace jige::ops::test {

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

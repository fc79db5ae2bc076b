// HostBuffer: memory of the host that a device copies to and from at full speed and without the
// host waiting; pinned, for a GPU.
//
// Threads: one at a time.
#pragma once

#include <utility>

#include "base/result.h"
#include "tensor/device.h"

namespace jige {

class HostBuffer {
 public:
  HostBuffer() = default;
  // Uninitialised. The device must outlive it. Fails with kExhausted.
  static Result<HostBuffer> make(Device& device, int64_t bytes) {
    HostBuffer buffer;
    JIGE_TRY(buffer.data_, device.allocate_host(bytes));
    buffer.device_ = &device;
    buffer.bytes_ = bytes;
    return buffer;
  }
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostBuffer() {
    if (device_) device_->release_host(data_, bytes_);
  }

  void* data() const { return data_; }

 private:
  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace jige

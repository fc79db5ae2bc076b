// PinnedMemory: the host's memory as arenas take it, for what a GPU copies from and to at full
// speed and without the host waiting. What computes there are the host's streams.
//
// Threads: as tensor/device.h says.
#pragma once

#include <memory>
#include <string>

#include "tensor/cpu_device.h"
#include "tensor/device.h"

namespace jige {

class PinnedMemory final : public Device {
 public:
  // Both must outlive it.
  PinnedMemory(CpuDevice& host, Device& gpu) : host_(host), gpu_(gpu) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const std::string& name() const override { return host_.name(); }
  Result<void*> allocate(int64_t bytes) override { return gpu_.allocate_host(bytes); }
  void release(void* data, int64_t bytes) override { gpu_.release_host(data, bytes); }
  Result<std::unique_ptr<Stream>> make_stream() override { return host_.make_stream(); }

 private:
  CpuDevice& host_;
  Device& gpu_;
};

}  // namespace jige

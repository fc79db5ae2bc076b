// The CPU as a device: a compute team, memory from the host heap, and streams that are either
// queues with a thread of their own or run inline.
//
// An inline stream executes work during submit(); it is what one-device commands use, since it adds
// nothing to an op. A queued stream is honest about asynchrony: work runs on the stream's thread.
// Loops of all streams of a device share its team and take turns there.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/threads.h"
#include "tensor/device.h"

namespace jige {

struct CpuDeviceOptions {
  std::string name = "cpu0";
  int thread_count = 0;         // 0: as many as the process may use
  bool queued_streams = false;  // false: make_stream() gives inline streams
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(CpuDeviceOptions options = {});
  ~CpuDevice() override;

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const std::string& name() const override { return name_; }
  Result<void*> allocate(int64_t bytes) override;
  void release(void* data, int64_t bytes) override;
  Result<std::unique_ptr<Stream>> make_stream() override;

  // Scratches from 256 KiB on are whole units of this, huge pages where the system has them.
  static constexpr int64_t kScratchUnitBytes = int64_t{2} << 20;

  ThreadTeam& team() { return team_; }
  // A 64-byte aligned scratch of at least `bytes` for one worker of the team, kept between calls.
  // It grows to the largest request. Other streams' loops use it, too: nothing in it outlives a
  // loop. REQUIRES: called by that worker inside a loop.
  void* scratch(int worker, int64_t bytes);
  // Bytes all scratches hold now.
  int64_t scratch_bytes() const;
  // Bytes that a scratch holds once so many were asked for.
  static int64_t scratch_bytes_held(int64_t bytes);

 private:
  struct Scratch;
  std::string name_;
  bool queued_streams_;
  ThreadTeam team_;
  std::vector<std::unique_ptr<Scratch>> scratches_;
};

class CpuStream : public Stream {
 public:
  using Work = std::function<void()>;
  // Puts work on the stream; an inline stream runs it at once.
  virtual void submit(Work work) = 0;
  virtual CpuDevice& cpu() = 0;
};

// The CPU stream behind a stream. REQUIRES: it belongs to a CPU device.
CpuStream& as_cpu(Stream& stream);

}  // namespace jige

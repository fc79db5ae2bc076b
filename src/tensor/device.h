// Devices, streams and events: where memory lives and where work runs.
//
// A Device hands out memory and streams. A Stream runs what is put on it in order; two streams run
// independently unless an Event orders them. Everything put on a stream is asynchronous: results
// may be read after synchronize() or after an event recorded behind them has completed. Code that
// obeys these rules runs unchanged on a device whose streams are hardware queues.
//
// Invariants: (1) a stream runs its work in the order of submission.
//             (2) an event waits for the work submitted to its stream before record().
//             (3) memory passed to a stream must stay valid until that work is complete.
// Threads: a Device may be used from any thread; a Stream by one thread at a time; an Event may be
// waited for from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"

namespace jige {

enum class DeviceKind { kCpu, kCuda };

enum class CopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

class Device;

// A point in a stream's work. Default-constructed: already complete.
class Event {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual bool complete() const = 0;
    virtual void wait() = 0;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}

  bool complete() const { return !state_ || state_->complete(); }
  // Blocks the calling thread.
  void wait() const {
    if (state_) state_->wait();
  }
  State* state() const { return state_.get(); }

 private:
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual Device& device() = 0;
  // Copies bytes between host and device memory in stream order.
  virtual void copy(void* dst, const void* src, int64_t bytes, CopyKind kind) = 0;
  // Sets bytes in stream order.
  virtual void fill_zero(void* dst, int64_t bytes) = 0;
  virtual Event record() = 0;
  // Later work of this stream starts after `event`.
  virtual void wait(const Event& event) = 0;
  // Runs `submit`, which puts work on this stream and does nothing else that matters twice: it may
  // be called several times, and work that was put there before in the same way runs as a whole,
  // which spares a hardware queue most of what launches cost.
  virtual void run_repeated(const std::function<void()>& submit) { submit(); }
  // The same, but that the work is put there piece by piece each time: so events order it with that
  // of other streams. `submit` records and waits for them where records_only() is false.
  virtual void run_in_pieces(const std::function<void()>& submit) { submit(); }
  // Whether work is put on the stream only to be known: it will be put there once more.
  virtual bool records_only() const { return false; }
  // Blocks until all work of this stream is done.
  virtual void synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // "cpu0", "cuda1".
  virtual const std::string& name() const = 0;
  // Raw memory, aligned to 64 bytes at least; arenas are built on these two. Fails with kExhausted.
  virtual Result<void*> allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) = 0;
  // Memory of the host for copies (host_buffer.h); the device's own, where it is the host's. Fails
  // with kExhausted.
  virtual Result<void*> allocate_host(int64_t bytes) { return allocate(bytes); }
  virtual void release_host(void* data, int64_t bytes) { release(data, bytes); }
  virtual Result<std::unique_ptr<Stream>> make_stream() = 0;
};

}  // namespace jige

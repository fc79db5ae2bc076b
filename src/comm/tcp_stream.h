// The two halves of a stream over a TCP connection, with buffers that can be read and written in
// place in whole units.
//
// Invariants: the head of an InStream and the tail of an OutStream stand at whole units; capacities
// are whole units, so contiguous parts are too.
// Threads: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/socket.h"
#include "comm/types.h"

namespace jige::comm {

// Bytes between a connection and whoever reads or writes them: a circular buffer that takes its
// memory when it is first used.
class StreamBuffer {
 public:
  StreamBuffer() = default;
  explicit StreamBuffer(int64_t capacity) : capacity_(capacity) {}

  int64_t held() const { return tail_ - head_; }
  int64_t free() const { return capacity_ - held(); }
  // What is held, contiguous from the first byte.
  std::span<const std::byte> front() const;
  void pop(int64_t bytes) { head_ += bytes; }
  // Room behind what is held, contiguous.
  std::span<std::byte> back();
  void push(int64_t bytes) { tail_ += bytes; }
  // Holds these alone, beginning at this place of the buffer. REQUIRES: empty; they fit there.
  void restart(std::span<const std::byte> bytes, int64_t at);

 private:
  std::byte* data();

  int64_t capacity_ = 0;
  std::unique_ptr<std::byte[]> data_;
  int64_t head_ = 0;
  int64_t tail_ = 0;
};

class InStream {
 public:
  InStream() = default;
  InStream(Socket* socket, int64_t capacity) : socket_(socket), buffer_(capacity) {}

  Socket* socket() const { return socket_; }
  // Takes what the connection has, if there is not a whole unit in the buffer yet. Gives the bytes
  // that came.
  Result<int64_t> fill();
  std::span<const std::byte> ready() const;
  void consume(int64_t bytes) { buffer_.pop(bytes); }
  // Straight into `bytes` while the buffer is empty; whole units.
  Result<int64_t> read(std::span<std::byte> bytes);

 private:
  Socket* socket_ = nullptr;
  StreamBuffer buffer_;
};

class OutStream {
 public:
  OutStream() = default;
  OutStream(Socket* socket, int64_t capacity) : socket_(socket), buffer_(capacity) {}

  Socket* socket() const { return socket_; }
  int64_t pending() const { return buffer_.held(); }
  // Whether room() is empty: less than a unit may be left of a connection's odd sizes.
  bool full() const { return buffer_.free() < kUnitBytes; }
  // Whether the last write() found that the connection takes nothing.
  bool blocked() const { return blocked_; }
  std::span<std::byte> room();
  void commit(int64_t bytes) { buffer_.push(bytes); }
  // Hands to the connection what it takes now.
  Status push();
  // Straight from `bytes` while nothing is pending, else through the buffer; whole units.
  Result<int64_t> write(std::span<const std::byte> bytes);

 private:
  Socket* socket_ = nullptr;
  StreamBuffer buffer_;
  bool blocked_ = false;
};

}  // namespace jige::comm

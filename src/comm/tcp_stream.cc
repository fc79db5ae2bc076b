#include "comm/tcp_stream.h"

#include <algorithm>
#include <cstring>

#include "comm/types.h"

namespace jige::comm {
namespace {

constexpr int64_t kDirectBytes = 16 << 10;  // less is gathered, so that it goes out as one

}  // namespace

std::byte* InStream::buffer() {
  if (data_ == nullptr) data_.reset(new std::byte[static_cast<size_t>(capacity_)]);
  return data_.get();
}

Result<int64_t> InStream::fill() {
  if (tail_ - head_ >= kUnitBytes) return 0;
  if (head_ == tail_) head_ = tail_ = 0;
  const int64_t at = tail_ % capacity_;
  const int64_t space = std::min(capacity_ - at, capacity_ - (tail_ - head_));
  JIGE_TRY(const size_t came, socket_->recv_some({buffer() + at, static_cast<size_t>(space)}));
  tail_ += static_cast<int64_t>(came);
  return static_cast<int64_t>(came);
}

std::span<const std::byte> InStream::ready() const {
  const int64_t at = head_ % std::max<int64_t>(capacity_, 1);
  const int64_t bytes = std::min(tail_ - head_, capacity_ - at) / kUnitBytes * kUnitBytes;
  return {data_.get() + at, static_cast<size_t>(bytes)};
}

Result<int64_t> InStream::read(std::span<std::byte> bytes) {
  if (tail_ > head_) {
    JIGE_TRY([[maybe_unused]] const int64_t came, fill());
    const std::span<const std::byte> in = ready();
    const size_t n = std::min(in.size(), bytes.size());
    if (n > 0) std::memcpy(bytes.data(), in.data(), n);
    consume(static_cast<int64_t>(n));
    return static_cast<int64_t>(n);
  }
  JIGE_TRY(const size_t came, socket_->recv_some(bytes));
  // The beginning of a unit waits in the buffer for its rest.
  const size_t part = came % static_cast<size_t>(kUnitBytes);
  head_ = 0;
  tail_ = static_cast<int64_t>(part);
  if (part > 0) std::memcpy(buffer(), bytes.data() + (came - part), part);
  return static_cast<int64_t>(came - part);
}

std::byte* OutStream::buffer() {
  if (data_ == nullptr) data_.reset(new std::byte[static_cast<size_t>(capacity_)]);
  return data_.get();
}

std::span<std::byte> OutStream::room() {
  if (head_ == tail_) head_ = tail_ = 0;
  const int64_t at = tail_ % capacity_;
  const int64_t free_bytes = std::min(capacity_ - at, capacity_ - pending());
  return {buffer() + at, static_cast<size_t>(free_bytes / kUnitBytes * kUnitBytes)};
}

Status OutStream::push() {
  while (pending() > 0) {
    const int64_t at = head_ % capacity_;
    const int64_t bytes = std::min(pending(), capacity_ - at);
    JIGE_TRY(const size_t sent, socket_->send_some({buffer() + at, static_cast<size_t>(bytes)}));
    head_ += static_cast<int64_t>(sent);
    if (static_cast<int64_t>(sent) < bytes) break;
  }
  return {};
}

Result<int64_t> OutStream::write(std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) >= kDirectBytes) JIGE_DO(push());
  if (pending() > 0 || static_cast<int64_t>(bytes.size()) < kDirectBytes) {
    const std::span<std::byte> out = room();
    const size_t n = std::min(out.size(), bytes.size());
    if (n > 0) std::memcpy(out.data(), bytes.data(), n);
    commit(static_cast<int64_t>(n));
    return static_cast<int64_t>(n);
  }
  JIGE_TRY(const size_t sent, socket_->send_some(bytes));
  // A unit that was begun goes on from the buffer, so that callers see whole ones.
  const size_t unit = static_cast<size_t>(kUnitBytes);
  const size_t rest = (unit - sent % unit) % unit;
  head_ = static_cast<int64_t>(unit - rest) % kUnitBytes;
  tail_ = head_ + static_cast<int64_t>(rest);
  if (rest > 0) std::memcpy(buffer() + head_, bytes.data() + sent, rest);
  return static_cast<int64_t>(sent + rest);
}

}  // namespace jige::comm

#include "comm/tcp_stream.h"

#include <algorithm>
#include <cstring>

#include "comm/types.h"

namespace jige::comm {
namespace {

constexpr int64_t kDirectBytes = 16 << 10;  // less is gathered, so that it goes out as one
constexpr auto kUnit = static_cast<size_t>(kUnitBytes);

size_t units_within(size_t bytes) { return bytes / kUnit * kUnit; }

// Copies as much as fits; gives the bytes.
int64_t copy_part(std::span<const std::byte> from, std::span<std::byte> to) {
  const size_t bytes = std::min(from.size(), to.size());
  if (bytes > 0) std::memcpy(to.data(), from.data(), bytes);
  return static_cast<int64_t>(bytes);
}

}  // namespace

std::byte* StreamBuffer::data() {
  if (data_ == nullptr) data_.reset(new std::byte[static_cast<size_t>(capacity_)]);
  return data_.get();
}

std::span<const std::byte> StreamBuffer::front() const {
  const int64_t at = head_ % std::max<int64_t>(capacity_, 1);
  return {data_.get() + at, static_cast<size_t>(std::min(held(), capacity_ - at))};
}

std::span<std::byte> StreamBuffer::back() {
  if (head_ == tail_) head_ = tail_ = 0;
  const int64_t at = tail_ % capacity_;
  return {data() + at, static_cast<size_t>(std::min(capacity_ - at, free()))};
}

void StreamBuffer::restart(std::span<const std::byte> bytes, int64_t at) {
  head_ = at;
  tail_ = at + static_cast<int64_t>(bytes.size());
  if (!bytes.empty()) std::memcpy(data() + at, bytes.data(), bytes.size());
}

Result<int64_t> InStream::fill() {
  if (buffer_.held() >= kUnitBytes) return 0;
  JIGE_TRY(const size_t came, socket_->recv_some(buffer_.back()));
  buffer_.push(static_cast<int64_t>(came));
  return static_cast<int64_t>(came);
}

std::span<const std::byte> InStream::ready() const {
  const std::span<const std::byte> held = buffer_.front();
  return held.first(units_within(held.size()));
}

Result<int64_t> InStream::read(std::span<std::byte> bytes) {
  if (buffer_.held() > 0) {
    JIGE_TRY([[maybe_unused]] const int64_t came, fill());
    const int64_t copied = copy_part(ready(), bytes);
    consume(copied);
    return copied;
  }
  JIGE_TRY(const size_t came, socket_->recv_some(bytes));
  // The beginning of a unit waits in the buffer for its rest.
  const size_t whole = units_within(came);
  buffer_.restart(bytes.subspan(whole, came - whole), 0);
  return static_cast<int64_t>(whole);
}

std::span<std::byte> OutStream::room() {
  const std::span<std::byte> free = buffer_.back();
  return free.first(units_within(free.size()));
}

Status OutStream::push() {
  while (pending() > 0) {
    const std::span<const std::byte> part = buffer_.front();
    JIGE_TRY(const size_t sent, socket_->send_some(part));
    buffer_.pop(static_cast<int64_t>(sent));
    if (sent < part.size()) break;
  }
  return {};
}

Result<int64_t> OutStream::write(std::span<const std::byte> bytes) {
  if (static_cast<int64_t>(bytes.size()) >= kDirectBytes) JIGE_DO(push());
  if (pending() > 0 || static_cast<int64_t>(bytes.size()) < kDirectBytes) {
    const int64_t copied = copy_part(bytes, room());
    commit(copied);
    blocked_ = false;
    return copied;
  }
  JIGE_TRY(const size_t sent, socket_->send_some(bytes));
  blocked_ = sent == 0;
  // A unit that was begun goes on from the buffer, so that callers see whole ones.
  const size_t begun = sent % kUnit;
  const size_t rest = begun > 0 ? kUnit - begun : 0;
  buffer_.restart(bytes.subspan(sent, rest), static_cast<int64_t>(begun));
  return static_cast<int64_t>(sent + rest);
}

}  // namespace jige::comm

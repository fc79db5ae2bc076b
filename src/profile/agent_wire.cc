#include "profile/agent_wire.h"

#include <poll.h>

#include <algorithm>
#include <array>

namespace jige::profile {
namespace {

constexpr size_t kWireChunkBytes = size_t{256} * 1024;

using Chunk = std::vector<std::byte>;

void fill_pattern(std::span<std::byte> chunk, uint64_t offset) {
  for (std::byte& byte : chunk) byte = pattern_byte(offset++);
}

const Chunk& ready_chunk() {
  static const Chunk chunk = [] {
    Chunk made(kWireChunkBytes);
    fill_pattern(made, 0);
    return made;
  }();
  return chunk;
}

}  // namespace

Status send_message(comm::Socket& socket, const AgentMessage& message, comm::Deadline deadline) {
  const std::string frame = frame_of(message);
  return socket.send_all(std::as_bytes(std::span(frame)), deadline);
}

Result<AgentMessage> receive_message(comm::Socket& socket, comm::Deadline deadline) {
  std::array<std::byte, kFrameHeadBytes> head;
  JIGE_DO(socket.recv_all(head, deadline));
  auto size = payload_size(head);
  if (!size) return with_context(std::move(size.error()), "{}", socket.peer());
  std::string payload(*size, '\0');
  JIGE_DO(socket.recv_all(std::as_writable_bytes(std::span(payload)), deadline));
  auto message = parse_message(payload);
  if (!message) return with_context(std::move(message.error()), "{}", socket.peer());
  return message;
}

Status await_answer(const comm::Socket& socket, comm::Deadline deadline,
                    const std::atomic<bool>* cancelled) {
  for (;;) {
    JIGE_DO(check_cancelled(cancelled));
    pollfd entry = {.fd = socket.fd(), .events = POLLIN, .revents = 0};
    if (poll(&entry, 1, deadline.unless(cancelled).poll_ms()) > 0 || deadline.passed()) return {};
  }
}

Status send_data(comm::Socket& socket, const DataMessage& data, comm::Deadline deadline) {
  JIGE_DO(send_message(socket, data, deadline));
  Chunk checked(data.check ? kWireChunkBytes : 0);
  for (int64_t sent = 0; sent < data.bytes;) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kWireChunkBytes, data.bytes - sent));
    if (data.check) fill_pattern(std::span(checked).first(count), static_cast<uint64_t>(sent));
    const Chunk& chunk = data.check ? checked : ready_chunk();
    JIGE_DO(socket.send_all(std::span(chunk).first(count), deadline));
    sent += static_cast<int64_t>(count);
  }
  JIGE_TRY(const GotMessage got, receive<GotMessage>(socket, deadline));
  (void)got;
  return {};
}

Status take_data(comm::Socket& socket, const DataMessage& data, comm::Deadline deadline) {
  Chunk chunk(kWireChunkBytes), wanted(data.check ? kWireChunkBytes : 0);
  for (int64_t taken = 0; taken < data.bytes;) {
    const auto count = static_cast<size_t>(std::min<int64_t>(kWireChunkBytes, data.bytes - taken));
    const std::span<std::byte> here = std::span(chunk).first(count);
    JIGE_DO(socket.recv_all(here, deadline));
    if (data.check) {
      fill_pattern(std::span(wanted).first(count), static_cast<uint64_t>(taken));
      const auto wrong = std::ranges::mismatch(here, wanted).in1 - here.begin();
      if (static_cast<size_t>(wrong) < count) {
        return fail(Code::kCorrupt, "{}: byte {} of the data came wrong; the link is not safe",
                    socket.peer(), taken + wrong);
      }
    }
    taken += static_cast<int64_t>(count);
  }
  return send_message(socket, GotMessage{}, deadline);
}

}  // namespace jige::profile

#include "profile/mpi/frame_pipe.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace jige::profile {

FramePipe FramePipe::standard() {
  const int out = dup(STDOUT_FILENO);
  if (out >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
  return {STDIN_FILENO, out};
}

Result<bool> FramePipe::read_all(std::span<std::byte> bytes) const {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = read(in_, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(Code::kIo, "standard input: {}", std::strerror(errno));
    if (got == 0 && at == 0) return false;
    if (got == 0) return fail(Code::kCorrupt, "standard input ends within a message");
    at += static_cast<size_t>(got);
  }
  return true;
}

Result<std::optional<AgentMessage>> FramePipe::receive() {
  std::array<std::byte, kFrameHeadBytes> head;
  JIGE_TRY(const bool there, read_all(head));
  if (!there) return std::optional<AgentMessage>();
  JIGE_TRY(const size_t size, payload_size(head));
  std::string payload(size, '\0');
  JIGE_TRY(const bool whole, read_all(std::as_writable_bytes(std::span(payload))));
  if (!whole && size > 0) return fail(Code::kCorrupt, "standard input ends within a message");
  JIGE_TRY(AgentMessage message, parse_message(payload));
  return std::optional<AgentMessage>(std::move(message));
}

Status FramePipe::send(const AgentMessage& message) {
  const std::string frame = frame_of(message);
  for (size_t at = 0; at < frame.size();) {
    const ssize_t put = write(out_, frame.data() + at, frame.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail(Code::kIo, "standard output: {}", std::strerror(errno));
    at += static_cast<size_t>(put);
  }
  return {};
}

}  // namespace jige::profile

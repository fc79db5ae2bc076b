#include "comm/control_channel.h"

#include <algorithm>
#include <cstring>

#include "comm/transport.h"

namespace jige::comm {
namespace {

constexpr uint32_t kMagic = 0x314D474A;  // "JGM1"
constexpr size_t kMessageBytes = 256;
constexpr size_t kTextAt = 8;
constexpr size_t kTextMax = kMessageBytes - kTextAt;
constexpr double kFarewellSeconds = 0.2;  // for a message to somebody who does not read

enum Kind : uint8_t { kBeat = 1, kAbort = 2, kLeave = 3 };

std::string make_message(Kind kind, Code code = Code::kInternal, std::string_view text = {}) {
  std::string message(kMessageBytes, '\0');
  std::memcpy(message.data(), &kMagic, 4);
  message[4] = static_cast<char>(kind);
  message[5] = static_cast<char>(code);
  const auto length = static_cast<uint16_t>(std::min(text.size(), kTextMax));
  std::memcpy(message.data() + 6, &length, 2);
  text.copy(message.data() + kTextAt, length);
  return message;
}

}  // namespace

ControlChannel::ControlChannel(std::vector<Socket> sockets) {
  for (Socket& socket : sockets) {
    peers_.push_back({.socket = std::move(socket), .heard_ns = monotonic_ns()});
  }
}

ControlChannel::~ControlChannel() {
  for (Peer& peer : peers_) {
    if (!peer.socket.is_open()) continue;
    if (!peer.left) post(peer, make_message(kLeave));
    // Closed with unread bytes in it, a connection would be reset, and what was sent lost.
    std::byte drain[4096];
    for (;;) {
      const auto came = peer.socket.recv_some(drain);
      if (!came || *came == 0) break;
    }
  }
}

int ControlChannel::fd(int peer) const {
  const Peer& found = peers_[static_cast<size_t>(peer)];
  return found.left ? -1 : found.socket.fd();
}

void ControlChannel::note_heard(int peer) {
  peers_[static_cast<size_t>(peer)].heard_ns = monotonic_ns();
}

void ControlChannel::post(Peer& peer, const std::string& message) {
  peer.unsent += message;
  const auto sent = peer.socket.send_some(std::as_bytes(std::span(peer.unsent)));
  // A peer that cannot be told is noticed where it is read from.
  if (sent) peer.unsent.erase(0, *sent);
}

void ControlChannel::beat() {
  const int64_t now = monotonic_ns();
  if (now - beat_ns_ < kHeartbeatNs) return;
  beat_ns_ = now;
  static const std::string kMessage = make_message(kBeat);
  for (Peer& peer : peers_) {
    if (peer.socket.is_open() && !peer.left) post(peer, peer.unsent.empty() ? kMessage : "");
  }
}

void ControlChannel::send_abort(const Error& error) {
  const std::string message = make_message(kAbort, error.code, error.message);
  const Deadline deadline = Deadline::after(kFarewellSeconds);
  for (Peer& peer : peers_) {
    if (!peer.socket.is_open() || peer.left) continue;
    peer.unsent += message;
    const Status told = peer.socket.send_all(std::as_bytes(std::span(peer.unsent)), deadline);
    if (told) peer.unsent.clear();
  }
}

Status ControlChannel::look() {
  // News of a failure count more than a connection that its sender has closed since.
  Status lost;
  for (Peer& peer : peers_) {
    if (!peer.socket.is_open() || peer.left) continue;
    const Status read = read_messages(peer);
    if (!read && !peer.socket.is_open()) {
      lost = read;
    } else if (!read) {
      return read;
    }
  }
  return lost;
}

Status ControlChannel::read_messages(Peer& peer) {
  std::byte buffer[4096];
  for (;;) {
    const auto came = peer.socket.recv_some(buffer);
    if (!came) {
      if (peer.left) return {};
      const Error error = came.error();
      peer.socket.close();
      return tl::unexpected<Error>(error);
    }
    if (*came == 0) return {};
    peer.heard_ns = monotonic_ns();
    peer.partial.append(reinterpret_cast<const char*>(buffer), *came);
    while (peer.partial.size() >= kMessageBytes) JIGE_DO(take_message(peer));
  }
}

Status ControlChannel::take_message(Peer& peer) {
  const std::string message = peer.partial.substr(0, kMessageBytes);
  peer.partial.erase(0, kMessageBytes);
  uint32_t magic;
  uint16_t length;
  std::memcpy(&magic, message.data(), 4);
  std::memcpy(&length, message.data() + 6, 2);
  const auto kind = static_cast<uint8_t>(message[4]);
  const auto code = static_cast<uint8_t>(message[5]);
  if (magic != kMagic || length > kTextMax || code > static_cast<uint8_t>(Code::kCancelled)) {
    return fail(Code::kCorrupt, "{}: a control message is damaged", peer.socket.peer());
  }
  if (kind == kLeave) peer.left = true;
  if (kind != kAbort) return {};
  reported_ = true;
  return fail(static_cast<Code>(code), "{} reports: {}", peer.socket.peer(),
              std::string_view(message).substr(kTextAt, length));
}

}  // namespace jige::comm

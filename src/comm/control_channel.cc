#include "comm/control_channel.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "comm/transport.h"

namespace jige::comm {
namespace {

constexpr uint32_t kControlMagic = 0x314D474A;  // "JGM1"
constexpr size_t kMessageBytes = 256;
constexpr size_t kTextAt = 8;
constexpr size_t kTextMax = kMessageBytes - kTextAt;
constexpr double kAbortSeconds = 0.2;  // for a message to somebody who does not read
// A packet that is lost is sent again after 0.2 s.
constexpr double kFarewellSeconds = 1;

constexpr int kAcknowledgedMs = 2;  // between looks whether a message was acknowledged

enum Kind : uint8_t { kBeat = 1, kAbort = 2, kLeave = 3 };

std::string make_message(Kind kind, Code code = Code::kInternal, std::string_view text = {}) {
  std::string message(kMessageBytes, '\0');
  std::memcpy(message.data(), &kControlMagic, 4);
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
    if (peer.socket.is_open()) peer.unsent += make_message(kLeave);
  }
  const Deadline deadline = Deadline::after(kFarewellSeconds);
  std::vector<pollfd> waits;
  for (;;) {
    waits.clear();
    for (Peer& peer : peers_) {
      if (!peer.socket.is_open()) continue;
      if (take_leave(peer)) {
        peer.socket.close();
      } else {
        const auto events = static_cast<short>(peer.said_all ? POLLIN : POLLIN | POLLOUT);
        waits.push_back({.fd = peer.socket.fd(), .events = events, .revents = 0});
      }
    }
    if (waits.empty() || deadline.passed()) return;
    poll(waits.data(), waits.size(), std::min(kAcknowledgedMs, deadline.poll_ms()));
  }
}

bool ControlChannel::take_leave(Peer& peer) {
  if (!peer.said_all) {
    const auto sent = peer.socket.send_some(std::as_bytes(std::span(peer.unsent)));
    if (!sent) return true;
    peer.unsent.erase(0, *sent);
    peer.said_all = peer.unsent.empty();
    if (peer.said_all) peer.socket.end_sending();
  }
  // Asked before the last reading: what comes behind that may reset the connection.
  const bool arrived = peer.said_all && peer.socket.is_acknowledged();
  std::byte drain[4096];
  for (;;) {
    const auto came = peer.socket.recv_some(drain);
    if (!came) return true;
    if (*came == 0) return arrived;
  }
}

int ControlChannel::fd(int peer) const { return peers_[static_cast<size_t>(peer)].socket.fd(); }

void ControlChannel::note_heard(int peer) {
  peers_[static_cast<size_t>(peer)].heard_ns = monotonic_ns();
}

bool ControlChannel::push(Peer& peer) {
  const auto sent = peer.socket.send_some(std::as_bytes(std::span(peer.unsent)));
  // A peer that cannot be told is noticed where it is read from.
  if (!sent) return true;
  peer.unsent.erase(0, *sent);
  return peer.unsent.empty();
}

void ControlChannel::beat() {
  const int64_t now = monotonic_ns();
  if (now - beat_ns_ < kHeartbeatNs) return;
  beat_ns_ = now;
  static const std::string kMessage = make_message(kBeat);
  for (Peer& peer : peers_) {
    if (!peer.socket.is_open()) continue;
    if (peer.unsent.empty()) peer.unsent = kMessage;
    push(peer);
  }
}

void ControlChannel::send_abort(const Error& error) {
  const std::string message = make_message(kAbort, error.code, error.message);
  for (Peer& peer : peers_) {
    if (peer.socket.is_open()) peer.unsent += message;
  }
  // What does not go by then goes ahead of the farewell.
  const Deadline deadline = Deadline::after(kAbortSeconds);
  std::vector<pollfd> waits;
  for (;;) {
    waits.clear();
    for (Peer& peer : peers_) {
      if (!peer.socket.is_open() || push(peer)) continue;
      waits.push_back({.fd = peer.socket.fd(), .events = POLLOUT, .revents = 0});
    }
    if (waits.empty() || deadline.passed()) return;
    poll(waits.data(), waits.size(), deadline.poll_ms());
  }
}

Status ControlChannel::look() {
  // News of a failure count more than a connection that its sender has closed since.
  Status lost;
  for (Peer& peer : peers_) {
    if (!peer.socket.is_open()) continue;
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
      const Error error = came.error();
      peer.socket.close();
      return tl::unexpected<Error>(error);
    }
    if (*came == 0) return {};
    peer.heard_ns = monotonic_ns();
    peer.partial.append(reinterpret_cast<const char*>(buffer), *came);
    while (!peer.left && peer.partial.size() >= kMessageBytes) JIGE_DO(take_message(peer));
    if (!peer.left) continue;
    peer.socket.close();
    return {};
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
  if (magic != kControlMagic || length > kTextMax ||
      code > static_cast<uint8_t>(Code::kCancelled)) {
    return fail(Code::kCorrupt, "{}: a control message is damaged", peer.socket.peer());
  }
  if (kind == kLeave) peer.left = true;
  if (kind != kAbort) return {};
  reported_ = true;
  return tl::unexpected<Error>(reported_error(peer.socket.peer(), static_cast<Code>(code),
                                              std::string_view(message).substr(kTextAt, length)));
}

}  // namespace jige::comm

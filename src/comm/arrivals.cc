#include "comm/arrivals.h"

#include <poll.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace jige::comm {

// Whoever is there; nobody is no error.
Status Arrivals::take(const SocketOptions& options) {
  auto socket = listener_.accept(options, Deadline::after(0));
  if (socket) {
    silent_.push_back({std::move(*socket), Deadline::after(kSilentSeconds)});
    return {};
  }
  if (socket.error().code == Code::kUnavailable) return {};
  if (silent_.empty()) return tl::unexpected<Error>(std::move(socket.error()));
  silent_.pop_front();  // its descriptor is needed
  return {};
}

Result<Socket> Arrivals::next(const SocketOptions& options, Deadline deadline) {
  std::vector<pollfd> entries;
  while (!deadline.passed()) {
    while (!silent_.empty() && silent_.front().end.passed()) silent_.pop_front();
    entries.assign(1, {.fd = listener_.fd(), .events = POLLIN, .revents = 0});
    for (const Silent& silent : silent_) {
      entries.push_back({.fd = silent.socket.fd(), .events = POLLIN, .revents = 0});
    }
    if (poll(entries.data(), entries.size(), deadline.poll_ms()) <= 0) continue;
    for (size_t i = 0; i < silent_.size(); ++i) {
      if (entries[i + 1].revents == 0) continue;
      Socket socket = std::move(silent_[i].socket);
      silent_.erase(silent_.begin() + static_cast<std::ptrdiff_t>(i));
      return socket;
    }
    JIGE_DO(take(options));
  }
  return listener_.accept(options, deadline);
}

}  // namespace jige::comm

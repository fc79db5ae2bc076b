// Watches a connection while its thread is busy with something else: a flag that is set once the
// other end has gone, or this one was shut down.
//
//   const HangUpWatch watch(socket);
//   const Deadline deadline = Deadline::after(30).unless(&watch.gone());
//
// Threads: one of its own; the flag from any. The socket must outlive the watch; others may use it.
#pragma once

#include <poll.h>

#include <atomic>
#include <thread>

#include "comm/socket.h"

namespace jige::profile {

class HangUpWatch {
 public:
  // Throws what std::thread throws where no thread can be had.
  explicit HangUpWatch(const comm::Socket& socket)
      : thread_([this, fd = socket.fd()](const std::stop_token& stop) {
          while (!stop.stop_requested() && !gone_) {
            pollfd entry = {.fd = fd, .events = POLLRDHUP, .revents = 0};
            gone_ = poll(&entry, 1, kSliceMs) > 0;
          }
        }) {}

  const std::atomic<bool>& gone() const { return gone_; }

 private:
  static constexpr int kSliceMs = 50;  // for which its end may have to wait

  std::atomic<bool> gone_{false};
  std::jthread thread_;
};

}  // namespace jige::profile

// Arrivals: connections to a listener, each given out once it has begun to speak, so that who
// connects and stays silent keeps nobody else waiting.
//
//   Arrivals arrivals(listener);
//   JIGE_TRY(Socket socket, arrivals.next({}, deadline));
//
// Who is silent for kSilentSeconds is let go, earlier where descriptors run out.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <deque>

#include "comm/socket.h"

namespace jige::comm {

class Arrivals {
 public:
  static constexpr double kSilentSeconds = 5;

  // The listener must outlive it.
  explicit Arrivals(Listener& listener) : listener_(listener) {}

  // The next connection with something to read, or that has ended. Fails as Listener::accept().
  Result<Socket> next(const SocketOptions& options, Deadline deadline);

 private:
  struct Silent {
    Socket socket;
    Deadline end;
  };
  Status take(const SocketOptions& options);

  Listener& listener_;
  std::deque<Silent> silent_;  // the earliest first
};

}  // namespace jige::comm

// Joining a group of processes: rank 0 listens at an address that all know, the others come and say
// who they are, and everybody learns about everybody.
//
// Messages are a u32 of length (little-endian, kJoinBytesMax at most) and one JSON object:
//   hello    {"format": "jige.join", "version": 1, "rank", "world", "host", "machine", "pid",
//             "address", "transport", "plan"}                            rank r > 0 to rank 0
//   table    {"members": [hello of every rank], "token", "transport", "memory"}  rank 0 to all
//            or {"error": {"code", "message"}}
//   attached {"attached": true}, answered by {"go": true}; either may be an error instead
//                                                                        shared memory alone
//
// A rank that ends while others are awaited may come again.
// "machine" tells processes that can share memory; "memory" is the path of rank 0's descriptor.
// Threads: one thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "comm/place.h"
#include "comm/socket.h"
#include "comm/transport.h"

namespace jige::comm {

inline constexpr uint32_t kJoinBytesMax = 4 << 20;  // a table of kWorldMax ranks fits

struct JoinOptions {
  Place place;
  Address rendezvous;              // where rank 0 listens
  std::string bind_host;           // the address data leave from and come to; empty: the one on the
                                   // way to rank 0
  std::string transport = "auto";  // "shm", "tcp", or auto: shm where all are on one machine
  std::string congestion;          // of TCP, such as "bbr"; empty: the system's
  int64_t socket_buffer_bytes = 0;               // of the kernel; 0: it sizes them by itself
  double timeout_s = 60;                         // for everybody to come
  const std::atomic<bool>* cancelled = nullptr;  // ends the waiting once it is set; may be null
};

// Fails with kUnavailable when ranks did not come, naming them; with kInvalidArgument when they
// differ in world, plan or transport; with kCancelled. A rank that fails tells the others.
Result<std::unique_ptr<Transport>> join_group(const JoinOptions& options, const RingPlan& plan);
// The same where rank 0 listens already.
Result<std::unique_ptr<Transport>> join_group(const JoinOptions& options, const RingPlan& plan,
                                              Listener* rendezvous);

}  // namespace jige::comm

// The control connections of a rank: heartbeats, the failure of the group, the leave of a rank.
//
// Leaving: a rank says farewell to everybody, ends what it sends, and goes on reading until each
// peer has closed its end, which it does as soon as it hears the farewell, or until the peer's
// kernel has acknowledged it: at once, or, where the two have talked a moment ago, mostly after
// some 10 ms and 50 ms at most. Closed earlier, a connection to which the peer still writes would
// be reset, and a farewell under way lost with it: the peer would take the rank for dead. For all
// peers together that takes 1 s at the most, where one of them is cut off or has not read for
// very long.
//
// Layout of a message in tcp_transport.h. Threads: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace jige::comm {

class ControlChannel {
 public:
  // The connection with each rank, closed for the own one.
  explicit ControlChannel(std::vector<Socket> sockets);
  // Takes leave of everybody, as said above.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // -1 once the peer has left or is lost.
  int fd(int peer) const;
  bool has_left(int peer) const { return peers_[static_cast<size_t>(peer)].left; }
  int64_t heard_ns(int peer) const { return peers_[static_cast<size_t>(peer)].heard_ns; }
  void note_heard(int peer);

  // Tells everybody that this rank is there, if it has not for a heartbeat.
  void beat();
  // Tells everybody that the group has failed, in a fifth of a second at most.
  void send_abort(const Error& error);
  // Reads what has come. Fails with what a peer reports, or when a peer is gone without leave.
  Status look();
  // Whether look() has failed with what a peer reports.
  bool reported() const { return reported_; }

 private:
  struct Peer {
    Socket socket;
    std::string unsent;
    std::string partial;
    int64_t heard_ns = 0;
    bool left = false;      // and the connection is closed
    bool said_all = false;  // of this rank's farewell
  };

  // Sends what it takes now of what is unsent; whether nothing is left to try.
  static bool push(Peer& peer);
  // Goes on taking leave; whether nothing is left to do for it.
  bool take_leave(Peer& peer);
  Status read_messages(Peer& peer);
  Status take_message(Peer& peer);

  std::vector<Peer> peers_;
  int64_t beat_ns_ = 0;
  bool reported_ = false;
};

}  // namespace jige::comm

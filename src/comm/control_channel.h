// The control connections of a rank: heartbeats, the failure of the group, the leave of a rank.
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
  // Takes leave of everybody.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // -1 once the peer has left.
  int fd(int peer) const;
  bool has_left(int peer) const { return peers_[static_cast<size_t>(peer)].left; }
  int64_t heard_ns(int peer) const { return peers_[static_cast<size_t>(peer)].heard_ns; }
  void note_heard(int peer);

  // Tells everybody that this rank is there, if it has not for a heartbeat.
  void beat();
  // Tells everybody that the group has failed.
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
    bool left = false;
  };

  void post(Peer& peer, const std::string& message);
  Status read_messages(Peer& peer);
  Status take_message(Peer& peer);

  std::vector<Peer> peers_;
  int64_t beat_ns_ = 0;
  bool reported_ = false;
};

}  // namespace jige::comm

// The connections of a group over TCP: for every two ranks one for control, and one for each link
// of the plan (plan_links.h). The higher rank connects, the lower accepts.
//
// The first 64 bytes of a connection say what it is for: magic u32 "JGI2", rank u32, use u32 (0 for
// control, 1 + the number of a link), zero u32, token u64 of the group, zeros. What says something
// else is closed and forgotten, so a stranger who finds the port does no harm. Threads: one thread.
#pragma once

#include <string>
#include <vector>

#include "comm/plan_links.h"
#include "comm/socket.h"

namespace jige::comm {

struct MeshMember {
  std::string host;  // a name for people
  Address address;   // where it listens
};

struct TcpMesh {
  int rank = 0;
  std::vector<std::string> hosts;
  std::vector<Socket> control;  // by rank, closed for the own one
  std::vector<PlanLink> links;
  std::vector<Socket> sockets;  // of the links, closed for those between others
};

struct MeshOptions {
  int rank = 0;
  uint64_t token = 0;
  SocketOptions sockets;  // name is not looked at
};

// Makes all connections, or names the ranks that did not come by the deadline (kUnavailable).
Result<TcpMesh> connect_mesh(const std::vector<MeshMember>& members, Listener& listener,
                             const RingPlan& plan, const MeshOptions& options, Deadline deadline);

}  // namespace jige::comm

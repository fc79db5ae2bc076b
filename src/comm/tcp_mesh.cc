#include "comm/tcp_mesh.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "comm/arrivals.h"

namespace jige::comm {
namespace {

constexpr uint32_t kMeshMagic = 0x3249474A;  // "JGI2"
constexpr double kIntroSeconds = 1;          // for who has begun to say who it is

// What a connection is for; links follow, by number.
constexpr uint32_t kControl = 0;
constexpr uint32_t kFirstLink = 1;

struct Intro {
  uint32_t magic = kMeshMagic;
  uint32_t rank = 0;
  uint32_t use = 0;
  uint32_t zero = 0;
  uint64_t token = 0;
  std::array<std::byte, 40> rest = {};
};
static_assert(sizeof(Intro) == 64);

class MeshMaker {
 public:
  MeshMaker(const std::vector<MeshMember>& members, const RingPlan& plan,
            const MeshOptions& options, Deadline deadline)
      : members_(members), options_(options), deadline_(deadline) {
    mesh_.rank = options.rank;
    for (const MeshMember& member : members) mesh_.hosts.push_back(member.host);
    mesh_.control.resize(members.size());
    mesh_.links = plan_links(plan, static_cast<int>(members.size()));
    mesh_.sockets.resize(mesh_.links.size());
  }

  Result<TcpMesh> make(Listener& listener) {
    for (int peer = 0; peer < options_.rank; ++peer) {
      for (const uint32_t use : uses(peer)) JIGE_DO(connect(peer, use));
    }
    for (int peer = options_.rank + 1; peer < static_cast<int>(members_.size()); ++peer) {
      for (const uint32_t use : uses(peer)) awaited_.insert({peer, use});
    }
    Arrivals arrivals(listener);
    while (!awaited_.empty()) JIGE_DO(accept(arrivals));
    return std::move(mesh_);
  }

 private:
  std::string name(int rank) const {
    return fmt::format("rank {} ({})", rank, members_[static_cast<size_t>(rank)].host);
  }

  // What the connections between this rank and another are for.
  std::vector<uint32_t> uses(int peer) const {
    std::vector<uint32_t> found = {kControl};
    for (size_t i = 0; i < mesh_.links.size(); ++i) {
      const auto [low, high] = std::minmax(mesh_.links[i].from, mesh_.links[i].to);
      const bool ours =
          low == std::min(peer, options_.rank) && high == std::max(peer, options_.rank);
      if (ours) found.push_back(kFirstLink + static_cast<uint32_t>(i));
    }
    return found;
  }

  Socket& place(int peer, uint32_t use) {
    if (use == kControl) return mesh_.control[static_cast<size_t>(peer)];
    return mesh_.sockets[use - kFirstLink];
  }

  Status connect(int peer, uint32_t use) {
    SocketOptions options = options_.sockets;
    options.name = name(peer);
    JIGE_TRY(Socket socket,
             connect_to(members_[static_cast<size_t>(peer)].address, options, deadline_));
    const Intro intro = {
        .rank = static_cast<uint32_t>(options_.rank), .use = use, .token = options_.token};
    JIGE_DO(socket.send_all(std::as_bytes(std::span(&intro, 1)), deadline_));
    socket.rename(name(peer));
    place(peer, use) = std::move(socket);
    return {};
  }

  Status accept(Arrivals& arrivals) {
    auto socket = arrivals.next(options_.sockets, deadline_);
    if (!socket) {
      std::set<std::string> missing;
      for (const auto& [peer, use] : awaited_) missing.insert(name(peer));
      return fail(Code::kUnavailable, "{} did not connect: {}", fmt::join(missing, ", "),
                  socket.error().message);
    }
    Intro intro;
    const Status came = socket->recv_all(std::as_writable_bytes(std::span(&intro, 1)),
                                         deadline_.earlier(Deadline::after(kIntroSeconds)));
    if (!came || intro.magic != kMeshMagic || intro.token != options_.token) return {};
    if (intro.rank >= members_.size()) return {};
    const int peer = static_cast<int>(intro.rank);
    if (awaited_.erase({peer, intro.use}) == 0) return {};
    socket->rename(name(peer));
    place(peer, intro.use) = std::move(*socket);
    return {};
  }

  const std::vector<MeshMember>& members_;
  const MeshOptions& options_;
  Deadline deadline_;
  TcpMesh mesh_;
  std::set<std::pair<int, uint32_t>> awaited_;
};

}  // namespace

Result<TcpMesh> connect_mesh(const std::vector<MeshMember>& members, Listener& listener,
                             const RingPlan& plan, const MeshOptions& options, Deadline deadline) {
  return MeshMaker(members, plan, options, deadline).make(listener);
}

}  // namespace jige::comm

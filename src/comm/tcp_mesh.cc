#include "comm/tcp_mesh.h"

#include <array>
#include <cstring>
#include <set>

namespace jige::comm {
namespace {

constexpr uint32_t kMagic = 0x3149474A;  // "JGI1"
constexpr double kIntroSeconds = 2;      // for a stranger to say who it is

// What a connection is for; those of ring r follow: out of the connecting rank, then into it. Then
// those of the trees, one for both ways.
constexpr uint32_t kControl = 0;
constexpr uint32_t kDirect = 1;
uint32_t ring_out_use(size_t ring) { return static_cast<uint32_t>(2 + 2 * ring); }
uint32_t ring_in_use(size_t ring) { return static_cast<uint32_t>(3 + 2 * ring); }

struct Intro {
  uint32_t magic = kMagic;
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
      : members_(members), plan_(plan), options_(options), deadline_(deadline) {
    mesh_.rank = options.rank;
    for (const MeshMember& member : members) mesh_.hosts.push_back(member.host);
    mesh_.control.resize(members.size());
    mesh_.direct.resize(members.size());
    mesh_.ring_out.resize(plan.rings.size());
    mesh_.ring_in.resize(plan.rings.size());
    if (plan.trees) mesh_.tree.resize(plan.trees->parent.size());
    for (auto& sockets : mesh_.tree) sockets.resize(members.size());
  }

  Result<TcpMesh> make(Listener& listener) {
    for (int peer = 0; peer < options_.rank; ++peer) {
      for (const uint32_t use : uses(options_.rank, peer)) JIGE_DO(connect(peer, use));
    }
    for (int peer = options_.rank + 1; peer < static_cast<int>(members_.size()); ++peer) {
      for (const uint32_t use : uses(peer, options_.rank)) awaited_.insert({peer, use});
    }
    while (!awaited_.empty()) JIGE_DO(accept(listener));
    return std::move(mesh_);
  }

 private:
  std::string name(int rank) const {
    return fmt::format("rank {} ({})", rank, members_[static_cast<size_t>(rank)].host);
  }

  // The connections that rank `from` makes to rank `to`.
  std::vector<uint32_t> uses(int from, int to) const {
    std::vector<uint32_t> found = {kControl, kDirect};
    for (size_t r = 0; r < plan_.rings.size(); ++r) {
      const Ring& ring = plan_.rings[r];
      if (ring.at(ring.position_of(from) + 1) == to) found.push_back(ring_out_use(r));
      if (ring.at(ring.position_of(to) + 1) == from) found.push_back(ring_in_use(r));
    }
    for (size_t t = 0; t < mesh_.tree.size(); ++t) {
      if (plan_.trees->linked(t, from, to)) found.push_back(tree_use(t));
    }
    return found;
  }

  // The first number that is no ring's.
  uint32_t tree_use(size_t tree) const {
    return ring_out_use(plan_.rings.size()) + static_cast<uint32_t>(tree);
  }

  // Where a connection belongs here; `made` says whether this rank made it.
  Socket& place(int peer, uint32_t use, bool made) {
    if (use == kControl) return mesh_.control[static_cast<size_t>(peer)];
    if (use == kDirect) return mesh_.direct[static_cast<size_t>(peer)];
    if (use >= tree_use(0)) return mesh_.tree[use - tree_use(0)][static_cast<size_t>(peer)];
    const bool out_of_maker = use % 2 == 0;
    const size_t ring = (use - 2) / 2;
    return out_of_maker == made ? mesh_.ring_out[ring] : mesh_.ring_in[ring];
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
    place(peer, use, true) = std::move(socket);
    return {};
  }

  Status accept(Listener& listener) {
    auto socket = listener.accept(options_.sockets, deadline_);
    if (!socket) {
      std::set<std::string> missing;
      for (const auto& [peer, use] : awaited_) missing.insert(name(peer));
      return fail(Code::kUnavailable, "{} did not connect: {}", fmt::join(missing, ", "),
                  socket.error().message);
    }
    Intro intro;
    const Status came = socket->recv_all(std::as_writable_bytes(std::span(&intro, 1)),
                                         deadline_.earlier(Deadline::after(kIntroSeconds)));
    if (!came || intro.magic != kMagic || intro.token != options_.token) return {};
    if (intro.rank >= members_.size()) return {};
    const int peer = static_cast<int>(intro.rank);
    if (awaited_.erase({peer, intro.use}) == 0) return {};
    socket->rename(name(peer));
    place(peer, intro.use, false) = std::move(*socket);
    return {};
  }

  const std::vector<MeshMember>& members_;
  const RingPlan& plan_;
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

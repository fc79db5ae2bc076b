#include "comm/join.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "comm/arrivals.h"
#include "comm/join_message.h"
#include "comm/shared_transport.h"
#include "comm/tcp_mesh.h"
#include "comm/tcp_transport.h"

namespace jige::comm {
namespace {

constexpr double kHelloSeconds = 1;  // for who has begun to say who it is

class Joining {
 public:
  Joining(const JoinOptions& options, const RingPlan& plan)
      : options_(options),
        plan_(plan),
        deadline_(Deadline::after(options.timeout_s).unless(options.cancelled)) {
    own_ = describe_self();
    own_.rank = options.place.rank;
    own_.world = options.place.world;
    own_.transport = options.transport;
    own_.plan = plan.hash();
  }

  Result<std::unique_ptr<Transport>> as_first(Listener& rendezvous);
  Result<std::unique_ptr<Transport>> as_other();
  // What to say of an error: that somebody gave up explains all others.
  Error cause(Error error) const {
    if (!deadline_.cancelled()) return error;
    return {Code::kCancelled, fmt::format("interrupted before all {} ranks had come", world())};
  }

 private:
  int world() const { return options_.place.world; }
  // Opens the port for connections of the mesh.
  Status listen(const std::string& host);
  Status gather(Listener& rendezvous);
  void forget_gone();
  Status take(Socket socket);
  Status check_member(const Hello& hello) const;
  Status choose_transport(const std::vector<Hello>& members);
  Status make_memory();
  void tell_all(const Json& json);
  Result<std::unique_ptr<Transport>> make_transport();
  Result<std::unique_ptr<Transport>> over_memory();
  Result<std::unique_ptr<Transport>> attach();
  Result<std::unique_ptr<Transport>> over_tcp();
  Status confirm_attached();

  const JoinOptions& options_;
  const RingPlan& plan_;
  Deadline deadline_;
  Hello own_;
  JoinTable table_;
  std::vector<Socket> sockets_;  // rank 0: to each other rank; others: to rank 0
  std::vector<Hello> hellos_;    // rank 0, by rank
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<SharedRegion> region_;
};

Status Joining::listen(const std::string& host) {
  if (options_.transport == "shm") return {};
  const std::string chosen = options_.bind_host.empty() ? host : options_.bind_host;
  JIGE_TRY(Listener listener, Listener::open({chosen, 0}));
  own_.address = listener.address();
  listener_ = std::make_unique<Listener>(std::move(listener));
  return {};
}

Status Joining::check_member(const Hello& hello) const {
  if (hello.world != world() || hello.rank < 1 || hello.rank >= world()) {
    return fail(Code::kInvalidArgument,
                "a process on {} calls itself rank {} of {}; this is one of {}", hello.host,
                hello.rank, hello.world, world());
  }
  const auto index = static_cast<size_t>(hello.rank);
  if (sockets_[index].is_open()) {
    return fail(Code::kInvalidArgument, "two processes call themselves rank {}, on {} and on {}",
                hello.rank, hellos_[index].host, hello.host);
  }
  if (hello.plan != own_.plan) {
    return fail(Code::kInvalidArgument,
                "rank {} ({}) has other rings than rank 0; give all ranks the same", hello.rank,
                hello.host);
  }
  if (hello.transport != own_.transport) {
    return fail(Code::kInvalidArgument, "rank {} ({}) has transport {}, rank 0 {}", hello.rank,
                hello.host, hello.transport, own_.transport);
  }
  return {};
}

// A stranger is let go; a member that does not fit ends the whole.
Status Joining::take(Socket socket) {
  const auto json = recv_json(socket, deadline_.earlier(Deadline::after(kHelloSeconds)));
  if (!json) return {};
  auto hello = parse_hello(*json, socket.peer());
  if (!hello) {
    (void)send_json(socket, join_error_to_json(hello.error()), Deadline::after(0));
    return {};
  }
  if (Status fits = check_member(*hello); !fits) {
    (void)send_json(socket, join_error_to_json(fits.error()), deadline_);
    return fits;
  }
  const auto index = static_cast<size_t>(hello->rank);
  socket.rename(fmt::format("rank {} ({})", hello->rank, hello->host));
  sockets_[index] = std::move(socket);
  hellos_[index] = std::move(*hello);
  return {};
}

// Of those that wait for the rest: one that ended meanwhile may have been started again.
void Joining::forget_gone() {
  for (Socket& socket : sockets_) {
    std::byte none[1];
    if (socket.is_open() && !socket.recv_some(none)) socket.close();
  }
}

Status Joining::gather(Listener& rendezvous) {
  sockets_.resize(static_cast<size_t>(world()));
  hellos_.resize(static_cast<size_t>(world()));
  hellos_[0] = own_;
  Arrivals arrivals(rendezvous);
  for (;;) {
    forget_gone();
    std::vector<int> missing;
    for (int r = 1; r < world(); ++r) {
      if (!sockets_[static_cast<size_t>(r)].is_open()) missing.push_back(r);
    }
    if (missing.empty()) return {};
    auto socket = arrivals.next({}, deadline_);
    if (!socket && socket.error().code != Code::kUnavailable) {
      return tl::unexpected<Error>(std::move(socket.error()));
    }
    if (!socket) {
      return fail(Code::kUnavailable, "of {} ranks these did not come to {} in {} s: {}", world(),
                  rendezvous.address().text(), options_.timeout_s, fmt::join(missing, ", "));
    }
    forget_gone();
    JIGE_DO(take(std::move(*socket)));
  }
}

Status Joining::choose_transport(const std::vector<Hello>& members) {
  const auto elsewhere = std::find_if(members.begin(), members.end(), [&](const Hello& member) {
    return member.machine != own_.machine;
  });
  table_.transport = options_.transport;
  if (options_.transport == "auto") table_.transport = elsewhere == members.end() ? "shm" : "tcp";
  if (table_.transport == "shm" && elsewhere != members.end()) {
    return fail(Code::kInvalidArgument,
                "rank {} ({}) shares no memory with rank 0 ({}): use transport tcp",
                elsewhere->rank, elsewhere->host, own_.host);
  }
  return {};
}

Status Joining::make_memory() {
  if (table_.transport != "shm") return {};
  JIGE_TRY(SharedRegion region, SharedRegion::for_processes(region_shape(world(), plan_)));
  table_.memory = fmt::format("/proc/{}/fd/{}", getpid(), region.fd());
  region_ = std::make_shared<SharedRegion>(std::move(region));
  return {};
}

void Joining::tell_all(const Json& json) {
  for (Socket& socket : sockets_) {
    if (socket.is_open()) (void)send_json(socket, json, deadline_);
  }
}

Result<std::unique_ptr<Transport>> Joining::as_first(Listener& rendezvous) {
  const auto prepare = [&]() -> Status {
    JIGE_DO(listen(rendezvous.address().host));
    JIGE_DO(gather(rendezvous));
    hellos_[0] = own_;
    JIGE_DO(choose_transport(hellos_));
    return make_memory();
  };
  if (Status prepared = prepare(); !prepared) {
    tell_all(join_error_to_json(cause(prepared.error())));
    return tl::unexpected<Error>(prepared.error());
  }
  table_.members = hellos_;
  table_.token = derive_key(static_cast<uint64_t>(monotonic_ns()), "jige.join",
                            static_cast<uint64_t>(getpid()));
  tell_all(table_to_json(table_));
  return make_transport();
}

Result<std::unique_ptr<Transport>> Joining::as_other() {
  JIGE_TRY(Socket socket,
           connect_to(options_.rendezvous, {.name = "rank 0", .bind_host = options_.bind_host},
                      deadline_));
  JIGE_DO(listen(socket.local_address().host));
  JIGE_DO(send_json(socket, hello_to_json(own_), deadline_));
  JIGE_TRY(const Json json, recv_json(socket, deadline_));
  JIGE_TRY(table_, parse_table(json, socket.peer()));
  if (static_cast<int>(table_.members.size()) != world()) {
    return fail(Code::kCorrupt, "{}: lists {} ranks of {}", socket.peer(), table_.members.size(),
                world());
  }
  const bool known = table_.transport == "shm" || table_.transport == "tcp";
  if (!known || (options_.transport != "auto" && table_.transport != options_.transport)) {
    return fail(Code::kCorrupt, "{}: chose transport \"{}\" where this rank has {}", socket.peer(),
                table_.transport, options_.transport);
  }
  // Rank 0 may listen on every address; the one it was reached by is known to work.
  const std::string& host = table_.members[0].address.host;
  if (host.empty() || host == "0.0.0.0" || host == "::") {
    table_.members[0].address.host = options_.rendezvous.host;
  }
  sockets_.push_back(std::move(socket));
  return make_transport();
}

Result<std::unique_ptr<Transport>> Joining::make_transport() {
  return table_.transport == "shm" ? over_memory() : over_tcp();
}

Result<std::unique_ptr<Transport>> Joining::over_memory() {
  auto transport = attach();
  if (transport) return transport;
  Error error = cause(std::move(transport.error()));
  // Where rank 0 has given up its memory is gone, and it has said why.
  if (own_.rank != 0) {
    const auto told = recv_json(sockets_[0], Deadline::after(0));
    const Status known = told ? check_no_error(*told, sockets_[0].peer()) : Status();
    if (!known) error = known.error();
  }
  tell_all(join_error_to_json(error));
  return tl::unexpected<Error>(std::move(error));
}

Result<std::unique_ptr<Transport>> Joining::attach() {
  if (region_ == nullptr) {
    const int fd = open(table_.memory.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
      return fail(Code::kUnavailable,
                  "{}: the memory of rank 0 cannot be opened ({}): use transport "
                  "tcp",
                  table_.memory, std::strerror(errno));
    }
    JIGE_TRY(SharedRegion region, SharedRegion::attach(fd, region_shape(world(), plan_)));
    region_ = std::make_shared<SharedRegion>(std::move(region));
  }
  std::vector<SharedMember> members;
  for (const Hello& member : table_.members) members.push_back({member.host, member.pid});
  JIGE_TRY(auto transport, make_shared_transport(region_, own_.rank, plan_, members));
  JIGE_DO(confirm_attached());
  return transport;
}

// Nobody goes on before all have the memory, so that rank 0 may end at any time after.
Status Joining::confirm_attached() {
  const Json attached = {{"attached", true}};
  const Json go = {{"go", true}};
  for (Socket& socket : sockets_) {
    if (!socket.is_open()) continue;
    if (own_.rank != 0) JIGE_DO(send_json(socket, attached, deadline_));
    JIGE_TRY(const Json answer, recv_json(socket, deadline_));
    JIGE_DO(check_no_error(answer, socket.peer()));
  }
  if (own_.rank == 0) tell_all(go);
  return {};
}

Result<std::unique_ptr<Transport>> Joining::over_tcp() {
  std::vector<MeshMember> members;
  for (const Hello& member : table_.members) members.push_back({member.host, member.address});
  const MeshOptions options = {.rank = own_.rank,
                               .token = table_.token,
                               .sockets = {.bind_host = options_.bind_host,
                                           .congestion = options_.congestion,
                                           .buffer_bytes = options_.socket_buffer_bytes}};
  JIGE_TRY(TcpMesh mesh, connect_mesh(members, *listener_, plan_, options, deadline_));
  return make_tcp_transport(std::move(mesh), plan_);
}

}  // namespace

Result<std::unique_ptr<Transport>> join_group(const JoinOptions& options, const RingPlan& plan) {
  return join_group(options, plan, nullptr);
}

Result<std::unique_ptr<Transport>> join_group(const JoinOptions& options, const RingPlan& plan,
                                              Listener* rendezvous) {
  JIGE_DO(check_place(options.place));
  JIGE_DO(plan.check(options.place.world));
  if (options.place.world == 1) {
    JIGE_TRY(auto transports, make_thread_transports(1, plan));
    return std::move(transports.front());
  }
  Joining joining(options, plan);
  const auto join = [&]() -> Result<std::unique_ptr<Transport>> {
    if (options.place.rank != 0) return joining.as_other();
    if (rendezvous != nullptr) return joining.as_first(*rendezvous);
    JIGE_TRY(Listener listener, Listener::open(options.rendezvous));
    return joining.as_first(listener);
  };
  auto joined = join();
  if (!joined) return tl::unexpected<Error>(joining.cause(std::move(joined.error())));
  return joined;
}

}  // namespace jige::comm

#include "comm/tcp_transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "comm/control_channel.h"
#include "comm/flow.h"
#include "comm/tcp_stream.h"

namespace jige::comm {
namespace {

constexpr int64_t kPushBytes = 64 << 10;  // gathered bytes that go out without waiting for more
constexpr double kReportSeconds = 0.2;    // for the cause of a closed connection to be reported

class TcpTransport final : public Transport {
 public:
  TcpTransport(TcpMesh mesh, const RingPlan& plan)
      : Transport(mesh.rank, mesh.hosts, stream_bytes_of(plan)),
        mesh_(std::move(mesh)),
        control_(std::move(mesh_.control)),
        lanes_(lane_count(plan)),
        interrupts_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    in_.resize(static_cast<size_t>(lanes_ * size()));
    out_.resize(in_.size());
    for (size_t i = 0; i < mesh_.links.size(); ++i) {
      const PlanLink& link = mesh_.links[i];
      Socket& socket = mesh_.sockets[i];
      if (!socket.is_open()) continue;
      const int peer = link.from == rank() ? link.to : link.from;
      if (link.two_way || link.to == rank()) {
        in_[index({peer, link.lane})] = InStream(&socket, stream_bytes());
      }
      if (link.two_way || link.from == rank()) {
        out_[index({peer, link.lane})] = OutStream(&socket, stream_bytes());
      }
    }
  }

  ~TcpTransport() override {
    if (interrupts_ >= 0) ::close(interrupts_);
  }

  const char* kind() const override { return "tcp"; }

  Result<std::span<const std::byte>> ready(Link link) override {
    if (error_) return tl::unexpected<Error>(*error_);
    InStream& stream = in_[index(link)];
    JIGE_TRY(const int64_t came, settled(stream.fill()));
    if (came > 0) control_.note_heard(link.peer);
    return stream.ready();
  }

  std::span<const std::byte> glance(Link link) override {
    if (error_) return {};
    InStream& stream = in_[index(link)];
    const auto came = stream.fill();  // an end is found again where the link is needed
    if (came && *came > 0) control_.note_heard(link.peer);
    return stream.ready();
  }

  void consume(Link link, int64_t bytes) override { in_[index(link)].consume(bytes); }

  Result<std::span<std::byte>> room(Link link) override {
    if (error_) return tl::unexpected<Error>(*error_);
    OutStream& stream = out_[index(link)];
    if (stream.full()) JIGE_DO(settled(stream.push()));
    return stream.room();
  }

  Status commit(Link link, int64_t bytes) override {
    OutStream& stream = out_[index(link)];
    stream.commit(bytes);
    return stream.pending() < kPushBytes ? Status() : settled(stream.push());
  }

  Result<int64_t> write(Link link, std::span<const std::byte> bytes) override {
    if (error_) return tl::unexpected<Error>(*error_);
    return settled(out_[index(link)].write(bytes));
  }

  Result<int64_t> read(Link link, std::span<std::byte> bytes) override {
    if (error_) return tl::unexpected<Error>(*error_);
    JIGE_TRY(const int64_t came, settled(in_[index(link)].read(bytes)));
    if (came > 0) control_.note_heard(link.peer);
    return came;
  }

  Status flush(Deadline deadline) override;
  Status wait(std::span<const Want> wants, Deadline deadline) override;
  void interrupt() override { eventfd_write(interrupts_, 1); }
  void abort(const Error& error) override;
  Error timeout_error(std::span<const Want> wants, double seconds) override;
  double silent_seconds(int rank) const override {
    if (rank == this->rank()) return 0;
    return static_cast<double>(monotonic_ns() - control_.heard_ns(rank)) * 1e-9;
  }

 private:
  size_t index(Link link) const { return static_cast<size_t>(link.lane * size() + link.peer); }

  // Passes a result on; an error becomes that of the group.
  template <typename T>
  Result<T> settled(Result<T> result) {
    if (result) return result;
    return tl::unexpected<Error>(settle(std::move(result.error())));
  }
  Error settle(Error error);

  Status push_all();
  // Whether buffers alone meet a want; connections are not asked.
  bool met(std::span<const Want> wants) const;
  void list_descriptors(std::span<const Want> wants);
  // Whether interrupt() was called since the last time.
  bool was_interrupted() {
    eventfd_t count = 0;
    return eventfd_read(interrupts_, &count) == 0;
  }

  TcpMesh mesh_;
  ControlChannel control_;
  int lanes_;
  int interrupts_;  // an eventfd; without one, a wait lasts until its deadline
  std::vector<InStream> in_;
  std::vector<OutStream> out_;
  std::vector<pollfd> descriptors_;
  std::optional<Error> error_;
};

Error TcpTransport::settle(Error error) {
  if (error_) return *error_;
  if (control_.reported()) {
    error_ = error;
    return error;
  }
  // A connection may be closed because its owner learnt of a failure elsewhere and went: what it
  // reported before is the cause.
  const Deadline deadline = Deadline::after(kReportSeconds);
  for (;;) {
    const Status news = control_.look();
    if (!news && control_.reported()) {
      error_ = news.error();
      return *error_;
    }
    if (deadline.passed()) break;
    descriptors_.clear();
    for (int peer = 0; peer < size(); ++peer) {
      descriptors_.push_back({.fd = control_.fd(peer), .events = POLLIN, .revents = 0});
    }
    poll(descriptors_.data(), descriptors_.size(), std::min(50, deadline.poll_ms()));
  }
  abort(error);
  return error;
}

Status TcpTransport::push_all() {
  for (OutStream& stream : out_) {
    if (stream.pending() > 0) JIGE_DO(settled(stream.push()));
  }
  return {};
}

bool TcpTransport::met(std::span<const Want> wants) const {
  return std::any_of(wants.begin(), wants.end(), [&](const Want& want) {
    if (want.receive) return !in_[index(want.link)].ready().empty();
    const OutStream& out = out_[index(want.link)];
    return !out.full() && !out.blocked();
  });
}

void TcpTransport::list_descriptors(std::span<const Want> wants) {
  descriptors_.clear();
  for (const Want& want : wants) {
    const OutStream& out = out_[index(want.link)];
    if (want.receive) {
      descriptors_.push_back(
          {.fd = in_[index(want.link)].socket()->fd(), .events = POLLIN, .revents = 0});
    } else if (out.pending() == 0) {
      descriptors_.push_back({.fd = out.socket()->fd(), .events = POLLOUT, .revents = 0});
    }
  }
  for (const OutStream& stream : out_) {
    if (stream.pending() == 0) continue;
    descriptors_.push_back({.fd = stream.socket()->fd(), .events = POLLOUT, .revents = 0});
  }
  for (int peer = 0; peer < size(); ++peer) {
    descriptors_.push_back({.fd = control_.fd(peer), .events = POLLIN, .revents = 0});
  }
}

Status TcpTransport::wait(std::span<const Want> wants, Deadline deadline) {
  if (error_) return tl::unexpected<Error>(*error_);
  for (;;) {
    JIGE_DO(push_all());
    control_.beat();  // also where the heartbeats of others end every poll early
    if (was_interrupted() || met(wants) || deadline.passed()) return {};
    list_descriptors(wants);
    descriptors_.insert(descriptors_.begin(), {.fd = interrupts_, .events = POLLIN, .revents = 0});
    const int64_t slice_ms = kHeartbeatNs / 1'000'000;
    const int limit = static_cast<int>(std::min<int64_t>(deadline.poll_ms(), slice_ms));
    const int ready_count = poll(descriptors_.data(), descriptors_.size(), limit);
    bool news = ready_count <= 0;
    bool data = false;
    const size_t data_count = descriptors_.size() - static_cast<size_t>(size());
    for (size_t i = 0; i < descriptors_.size(); ++i) {
      if (descriptors_[i].revents != 0) (i < data_count ? data : news) = true;
    }
    // A rank that has left is no failure here: what it sent may still be under way, and the end of
    // its stream says when nothing more will come.
    if (news) JIGE_DO(settled(control_.look()));
    if (data) return push_all();
  }
}

Status TcpTransport::flush(Deadline deadline) {
  for (;;) {
    if (error_) return tl::unexpected<Error>(*error_);
    JIGE_DO(push_all());
    const auto waiting = std::find_if(out_.begin(), out_.end(),
                                      [](const OutStream& out) { return out.pending() > 0; });
    if (waiting == out_.end()) return {};
    if (deadline.cancelled()) return settled(Status(tl::unexpected<Error>(interruption())));
    if (deadline.passed()) {
      return settled(Status(fail(Code::kUnavailable, "{}: took nothing until the deadline",
                                 waiting->socket()->peer())));
    }
    list_descriptors({});
    poll(descriptors_.data(), descriptors_.size(),
         static_cast<int>(std::min<int64_t>(deadline.poll_ms(), kHeartbeatNs / 1'000'000)));
    control_.beat();
    JIGE_DO(settled(control_.look()));
  }
}

void TcpTransport::abort(const Error& error) {
  if (error_) return;
  error_ = error;
  control_.send_abort(error);
}

Error TcpTransport::timeout_error(std::span<const Want> wants, double seconds) {
  std::vector<double> silent;
  for (int r = 0; r < size(); ++r) silent.push_back(silent_seconds(r));
  return silence_error(wants, seconds, silent);
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(TcpMesh mesh, const RingPlan& plan) {
  return std::make_unique<TcpTransport>(std::move(mesh), plan);
}

}  // namespace jige::comm

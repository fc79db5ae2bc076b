#include "comm/shared_transport.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/check.h"

namespace jige::comm {
namespace {

constexpr int64_t kYieldNs = 30'000;  // about what a sleep and a wake-up cost together
constexpr int kYields = 60;           // likewise
// Pauses of the processor, some hundred microseconds: longer than a rank takes that was asleep
// itself, or else all would take turns in sleeping for a while.
constexpr int kSpins = 10'000;
constexpr int kEagerLooks = 16;  // before the first of them

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void futex_sleep(std::atomic<uint32_t>& word, uint32_t seen, int64_t ns) {
  const timespec limit = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void ring_bell(RankStatus& status) {
  status.doorbell.fetch_add(1);
  futex_wake(status.doorbell);
}

int usable_processors() {
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
}

// One end of a stream, with this side's view of the other's counter.
struct StreamEnd {
  int stream = -1;  // its number in the region; -1: the plan has none
  StreamControl* control = nullptr;
  std::byte* data = nullptr;
  uint64_t capacity = 0;
  uint64_t own = 0;     // tail of a writer, head of a reader
  uint64_t others = 0;  // as last seen
};

class SharedTransport final : public Transport {
 public:
  SharedTransport(std::shared_ptr<SharedRegion> region, int rank, std::vector<std::string> hosts,
                  const RingPlan& plan)
      : Transport(rank, std::move(hosts), stream_bytes_of(plan)),
        region_(std::move(region)),
        pidfds_(static_cast<size_t>(size()), -1) {
    const auto links = static_cast<size_t>(size() * lane_count(plan));
    in_.resize(links);
    out_.resize(links);
    int number = 0;
    for (const PlanStream& stream : plan_streams(plan, size())) {
      if (stream.from == rank) out_[link_index({stream.to, stream.lane})].stream = number;
      if (stream.to == rank) in_[link_index({stream.from, stream.lane})].stream = number;
      ++number;
    }
  }

  ~SharedTransport() override {
    status(rank()).left.store(1);
    for (int r = 0; r < size(); ++r) ring_bell(status(r));
    for (const int fd : pidfds_) {
      if (fd >= 0) ::close(fd);
    }
  }

  const char* kind() const override { return processes_ ? "shm" : "threads"; }

  Status watch(const std::vector<SharedMember>& members) {
    for (int r = 0; r < size(); ++r) {
      const int pid = members[static_cast<size_t>(r)].pid;
      if (pid == 0) continue;
      processes_ = true;
      if (r == rank()) continue;
      const long fd = syscall(SYS_pidfd_open, pid, 0);
      if (fd < 0) {
        return fail(Code::kUnavailable, "{}: its process {} is gone: {}", name(r), pid,
                    std::strerror(errno));
      }
      pidfds_[static_cast<size_t>(r)] = static_cast<int>(fd);
    }
    beat();
    return {};
  }

  Result<std::span<const std::byte>> ready(Link link) override {
    if (error_) return tl::unexpected<Error>(*error_);
    StreamEnd& end = in(link);
    if (end.others == end.own) {
      end.others = end.control->tail.load();
      if (end.others == end.own) JIGE_DO(failure());
      if (end.others - end.own > end.capacity) return damaged(link);
    }
    const uint64_t at = end.own % end.capacity;
    return std::span<const std::byte>(end.data + at,
                                      std::min(end.others - end.own, end.capacity - at));
  }

  void consume(Link link, int64_t bytes) override {
    StreamEnd& end = in(link);
    end.own += static_cast<uint64_t>(bytes);
    end.control->head.store(end.own);
    wake(link.peer);
  }

  Result<std::span<std::byte>> room(Link link) override {
    if (error_) return tl::unexpected<Error>(*error_);
    StreamEnd& end = out(link);
    if (end.own - end.others == end.capacity) {
      end.others = end.control->head.load();
      if (end.own - end.others == end.capacity) JIGE_DO(failure());
      if (end.own - end.others > end.capacity) return damaged(link);
    }
    const uint64_t at = end.own % end.capacity;
    return std::span<std::byte>(end.data + at,
                                std::min(end.capacity - (end.own - end.others), end.capacity - at));
  }

  Status commit(Link link, int64_t bytes) override {
    StreamEnd& end = out(link);
    end.own += static_cast<uint64_t>(bytes);
    end.control->tail.store(end.own);
    wake(link.peer);
    return {};
  }

  Status flush(Deadline) override { return failure(); }

  Status wait(std::span<const Want> wants, Deadline deadline) override;
  bool linger(int looks) override {
    if (!crowded_) {
      if (looks >= kEagerLooks) _mm_pause();
      return looks < kSpins;
    }
    sched_yield();
    return looks < kYields;
  }
  void interrupt() override {
    interrupted_.store(true);
    ring_bell(status(rank()));
  }
  void abort(const Error& error) override;
  Error timeout_error(std::span<const Want> wants, double seconds) override;
  double silent_seconds(int rank) const override {
    return static_cast<double>(monotonic_ns() - status(rank).heard_ns.load()) * 1e-9;
  }

 private:
  RankStatus& status(int rank) const { return region_->status(rank); }
  size_t link_index(Link link) const { return static_cast<size_t>(link.lane * size() + link.peer); }
  StreamEnd& in(Link link) { return ready_end(in_[link_index(link)], link, false); }
  StreamEnd& out(Link link) { return ready_end(out_[link_index(link)], link, true); }
  StreamEnd& ready_end(StreamEnd& end, Link link, bool writes) {
    if (end.control == nullptr) {
      JIGE_CHECK(end.stream >= 0, "the plan has no lane {} between ranks {} and {}", link.lane,
                 rank(), link.peer);
      end.control = &region_->control(end.stream);
      end.data = region_->buffer(end.stream);
      end.capacity = static_cast<uint64_t>(region_->capacity(end.stream));
      end.own = writes ? end.control->tail.load() : end.control->head.load();
      end.others = writes ? end.control->head.load() : end.control->tail.load();
    }
    return end;
  }

  void wake(int peer) {
    if (status(peer).sleeping.load() != 0) ring_bell(status(peer));
  }
  void beat() { status(rank()).heard_ns.store(monotonic_ns(), std::memory_order_relaxed); }

  tl::unexpected<Error> damaged(Link link) {
    return fail(Code::kCorrupt, "the stream with {} has impossible counters", name(link.peer));
  }
  bool met(std::span<const Want> wants);
  // The error of the group, if it has one.
  Status failure();
  // Looks for processes that have ended and for waits that nobody can end.
  Status look_around(std::span<const Want> wants);

  std::shared_ptr<SharedRegion> region_;
  std::vector<int> pidfds_;
  std::vector<StreamEnd> in_;
  std::vector<StreamEnd> out_;
  bool processes_ = false;
  bool crowded_ = size() > usable_processors();  // ranks must leave processors to one another
  std::atomic<bool> interrupted_{false};
  std::optional<Error> error_;
};

bool SharedTransport::met(std::span<const Want> wants) {
  for (const Want& want : wants) {
    if (want.receive) {
      const StreamEnd& end = in(want.link);
      if (end.control->tail.load() != end.own) return true;
    } else {
      const StreamEnd& end = out(want.link);
      if (end.own - end.control->head.load() < end.capacity) return true;
    }
  }
  return false;
}

Status SharedTransport::failure() {
  if (error_) return tl::unexpected<Error>(*error_);
  for (int r = 0; r < size(); ++r) {
    RankStatus& other = status(r);
    if (r == rank() || other.aborting.load() != 2) continue;
    const size_t length = strnlen(other.abort_text, sizeof other.abort_text);
    const int code = std::clamp(other.abort_code, 0, static_cast<int>(Code::kCancelled));
    error_ = reported_error(name(r), static_cast<Code>(code),
                            std::string_view(other.abort_text, length));
    return tl::unexpected<Error>(*error_);
  }
  return {};
}

Status SharedTransport::look_around(std::span<const Want> wants) {
  JIGE_DO(failure());
  for (int r = 0; r < size(); ++r) {
    const int fd = pidfds_[static_cast<size_t>(r)];
    pollfd entry = {.fd = fd, .events = POLLIN, .revents = 0};
    if (fd < 0 || poll(&entry, 1, 0) <= 0) continue;
    if (status(r).left.load() != 0) continue;
    JIGE_DO(failure());
    return fail(Code::kUnavailable, "{}: its process has ended in the middle of an operation",
                name(r));
  }
  for (const Want& want : wants) {
    if (status(want.link.peer).left.load() == 0 || met(std::span(&want, 1))) continue;
    JIGE_DO(failure());
    return fail(Code::kUnavailable, "{}: has left the group while others wait for it",
                name(want.link.peer));
  }
  return {};
}

Status SharedTransport::wait(std::span<const Want> wants, Deadline deadline) {
  if (interrupted_.exchange(false) || met(wants)) return {};
  const int64_t yield_until = monotonic_ns() + kYieldNs;
  while (monotonic_ns() < yield_until) {
    sched_yield();
    if (met(wants)) return {};
  }
  RankStatus& own = status(rank());
  for (;;) {
    beat();
    const uint32_t seen = own.doorbell.load();
    own.sleeping.store(1);
    const bool moved = met(wants) || interrupted_.load();
    Status alright = moved ? Status() : look_around(wants);
    if (!moved && alright && !deadline.passed()) {
      futex_sleep(own.doorbell, seen, std::min(deadline.left_ns(), kHeartbeatNs));
    }
    own.sleeping.store(0);
    if (!alright) {
      abort(alright.error());
      return alright;
    }
    if (interrupted_.exchange(false) || met(wants) || deadline.passed()) return {};
  }
}

void SharedTransport::abort(const Error& error) {
  if (error_) return;
  error_ = error;
  RankStatus& own = status(rank());
  uint32_t none = 0;
  if (own.aborting.compare_exchange_strong(none, 1)) {
    own.abort_code = static_cast<int32_t>(error.code);
    const size_t length = std::min(error.message.size(), sizeof own.abort_text - 1);
    std::memcpy(own.abort_text, error.message.data(), length);
    own.abort_text[length] = '\0';
    own.aborting.store(2);
  }
  for (int r = 0; r < size(); ++r) ring_bell(status(r));
}

Error SharedTransport::timeout_error(std::span<const Want> wants, double seconds) {
  std::vector<double> silent;
  for (int r = 0; r < size(); ++r) silent.push_back(silent_seconds(r));
  return silence_error(wants, seconds, silent);
}

}  // namespace

RegionShape region_shape(int size, const RingPlan& plan) {
  RegionShape shape = {
      .size = size, .small_bytes = kDirectStreamBytes, .large_bytes = stream_bytes_of(plan)};
  for (const PlanStream& stream : plan_streams(plan, size)) {
    ++(is_ring_lane(plan, stream.lane) ? shape.large_streams : shape.small_streams);
  }
  return shape;
}

Result<std::unique_ptr<Transport>> make_shared_transport(std::shared_ptr<SharedRegion> region,
                                                         int rank, const RingPlan& plan,
                                                         const std::vector<SharedMember>& members) {
  std::vector<std::string> hosts;
  for (const SharedMember& member : members) hosts.push_back(member.host);
  auto transport =
      std::make_unique<SharedTransport>(std::move(region), rank, std::move(hosts), plan);
  JIGE_DO(transport->watch(members));
  return std::unique_ptr<Transport>(std::move(transport));
}

Result<std::vector<std::unique_ptr<Transport>>> make_thread_transports(int size,
                                                                       const RingPlan& plan) {
  JIGE_TRY(SharedRegion made, SharedRegion::for_threads(region_shape(size, plan)));
  const auto region = std::make_shared<SharedRegion>(std::move(made));
  const std::vector<SharedMember> members(static_cast<size_t>(size), {.host = "thread"});
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < size; ++r) {
    JIGE_TRY(auto transport, make_shared_transport(region, r, plan, members));
    transports.push_back(std::move(transport));
  }
  return transports;
}

}  // namespace jige::comm

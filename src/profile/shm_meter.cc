#include "profile/shm_meter.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "base/cpu.h"
#include "base/log.h"
#include "comm/shared_transport.h"
#include "profile/agent_wire.h"
#include "profile/link_agent.h"

namespace jige::profile {
namespace {

constexpr int64_t kUsualReduceBytes = int64_t{32} << 20;
constexpr const char* kLoopback = "127.0.0.1";
constexpr int64_t kRankLeadNs = 2'000'000;  // for the orders to reach all before the start
constexpr double kGraceSeconds = 2;         // for ranks that gave up to say why
constexpr int kLookMs = 200;                // for the kernel to tell of a process that ended

std::string ending_of(int code) {
  if (code > 128) return fmt::format("was ended by signal {}", code - 128);
  return fmt::format("ended with code {}", code);
}

}  // namespace

Result<std::unique_ptr<ShmMeter>> ShmMeter::start(std::vector<LocalPlace> places,
                                                  const ShmMeterOptions& options) {
  std::set<int> processors;
  for (const LocalPlace& place : places) {
    processors.insert(place.processors.begin(), place.processors.end());
  }
  if (processors.size() < places.size()) {
    log_warn("{} processes share {} processors: rates tell of waiting for a turn as well",
             places.size(), processors.size());
  }
  std::unique_ptr<ShmMeter> meter(new ShmMeter(std::move(places), options));
  JIGE_DO(meter->start_ranks());
  return meter;
}

Status ShmMeter::start_ranks() {
  const auto size = static_cast<int>(places_.size());
  JIGE_TRY(comm::SharedRegion made,
           comm::SharedRegion::for_processes(comm::region_shape(size, {})));
  const auto region = std::make_shared<comm::SharedRegion>(std::move(made));
  std::vector<comm::SharedMember> members;  // without processes: this one looks after them
  std::vector<comm::Socket> here, there;
  for (const LocalPlace& place : places_) {
    members.push_back({.host = place.name});
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return fail(Code::kExhausted, "no connection to the process {}: {}", place.name,
                  std::strerror(errno));
    }
    here.emplace_back(ends[0], place.name);
    there.emplace_back(ends[1], "the profiler");
  }
  const auto serve = [&](int rank) {
    std::signal(SIGINT, SIG_IGN);  // the profiler hears it, and ends the ranks
    comm::Socket control = std::move(there[static_cast<size_t>(rank)]);
    here.clear();
    there.clear();
    auto transport = comm::make_shared_transport(region, rank, {}, members);
    if (!transport) return 1;
    ShmRankOptions options = options_.rank;
    options.place = places_[static_cast<size_t>(rank)];
    return serve_shm_rank(options, std::move(*transport), control);
  };
  JIGE_TRY(comm::LocalRanks ranks, comm::LocalRanks::start(size, serve));
  ranks_.emplace(std::move(ranks));
  for (size_t i = 0; i < here.size(); ++i) {
    here[i].rename(fmt::format("{} (process {})", places_[i].name, pid(i)));
  }
  controls_ = std::move(here);
  flows().forget_checked();
  return {};
}

pid_t ShmMeter::pid(size_t place) const {
  return ranks_ ? ranks_->pid(static_cast<int>(place)) : -1;
}

topology::Description ShmMeter::description() const {
  return places_description(places_, {{"kernel", kernel_release()},
                                      {"processor", cpu_features().model_name},
                                      {"transport", "shared memory"}});
}

Result<SetRun> ShmMeter::run_places(const std::vector<FlowMember>& members, int64_t bytes) {
  RunMessage order{.start_ns = comm::monotonic_ns() + kRankLeadNs,
                   .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  const ProcessorTime before = processor_time();
  std::set<size_t> started;
  for (size_t place = 0; place < places_.size(); ++place) {
    order.flows.clear();
    order.bytes.clear();
    for (const FlowMember& member : members) {
      if (member.src != place && member.dst != place) continue;
      order.flows.push_back(member.flow);
      order.bytes.push_back(member_bytes(bytes, member.share));
    }
    if (order.flows.empty()) continue;
    JIGE_DO(send_message(controls_[place], order, comm::Deadline::after(kGraceSeconds)));
    started.insert(place);
  }
  JIGE_TRY(SetRun run, gather(members, std::move(started)));
  busy_.add(0, processor_time() - before);
  busy_.warn();
  return run;
}

Result<SetRun> ShmMeter::gather(const std::vector<FlowMember>& members, std::set<size_t> waiting) {
  // Ranks give up by themselves, and then say why; later there is nobody to say it.
  const comm::Deadline deadline = comm::Deadline::after(options_.run_timeout_s + kGraceSeconds);
  std::vector<FlowTimes> times(members.size());
  while (!waiting.empty()) {
    JIGE_DO(check_cancelled(options_.cancelled));
    std::vector<pollfd> entries;
    for (const size_t place : waiting) entries.push_back({controls_[place].fd(), POLLIN, 0});
    poll(entries.data(), entries.size(), deadline.unless(options_.cancelled).poll_ms());
    const std::vector<size_t> asked(waiting.begin(), waiting.end());
    for (size_t e = 0; e < entries.size(); ++e) {
      if (entries[e].revents == 0) continue;
      const size_t place = asked[e];
      JIGE_TRY(const RanMessage ran, receive<RanMessage>(controls_[place], deadline));
      waiting.erase(place);
      size_t next = 0;
      for (size_t i = 0; i < members.size(); ++i) {
        if (members[i].src != place && members[i].dst != place) continue;
        if (next >= ran.times.size()) break;
        const FlowTimes& t = ran.times[next++];
        // The sender knows the start, the receiver the end.
        (members[i].src == place ? times[i].begin_ns : times[i].end_ns) =
            members[i].src == place ? t.begin_ns : t.end_ns;
      }
    }
    if (!waiting.empty() && deadline.passed()) {
      return fail(Code::kUnavailable, "no answer from {} within {:.1f} s",
                  controls_[*waiting.begin()].peer(), options_.run_timeout_s + kGraceSeconds);
    }
  }
  return set_run(times);
}

Result<CollectiveTimes> ShmMeter::collective(const CollectiveTask& task) {
  JIGE_DO(start_places());
  auto times = run(task);
  if (!times) return tl::unexpected<Error>(end_places(std::move(times.error())));
  return times;
}

Result<CollectiveTimes> ShmMeter::run(const CollectiveTask& task) {
  JIGE_DO(check_cancelled(options_.cancelled));
  const comm::Deadline soon = comm::Deadline::after(kGraceSeconds);
  const CollectivePeers peers{
      .number = [this](int32_t component) { return flows().place_of(component); },
      .listen = [&](size_t place) -> Result<int> {
        JIGE_DO(send_message(controls_[place], ListenMessage{kLoopback}, soon));
        JIGE_TRY(const auto listening, receive<ListeningMessage>(controls_[place], soon));
        return static_cast<int>(listening.port);
      },
      .start =
          [&](size_t place, CollectMessage& rank) {
            rank.own = kLoopback;
            return send_message(controls_[place], rank, soon);
          },
      .finish = [&](size_t place, comm::Deadline deadline) -> Result<std::vector<int64_t>> {
        JIGE_DO(wait_for(place, deadline));
        JIGE_TRY(CollectedMessage collected, receive<CollectedMessage>(controls_[place], deadline));
        return std::move(collected.times_ns);
      },
      .address = [](size_t) { return std::string(kLoopback); },
      .name = [&](size_t place) { return controls_[place].peer(); }};
  const CollectMessage message{.bytes = std::min(largest_bytes(), kUsualReduceBytes),
                               .timeout_ms = static_cast<int64_t>(options_.run_timeout_s * 1e3)};
  return time_collective(task, message, peers,
                         comm::Deadline::after(2 * options_.run_timeout_s + kGraceSeconds));
}

// Until this one answers. Fails as soon as any process ends, for the others may wait for it long.
Status ShmMeter::wait_for(size_t place, comm::Deadline deadline) {
  while (!deadline.passed()) {
    JIGE_DO(check_cancelled(options_.cancelled));
    std::vector<pollfd> entries;
    for (size_t i = 0; i < controls_.size(); ++i) {
      entries.push_back({controls_[i].fd(), static_cast<short>(i == place ? POLLIN : 0), 0});
    }
    poll(entries.data(), entries.size(), deadline.unless(options_.cancelled).poll_ms());
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i == place || (entries[i].revents & (POLLHUP | POLLERR)) == 0) continue;
      // What it said last explains more than that it ended.
      JIGE_TRY(const CollectedMessage last, receive<CollectedMessage>(controls_[i], deadline));
      return fail(Code::kUnavailable, "{} ended after {} collectives", controls_[i].peer(),
                  last.times_ns.size());
    }
    if (entries[place].revents != 0) return {};
  }
  return fail(Code::kUnavailable, "no answer from {}", controls_[place].peer());
}

// A process that has ended explains more than what the others say of it. All end here; the next
// measurement starts them again.
Error ShmMeter::end_places(Error error) {
  std::vector<std::string> ended;
  for (int ms = 0; error.code == Code::kUnavailable && ended.empty() && ms < kLookMs; ms += 10) {
    if (ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ranks_->look();
    for (size_t i = 0; i < places_.size(); ++i) {
      const auto code = ranks_->exit_code(static_cast<int>(i));
      // 1 is the end of those that told why.
      if (code && *code != 1) {
        ended.push_back(fmt::format("{} {}", controls_[i].peer(), ending_of(*code)));
      }
    }
  }
  ranks_.reset();
  controls_.clear();
  if (ended.empty()) return error;
  return {Code::kUnavailable, fmt::format("{}; run this again, which goes on from the store ({})",
                                          fmt::join(ended, ", "), error.message)};
}

}  // namespace jige::profile

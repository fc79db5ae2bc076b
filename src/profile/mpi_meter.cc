#include "profile/mpi_meter.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/cpu.h"
#include "profile/agent_wire.h"

namespace jige::profile {
namespace {

constexpr double kRankAnswerSeconds = 4;  // beyond the ranks' own timeout, which tells more
constexpr double kEndSeconds = 1;         // for mpirun to end, once it has closed the connection

std::vector<std::string> place_names(std::span<const MpiPlace> places) {
  std::vector<std::string> names;
  for (const MpiPlace& place : places) names.push_back(place.place.name);
  return names;
}

SetTiming timing_of(const MpiMeterOptions& options, std::span<const MpiPlace> places) {
  // What a network's queues let through at once must not count for much.
  const double usual_s = places.front().host.empty() ? 0.05 : 0.12;
  return {.bytes = options.bytes,
          .run_s = options.run_s > 0 ? options.run_s : usual_s,
          .repeats = options.repeats,
          .cancelled = options.cancelled};
}

}  // namespace

MpiMeter::MpiMeter(std::vector<MpiPlace> places, const MpiMeterOptions& options)
    : PlaceMeter(place_names(places), "--mpi", timing_of(options, places)),
      places_(std::move(places)),
      options_(options) {}

Result<std::unique_ptr<MpiMeter>> MpiMeter::start(std::vector<MpiPlace> places,
                                                  const MpiMeterOptions& options) {
  std::unique_ptr<MpiMeter> meter(new MpiMeter(std::move(places), options));
  JIGE_DO(meter->start_ranks());
  return meter;
}

Status MpiMeter::start_ranks() {
  JIGE_TRY(launch_, MpiLaunch::start(options_.launch, places_));
  const comm::Deadline deadline = comm::Deadline::after(options_.start_timeout_s);
  const auto answer = [&]() -> Result<RanksMessage> {
    JIGE_DO(await_answer(launch_->control(), deadline, options_.cancelled));
    return receive<RanksMessage>(launch_->control(), deadline);
  };
  auto ranks = answer();
  if (!ranks) return tl::unexpected<Error>(end_places(std::move(ranks.error())));
  if (ranks->hosts.size() != places_.size()) {
    return tl::unexpected<Error>(
        end_places({Code::kCorrupt, fmt::format("MPI started {} ranks for {} places",
                                                ranks->hosts.size(), places_.size())}));
  }
  ranks_ = std::move(*ranks);
  flows().forget_checked();
  return {};
}

topology::Description MpiMeter::description() const {
  std::map<std::string, std::string> facts = {
      {"transport", "MPI"},
      {"mpi", ranks_.library},
      {"mpi launcher", fmt::format("{}", fmt::join(options_.launch.launcher, " "))}};
  const bool here = places_.front().host.empty();
  if (here) facts["processor"] = cpu_features().model_name;
  if (here) facts["kernel"] = ranks_.kernels.front();
  for (size_t i = 0; i < places_.size() && !here; ++i) {
    facts["host of " + places_[i].place.name] = ranks_.hosts[i];
    facts["kernel of " + places_[i].place.name] = ranks_.kernels[i];
  }
  return mpi_description(places_, std::move(facts));
}

Result<SetRun> MpiMeter::run_places(const std::vector<FlowMember>& members, int64_t bytes) {
  RunMessage order{.timeout_ms =
                       std::max<int64_t>(1, static_cast<int64_t>(options_.run_timeout_s * 1e3))};
  for (const FlowMember& member : members) {
    order.flows.push_back(member.flow);
    order.bytes.push_back(member_bytes(bytes, member.share));
  }
  const comm::Deadline deadline =
      comm::Deadline::after(options_.run_timeout_s + kRankAnswerSeconds);
  const ProcessorTime before = processor_time();
  JIGE_DO(send_message(launch_->control(), order, deadline));
  JIGE_DO(await_answer(launch_->control(), deadline, options_.cancelled));
  JIGE_TRY(const RanMessage ran, receive<RanMessage>(launch_->control(), deadline));
  if (ran.times.size() != members.size()) {
    return fail(Code::kCorrupt, "MPI's ranks timed {} transfers, not {}", ran.times.size(),
                members.size());
  }
  if (places_.front().host.empty()) {
    busy_.add(0, processor_time() - before);
    busy_.warn();
  }
  return set_run(ran.times);
}

// mpirun's own end, in its words, explains more than that it is gone; what a rank said, nothing
// can.
Error MpiMeter::end_places(Error error) {
  const comm::Deadline deadline = comm::Deadline::after(kEndSeconds);
  const bool closed = launch_->closed();
  while (closed && !launch_->exit_code() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::optional<int> code = closed ? launch_->exit_code() : std::nullopt;
  const std::string said = launch_->said();
  launch_->end_now();
  launch_.reset();
  if (!code) return error;
  return {Code::kUnavailable,
          fmt::format("{} ended with code {}; run this again, which goes on from the store ({})",
                      options_.launch.launcher[0], *code, said.empty() ? error.message : said)};
}

}  // namespace jige::profile

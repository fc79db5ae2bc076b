#include "cluster/simulation.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

namespace jige::cluster {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// Rounds on an empty cluster, with nobody left to arrive, before a policy counts as stuck.
constexpr int64_t kIdleRoundsMax = 1000;
constexpr int64_t kInstantsBetweenLooks = 256;

class Simulation {
 public:
  Simulation(const ClusterSpec& spec, const Workload& workload,
             std::unique_ptr<Contention> contention, Policy& policy,
             const SimulationOptions& options)
      : jobs_(workload.jobs),
        policy_(policy),
        options_(options),
        record_(spec, options.record_links),
        cluster_(spec, workload.jobs, std::move(contention), &record_),
        refused_(workload.jobs.size()) {
    cluster_.set_colocation(options.colocation);
  }

  Result<SimulationResult> run() {
    while (true) {
      const int64_t next_ns = next_instant_ns();
      if (next_ns == kNever) break;
      if (next_ns > kSimulatedMax_ns) {
        return simulated_too_long(cluster_.running().size() +
                                  static_cast<size_t>(cluster_.waiting_count()));
      }
      cluster_.advance_to(next_ns);
      finish_due();
      arrive_due();
      const bool is_round = next_ns == next_round_ns_;
      policy_.schedule(cluster_, is_round);
      ++decisions_;
      cluster_.refresh();
      plan_ends();
      plan_round();
      JIGE_DO(check_progress(is_round));
    }
    if (cluster_.waiting_count() > 0) return stuck();
    return result();
  }

 private:
  using End = std::tuple<int64_t, JobId, uint32_t>;  // time, job, its stint

  int64_t next_instant_ns() {
    while (!ends_.empty() &&
           cluster_.at(std::get<1>(ends_.top())).stint != std::get<2>(ends_.top())) {
      ends_.pop();
    }
    int64_t next_ns = next_round_ns_;
    if (!ends_.empty()) next_ns = std::min(next_ns, std::get<0>(ends_.top()));
    if (next_job_ < jobs_.size()) next_ns = std::min(next_ns, jobs_[next_job_].arrival_ns);
    return next_ns;
  }

  void finish_due() {
    while (!ends_.empty() && std::get<0>(ends_.top()) <= cluster_.now_ns()) {
      const auto [end_ns, id, stint] = ends_.top();
      ends_.pop();
      if (cluster_.at(id).stint != stint) continue;
      cluster_.finish(id);
      policy_.finished(cluster_, id);
    }
  }

  void arrive_due() {
    while (next_job_ < jobs_.size() && jobs_[next_job_].arrival_ns <= cluster_.now_ns()) {
      const auto id = static_cast<JobId>(next_job_++);
      std::string reason = why_never(cluster_.job(id), cluster_.spec());
      if (!reason.empty()) {
        refused_[static_cast<size_t>(id)] = std::move(reason);
        cluster_.refuse(id);
        continue;
      }
      cluster_.arrive(id);
      policy_.arrived(cluster_, id);
    }
  }

  void plan_ends() {
    for (const JobId id : cluster_.take_changed()) {
      ++rate_changes_;
      ends_.emplace(cluster_.planned_end_ns(id), id, cluster_.at(id).stint);
    }
  }

  // Rounds are at multiples of their length, while anybody is there.
  void plan_round() {
    next_round_ns_ = kNever;
    const int64_t length_ns = policy_.round_ns();
    if (length_ns <= 0) return;
    if (cluster_.running().empty() && cluster_.waiting_count() == 0) return;
    next_round_ns_ = (cluster_.now_ns() / length_ns + 1) * length_ns;
  }

  Status check_progress(bool is_round) {
    if (options_.cancel && decisions_ % kInstantsBetweenLooks == 0 && options_.cancel->load()) {
      return fail(Code::kCancelled, "by a signal, at {:.0f} s of the simulated time",
                  static_cast<double>(cluster_.now_ns()) / kSecond);
    }
    const bool idle = cluster_.running().empty() && next_job_ == jobs_.size();
    idle_rounds_ = idle && is_round ? idle_rounds_ + 1 : 0;
    if (idle_rounds_ < kIdleRoundsMax) return {};
    return stuck();
  }

  tl::unexpected<Error> stuck() const {
    return fail(Code::kInternal, "the policy leaves {} jobs waiting on an empty cluster",
                cluster_.waiting_count());
  }

  SimulationResult result() {
    SimulationResult result{.outcomes = {},
                            .record = std::move(record_),
                            .end_ns = cluster_.now_ns(),
                            .decisions = decisions_,
                            .rate_changes = rate_changes_};
    result.outcomes.reserve(jobs_.size());
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const auto id = static_cast<JobId>(i);
      const JobState& state = cluster_.at(id);
      result.outcomes.push_back({.arrival_ns = jobs_[i].arrival_ns,
                                 .first_start_ns = state.first_start_ns,
                                 .finish_ns = state.finish_ns,
                                 .held_ns = state.held_ns,
                                 .restart_ns = state.restart_ns,
                                 .alone_ns = cluster_.alone_ns(id),
                                 .gpus = jobs_[i].gpus,
                                 .preemptions = state.preemptions,
                                 .migrations = state.migrations,
                                 .refused = std::move(refused_[i])});
    }
    return result;
  }

  const std::vector<Job>& jobs_;
  Policy& policy_;
  const SimulationOptions& options_;
  Recorder record_;
  ClusterState cluster_;
  std::vector<std::string> refused_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  size_t next_job_ = 0;
  int64_t next_round_ns_ = kNever;
  int64_t decisions_ = 0, rate_changes_ = 0, idle_rounds_ = 0;
};

}  // namespace

tl::unexpected<Error> simulated_too_long(size_t jobs_left) {
  return fail(Code::kExhausted, "the simulated time passes {:.0f} years with {} jobs left",
              static_cast<double>(kSimulatedMax_ns) / kSecond / 31'557'600, jobs_left);
}

Result<SimulationResult> simulate(const ClusterSpec& spec, const Workload& workload,
                                  std::unique_ptr<Contention> contention, Policy& policy,
                                  const SimulationOptions& options) {
  return Simulation(spec, workload, std::move(contention), policy, options).run();
}

}  // namespace jige::cluster

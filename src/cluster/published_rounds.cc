#include "cluster/published_rounds.h"

#include <algorithm>
#include <functional>

#include "cluster/contention.h"
#include "cluster/free_gpus.h"

namespace jige::cluster {
namespace {

using RoundOrder = RoundRules::Order;

constexpr int64_t kRound_s = 300;
constexpr int64_t kRound_ns = kRound_s * kSecond;

class RoundSimulation {
 public:
  RoundSimulation(const ClusterSpec& spec, const std::vector<SampleJob>& jobs,
                  const RateTable& rates, Workload workload, const SlowdownTable& table,
                  const RoundRules& rules)
      : spec_(spec),
        traced_(jobs),
        rates_(rates),
        workload_(std::move(workload)),
        rules_(rules),
        free_(spec),
        states_(jobs.size()),
        contention_(make_table_contention(spec, table, workload_.models)),
        record_(spec, false) {
    for (size_t i = 0; i < jobs.size(); ++i) queue_.push_back(static_cast<JobId>(i));
    // The back-end is asked for shares of what a job does alone, which is then 1 exactly.
    for (Job& job : workload_.jobs) job.compute_ns = 1;
  }

  Result<SimulationResult> run(const std::atomic<bool>* cancel) {
    while (!queue_.empty() || !running_.empty()) {
      if (cancel && cancel->load()) return fail(Code::kCancelled, "by a signal");
      if (round_ > kSimulatedMax_ns / kRound_ns) {
        return simulated_too_long(queue_.size() + running_.size());
      }
      place_jobs();
      if (running_.empty()) {
        return fail(Code::kInvalidArgument, "job {} does not fit an empty cluster",
                    traced_[static_cast<size_t>(queue_.front())].name);
      }
      record_.held(round_ * kRound_ns, (round_ + 1) * kRound_ns, spec_.gpu_count() - free_.total());
      update_shares();
      progress();
      if (rules_.preempts) stop_all();
      ++round_;
    }
    return result();
  }

 private:
  struct State {
    Placement placement;
    double rate = 0, share = 1;  // of its stint
    double done = 0;             // samples
    int64_t rounds = 0;
    int64_t first_round = -1, last_round = 0;
    int32_t starts = 0;
  };
  State& at(JobId id) { return states_[static_cast<size_t>(id)]; }

  void sort_queue() {
    if (rules_.order == RoundOrder::kMostAttained) {
      std::ranges::stable_sort(queue_, std::greater<>(), [&](JobId id) { return at(id).rounds; });
    } else if (rules_.order == RoundOrder::kLeastDone) {
      std::ranges::stable_sort(queue_, {}, [&](JobId id) {
        return at(id).done / traced_[static_cast<size_t>(id)].samples;
      });
    }
  }

  void place_jobs() {
    sort_queue();
    std::vector<JobId> left;
    for (size_t i = 0; i < queue_.size(); ++i) {
      if (start(queue_[i])) continue;
      left.push_back(queue_[i]);
      if (rules_.skips) continue;
      left.insert(left.end(), queue_.begin() + static_cast<std::ptrdiff_t>(i) + 1, queue_.end());
      break;
    }
    queue_ = std::move(left);
  }

  bool start(JobId id) {
    const SampleJob& job = traced_[static_cast<size_t>(id)];
    std::vector<int32_t> spreads = rates_.spreads(job, spec_);
    if (rules_.widest_first) std::ranges::reverse(spreads);
    for (const int32_t nodes : spreads) {
      Placement placement;
      for (int32_t node = 0; node < spec_.node_count(); ++node) {
        if (std::ssize(placement) == nodes) break;
        if (free_.on_node(node) >= job.gpus / nodes) placement.push_back({node, job.gpus / nodes});
      }
      if (std::ssize(placement) < nodes) continue;
      free_.take(placement);
      contention_->start(id, workload_.jobs[static_cast<size_t>(id)], placement);
      State& state = at(id);
      state.placement = std::move(placement);
      state.rate = rates_.rate({job.model, job.gpus, nodes});
      state.share = 1;
      if (state.starts++ == 0) state.first_round = round_;
      running_.push_back(id);
      return true;
    }
    return false;
  }

  void update_shares() {
    contention_->settle();
    for (const JobId id : running_) at(id).share = std::min(at(id).share, contention_->rate(id));
  }

  // A job that leaves moves all behind it up, and the next one is passed over.
  void progress() {
    for (size_t i = 0; i < running_.size(); ++i) {
      const JobId id = running_[i];
      State& state = at(id);
      state.done += state.rate * state.share * static_cast<double>(kRound_s);
      ++state.rounds;
      const double left = traced_[static_cast<size_t>(id)].samples - state.done;
      if (left > 0 && left >= state.share * static_cast<double>(kRound_s)) continue;
      state.last_round = round_;
      stop(id);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void stop(JobId id) {
    contention_->stop(id);
    free_.give(at(id).placement);
  }

  void stop_all() {
    for (const JobId id : running_) stop(id);
    queue_.insert(queue_.end(), running_.begin(), running_.end());
    running_.clear();
  }

  SimulationResult result() {
    SimulationResult result{.outcomes = {},
                            .record = std::move(record_),
                            .end_ns = round_ * kRound_ns,
                            .decisions = round_};
    for (size_t i = 0; i < states_.size(); ++i) {
      const State& state = states_[i];
      result.outcomes.push_back({.first_start_ns = state.first_round * kRound_ns,
                                 .finish_ns = (state.last_round + 1) * kRound_ns,
                                 .held_ns = state.rounds * kRound_ns,
                                 .alone_ns = workload_.jobs[i].iterations * kSecond,
                                 .gpus = traced_[i].gpus,
                                 .preemptions = state.starts - 1,
                                 .refused = {}});
    }
    return result;
  }

  ClusterSpec spec_;
  const std::vector<SampleJob>& traced_;
  const RateTable& rates_;
  Workload workload_;
  RoundRules rules_;
  FreeGpus free_;
  std::vector<State> states_;
  std::unique_ptr<Contention> contention_;
  Recorder record_;
  std::vector<JobId> queue_, running_;  // in the order of starts
  int64_t round_ = 0;
};

}  // namespace

std::optional<RoundRules> round_rules(std::string_view name) {
  if (name == "published-las") return RoundRules{.order = RoundOrder::kMostAttained};
  if (name == "published-srtf") return RoundRules{.order = RoundOrder::kLeastDone};
  if (name == "published-fifo") return RoundRules{.skips = true, .preempts = false};
  if (name == "published-fifo-narrow") {
    return RoundRules{.skips = true, .preempts = false, .widest_first = false};
  }
  return std::nullopt;
}

Result<SimulationResult> simulate_rounds(const ClusterSpec& spec,
                                         const std::vector<SampleJob>& jobs, const RateTable& rates,
                                         const SlowdownTable& table, const RoundRules& rules,
                                         const std::atomic<bool>* cancel) {
  const Spread spread = rules.widest_first ? Spread::kWidest : Spread::kFewest;
  JIGE_TRY(Workload workload, to_workload(jobs, rates, spread, spec, "trace"));
  return RoundSimulation(spec, jobs, rates, std::move(workload), table, rules).run(cancel);
}

}  // namespace jige::cluster

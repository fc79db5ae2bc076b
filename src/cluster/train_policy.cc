#include "cluster/train_policy.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "cluster/policy_list.h"

namespace jige::cluster {
namespace {

constexpr double kHorizonLengths = 10;   // mean lengths over which the future counts
constexpr double kRewardJobs = 50;       // jobs in the system that make the reward -1 a length
constexpr double kRoundDiscount = 0.99;  // of the published reward

double mean_jct_ns(const SimulationResult& result) {
  double sum = 0;
  for (const JobOutcome& job : result.outcomes) {
    sum += static_cast<double>(job.finish_ns - job.arrival_ns);
  }
  return sum / static_cast<double>(result.outcomes.size());
}

void set_rewards(Episode& episode, const SimulationResult& result) {
  std::vector<int64_t> times_ns = episode.times_ns;
  times_ns.push_back(result.end_ns);
  const std::vector<double> integral = jobs_in_system(result, times_ns);
  double length_ns = 0;
  for (const JobOutcome& job : result.outcomes) {
    length_ns += job.alone_ns / static_cast<double>(result.outcomes.size());
  }
  for (size_t i = 0; i < episode.steps.size(); ++i) {
    const auto passed_ns = static_cast<double>(times_ns[i + 1] - times_ns[i]);
    episode.steps[i].reward = -(integral[i + 1] - integral[i]) / (length_ns * kRewardJobs);
    episode.steps[i].discount = std::exp(-passed_ns / (length_ns * kHorizonLengths));
  }
}

Result<SimulationResult> run_with(const TrainPolicyOptions& options, const Workload& workload,
                                  std::unique_ptr<Placer> placer) {
  QueuePolicy policy(greedy_queue_options(), make_order({.kind = OrderKind::kSrsf}),
                     std::move(placer));
  return simulate(options.spec, workload, make_link_contention(options.spec, options.links), policy,
                  {.cancel = options.cancel});
}

// The episodes of one iteration, with their advantages.
Result<std::vector<PpoStep>> play(const TrainPolicyOptions& options,
                                  const std::shared_ptr<PolicyNetwork>& network, Rng& loads,
                                  TrainPolicyPoint& point) {
  if (options.cancel && options.cancel->load()) {
    return fail(Code::kCancelled, "by a signal, before the first update");
  }
  std::vector<PpoStep> steps;
  for (int64_t k = 0; k < options.episodes; ++k) {
    WorkloadOptions jobs = options.jobs;
    jobs.seed = derive_key(options.seed, "training jobs",
                           static_cast<uint64_t>(point.iteration * options.episodes + k));
    jobs.load = options.load_low + (options.load_high - options.load_low) * loads.uniform();
    const Workload workload = make_workload(jobs, options.spec);
    Episode episode;
    JIGE_TRY(
        const SimulationResult result,
        run_with(options, workload,
                 std::make_unique<LearnedPlacer>(network, LearnedOptions{}, &episode, jobs.seed)));
    JIGE_TRY(const SimulationResult greedy,
             run_with(options, workload, make_contention_placer({})));
    point.against_greedy +=
        (mean_jct_ns(result) / mean_jct_ns(greedy) - 1) / static_cast<double>(options.episodes);
    if (options.reward == RewardKind::kPublished) {
      set_published_rewards(episode, options.loss_weight);
    } else {
      set_rewards(episode, result);
    }
    set_advantages(episode.steps, options.ppo.lambda, 0);
    std::ranges::move(episode.steps, std::back_inserter(steps));
  }
  return steps;
}

}  // namespace

void set_published_rewards(Episode& episode, double loss_weight) {
  const std::vector<double> rewards = published_rewards(episode.rounds, loss_weight);
  size_t next = 0;
  for (size_t i = 0; i < episode.steps.size(); ++i) {
    PpoStep& step = episode.steps[i];
    step.reward = 0;
    step.discount = 1;
    const bool last = i + 1 == episode.steps.size();
    for (; next < rewards.size(); ++next) {
      if (!last && episode.rounds[next].at_ns >= episode.times_ns[i + 1]) break;
      if (episode.rounds[next].at_ns < episode.times_ns[i]) continue;
      step.reward += step.discount * rewards[next];
      step.discount *= kRoundDiscount;
    }
  }
}

std::vector<double> jobs_in_system(const SimulationResult& result,
                                   const std::vector<int64_t>& times_ns) {
  std::vector<std::pair<int64_t, int>> changes;
  for (const JobOutcome& job : result.outcomes) {
    if (job.finish_ns < 0) continue;
    changes.emplace_back(job.arrival_ns, 1);
    changes.emplace_back(job.finish_ns, -1);
  }
  std::ranges::sort(changes);
  std::vector<double> integral;
  double sum = 0, jobs = 0;
  int64_t now_ns = 0;
  size_t next = 0;
  const auto pass_to = [&](int64_t time_ns) {
    sum += jobs * static_cast<double>(time_ns - now_ns);
    now_ns = time_ns;
  };
  for (const int64_t time_ns : times_ns) {
    for (; next < changes.size() && changes[next].first <= time_ns; ++next) {
      pass_to(changes[next].first);
      jobs += changes[next].second;
    }
    pass_to(time_ns);
    integral.push_back(sum);
  }
  return integral;
}

Result<PolicyNetwork> train_policy(
    const TrainPolicyOptions& options,
    const std::function<void(const TrainPolicyPoint&)>& on_iteration) {
  auto network = std::make_shared<PolicyNetwork>(kPolicyFeatures, options.hidden, options.seed);
  PpoTrainer trainer(*network, options.ppo, options.seed);
  Rng loads(derive_key(options.seed, "training loads"));
  for (int64_t iteration = 0; iteration < options.iterations; ++iteration) {
    TrainPolicyPoint point{.iteration = iteration};
    Result<std::vector<PpoStep>> steps = play(options, network, loads, point);
    if (!steps) {
      if (steps.error().code == Code::kCancelled && iteration > 0) break;
      return tl::unexpected<Error>(std::move(steps.error()));
    }
    point.choices = std::ssize(*steps);
    point.entropy = trainer.update(*steps).entropy;
    on_iteration(point);
  }
  return std::move(*network);
}

}  // namespace jige::cluster

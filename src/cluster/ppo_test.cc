#include "cluster/ppo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "cluster/cluster_test_support.h"
#include "cluster/model_catalogue.h"
#include "cluster/train_policy.h"

namespace jige::cluster {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kFeatures = 3;

Choice random_choice(Rng& rng, size_t count) {
  Choice choice;
  for (size_t i = 0; i < count * kFeatures; ++i) choice.features.push_back(rng.normal());
  for (size_t i = 0; i < count; ++i) choice.priors.push_back(rng.normal());
  return choice;
}

PolicyNetwork random_network(uint64_t seed) {
  PolicyNetwork network(kFeatures, 4, seed);
  Rng rng(derive_key(seed, "parameters"));
  for (double& parameter : network.parameters()) parameter = 0.5 * rng.normal();
  return network;
}

TEST(Ppo, GradientEqualsFiniteDifferences) {
  PolicyNetwork network = random_network(3);
  Rng rng(derive_key(3, "ppo steps"));
  std::vector<PpoStep> steps;
  for (int i = 0; i < 6; ++i) {
    PpoStep step{.choice = random_choice(rng, 1 + rng.below(5))};
    step.chosen = rng.below(step.choice.count());
    // Some are clipped, on either side and with either sign of the advantage.
    step.probability = network.probabilities(step.choice)[step.chosen] * (0.6 + 0.2 * i);
    step.advantage = i % 2 == 0 ? 1.5 : -0.7;
    step.value = rng.normal();
    steps.push_back(step);
  }
  std::vector<const PpoStep*> batch;
  for (const PpoStep& step : steps) batch.push_back(&step);
  const PpoOptions options{.entropy_gain = 0.3};
  std::vector<double> gradient(network.parameters().size(), 0), ignored(gradient.size(), 0);
  ppo_loss(network, batch, options, gradient);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double kept = network.parameters()[i];
    const auto loss_at = [&](double value) {
      network.parameters()[i] = value;
      return ppo_loss(network, batch, options, ignored).loss;
    };
    const double slope = (loss_at(kept + 1e-5) - loss_at(kept - 1e-5)) / 2e-5;
    network.parameters()[i] = kept;
    EXPECT_NEAR(gradient[i], slope, 1e-7 + 1e-5 * std::abs(slope)) << i;
  }
}

// A_t is the sum over k of (product of d lambda) delta_(t+k).
TEST(Ppo, AdvantagesEqualTheirSum) {
  Rng rng(derive_key(1, "advantages"));
  for (const double behind : {0.0, 2.5}) {
    std::vector<PpoStep> steps(20);
    for (PpoStep& step : steps) {
      step.reward = rng.normal();
      step.value = rng.normal();
      step.discount = rng.uniform();
    }
    set_advantages(steps, 0.9, behind);
    for (size_t t = 0; t < steps.size(); ++t) {
      double sum = 0, weight = 1;
      for (size_t k = t; k < steps.size(); ++k) {
        const double next = k + 1 < steps.size() ? steps[k + 1].value : behind;
        sum += weight * (steps[k].reward + steps[k].discount * next - steps[k].value);
        weight *= steps[k].discount * 0.9;
      }
      EXPECT_NEAR(steps[t].advantage, sum, 1e-12);
    }
  }
}

TEST(PolicyNetwork, FollowsThePriorUntilItIsTrained) {
  const PolicyNetwork network(kFeatures, 8, 1);
  Rng rng(2);
  const Choice choice = random_choice(rng, 4);
  const std::vector<double> shares = network.probabilities(choice);
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(std::log(shares[i] / shares[0]), choice.priors[i] - choice.priors[0], 1e-12);
    sum += shares[i];
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_EQ(network.value(choice), 0);
}

// Which of three candidates pays is written in their features: the third number.
TEST(Ppo, LearnsABandit) {
  PolicyNetwork network(kFeatures, 16, 1);
  PpoTrainer trainer(network, {.rate = 6e-3}, 1);
  Rng rng(derive_key(1, "bandit"));
  const auto best_of = [](const Choice& choice) {
    size_t best = 0;
    for (size_t i = 1; i < 3; ++i) {
      if (choice.features[i * 3 + 2] > choice.features[best * 3 + 2]) best = i;
    }
    return best;
  };
  for (int round = 0; round < 20; ++round) {
    std::vector<PpoStep> steps;
    for (int i = 0; i < 128; ++i) {
      PpoStep step{.choice = random_choice(rng, 3)};
      step.choice.priors.assign(3, 0);
      const std::vector<double> shares = network.probabilities(step.choice);
      double left = rng.uniform();
      while (step.chosen < 2 && (left -= shares[step.chosen]) >= 0) ++step.chosen;
      step.probability = shares[step.chosen];
      step.value = network.value(step.choice);
      step.reward = step.chosen == best_of(step.choice);
      step.discount = 0;
      steps.push_back(std::move(step));
    }
    set_advantages(steps, 0.95, 0);
    trainer.update(steps);
  }
  int right = 0;
  for (int i = 0; i < 500; ++i) {
    Choice choice = random_choice(rng, 3);
    choice.priors.assign(3, 0);
    const std::vector<double> shares = network.probabilities(choice);
    right +=
        static_cast<size_t>(std::ranges::max_element(shares) - shares.begin()) == best_of(choice);
  }
  EXPECT_GT(right, 460);
}

TEST(PolicyNetwork, ComesBackBitForBitAndRefusesDamage) {
  const PolicyNetwork network = random_network(5);
  const std::string text = network.to_json();
  const auto back = PolicyNetwork::from_json(text, "p");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(std::ranges::equal(back->parameters(), network.parameters()));
  for (const char* bad : {"", "{}", "[1]", R"({"jige_policy":2,"features":3,"hidden":4})",
                          R"({"jige_policy":1,"features":0,"hidden":4})",
                          R"({"jige_policy":1,"features":99999,"hidden":99999})",
                          R"({"jige_policy":1,"features":1,"hidden":1,"parameters":[1,2]})"}) {
    const auto result = PolicyNetwork::from_json(bad, "p");
    ASSERT_FALSE(result) << bad;
    EXPECT_THAT(result.error().message, HasSubstr("p"));
  }
  const size_t at = text.find("[") + 1;
  EXPECT_FALSE(PolicyNetwork::from_json(
      text.substr(0, at) + "\"x\"" + text.substr(text.find(',', at)), "p"));
}

TEST(PolicyNetwork, DamagedFilesAreRefusedOrDecide) {
  const std::string text = random_network(5).to_json();
  Rng rng(7);
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    const auto network = PolicyNetwork::from_json(Mutator(seed).mutate(text), "policy.json");
    if (!network) {
      ASSERT_THAT(network.error().message, HasSubstr("policy.json")) << seed;
      continue;
    }
    ++read;
    ASSERT_EQ(network->probabilities(random_choice(rng, 3)).size(), 3u) << seed;
  }
  EXPECT_GT(read, 100);
}

TrainPolicyOptions small_training() {
  TrainPolicyOptions options{.spec = {.leaf_count = 2, .nodes_per_leaf = 4, .oversubscription = 4},
                             .iterations = 2,
                             .episodes = 2,
                             .hidden = 8};
  options.jobs = {.job_count = 60, .fixed_share = 0.5};
  options.jobs.sizes = *parse_sizes("4:1,8:1,16:1", "test");
  options.jobs.models = *model_mix("heavy", "test");
  return options;
}

TEST(TrainPolicy, RepeatsToTheBit) {
  std::vector<TrainPolicyPoint> points;
  const auto train = [&](uint64_t seed) {
    TrainPolicyOptions options = small_training();
    options.seed = seed;
    auto network = train_policy(options, [&](const TrainPolicyPoint& p) { points.push_back(p); });
    EXPECT_TRUE(network);
    return network->to_json();
  };
  const std::string once = train(1);
  EXPECT_EQ(once, train(1));
  EXPECT_NE(once, train(2));
  ASSERT_EQ(points.size(), 6u);
  EXPECT_GT(points[0].choices, 20);
  EXPECT_GT(points[0].entropy, 0);
}

TEST(TrainPolicy, CancelledItGivesTheLastWholeIteration) {
  std::atomic<bool> cancel = true;
  TrainPolicyOptions options = small_training();
  options.cancel = &cancel;
  const auto never = train_policy(options, [](const TrainPolicyPoint&) {});
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, Code::kCancelled);
  cancel = false;
  const auto cut = train_policy(options, [&](const TrainPolicyPoint&) { cancel = true; });
  ASSERT_TRUE(cut) << cut.error().message;
  options.cancel = nullptr;
  options.iterations = 1;
  EXPECT_EQ(cut->to_json(), train_policy(options, [](const TrainPolicyPoint&) {})->to_json());
}

// Rewards add up to minus the sum of completion times.
TEST(TrainPolicy, JobsInSystemAreTheirCompletionTimes) {
  const auto result =
      run(cluster_of(1, 1, 1), workload_of({plain_job(0, 1, 10), plain_job(4, 1, 6)}), "fifo");
  const std::vector<double> integral =
      jobs_in_system(result, {2 * kSecond, 4 * kSecond, 10 * kSecond, 20 * kSecond});
  EXPECT_EQ(integral, (std::vector<double>{2e9, 4e9, 16e9, 22e9}));  // 10 and 12 s
}

// EWMA of span 10: 1, then (9/11 * 1 + 0.5) / (9/11 + 1) = 0.725; a round without jobs counts 0.
TEST(PublishedReward, IsLossAndUse) {
  const std::vector<RoundSample> rounds = {
      {.at_ns = 0, .running = 2, .loss = 0.25, .used = 1},
      {.at_ns = 300 * kSecond, .running = 1, .loss = 0, .used = 0.5},
      {.at_ns = 600 * kSecond, .running = 0, .loss = 0, .used = 0}};
  const std::vector<double> rewards = published_rewards(rounds, 0.4);
  ASSERT_EQ(rewards.size(), 3u);
  EXPECT_NEAR(rewards[0], -0.4 * 0.25 + 0.6 * 1, 1e-12);
  EXPECT_NEAR(rewards[1], 0.6 * 0.725, 1e-12);
  EXPECT_EQ(rewards[2], 0);
}

// Two choices at 0 and one at 450 s: the first has no round behind it, the second those at 0 and
// 300, the last what is left.
TEST(PublishedReward, IsGivenToTheChoicesBeforeIt) {
  Episode episode;
  episode.steps.resize(3);
  episode.times_ns = {0, 0, 450 * kSecond};
  for (int i = 0; i < 4; ++i) {
    episode.rounds.push_back({.at_ns = i * 300 * kSecond, .running = 1, .used = 1});
  }
  set_published_rewards(episode, 0);
  EXPECT_EQ(episode.steps[0].reward, 0);
  EXPECT_EQ(episode.steps[0].discount, 1);
  EXPECT_NEAR(episode.steps[1].reward, 1.99, 1e-12);
  EXPECT_NEAR(episode.steps[1].discount, 0.99 * 0.99, 1e-12);
  EXPECT_NEAR(episode.steps[2].reward, 1.99, 1e-12);
}

// Loss is against the job's speed alone where it stands, not against its best place.
TEST(PublishedReward, SamplesLossesToOthers) {
  const ClusterSpec spec = cluster_of(1, 2, 2);
  Job job = plain_job(0, 2, 10);
  job.nodes = 2;
  job.bytes[0] = 1e9;  // a second on the card, and a second of computing
  const Workload load = workload_of({job, job});
  ClusterState cluster(spec, load.jobs, make_link_contention(spec, {}), nullptr);
  EXPECT_EQ(sample_round(cluster).running, 0);
  for (const JobId id : {0, 1}) {
    cluster.arrive(id);
    cluster.start(id, {{0, 1}, {1, 1}});
    const RoundSample sample = sample_round(cluster);
    EXPECT_EQ(sample.running, id + 1);
    EXPECT_NEAR(sample.used, (id + 1) / 2.0, 1e-12);
    EXPECT_NEAR(sample.loss, id == 0 ? 0 : 1 - 2.0 / 3, 1e-9);  // 3 s instead of 2
  }
}

TEST(TrainPolicy, LearnsFromThePublishedRewardToo) {
  TrainPolicyOptions options = small_training();
  options.iterations = 1;
  const auto train = [&] {
    return train_policy(options, [](const TrainPolicyPoint&) {})->to_json();
  };
  const std::string ours = train();
  options.reward = RewardKind::kPublished;
  const std::string theirs = train();
  EXPECT_NE(ours, theirs);
  EXPECT_EQ(theirs, train());
  options.loss_weight = 0.9;
  EXPECT_NE(theirs, train());
}

Workload heavy_jobs(const TrainPolicyOptions& options, uint64_t seed) {
  WorkloadOptions jobs = options.jobs;
  jobs.seed = seed;
  jobs.load = 0.9;
  return make_workload(jobs, options.spec);
}

TEST(LearnedPlacer, UntrainedItDoesWhatTheGreedyDoes) {
  const TrainPolicyOptions options = small_training();
  const Workload load = heavy_jobs(options, 9);
  PolicyContext context{.network = std::make_shared<PolicyNetwork>(kPolicyFeatures, 8, 1)};
  EXPECT_EQ(ends_s(run(options.spec, load, *policy_of("learned", context))),
            ends_s(run(options.spec, load, "greedy")));
  const auto missing = make_policy("learned", "--policy", {});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("--learned"));
}

// A network that always waits is overruled while GPUs idle, so that jobs end all the same.
TEST(LearnedPlacer, GuardEndsIdleness) {
  const TrainPolicyOptions options = small_training();
  Workload load = heavy_jobs(options, 4);
  auto network = std::make_shared<PolicyNetwork>(kPolicyFeatures, 1, 1);
  // First layer: the unit is the flag of waiting; everything behind it passes it on, tenfold.
  std::ranges::fill(network->parameters(), 0);
  network->parameters()[1] = 5;
  network->parameters()[kPolicyFeatures + 1] = 5;
  network->parameters()[kPolicyFeatures + 3] = 1000;
  const auto decided_with = [&](int idle_rounds) {
    auto placer =
        std::make_unique<LearnedPlacer>(network, LearnedOptions{.idle_rounds = idle_rounds});
    const LearnedPlacer& seen = *placer;
    QueuePolicy policy({.preemptive = true, .round_ns = 300 * kSecond},
                       make_order({.kind = OrderKind::kSrsf}), std::move(placer));
    const auto result = run(options.spec, load, policy);
    for (const JobOutcome& job : result.outcomes) EXPECT_GE(job.finish_ns, 0);
    return seen.decided();
  };
  const LearnedPlacer::Decided guarded = decided_with(3);
  EXPECT_GT(guarded.guard, 0);
  EXPECT_GT(guarded.waiting, 0);
  EXPECT_EQ(decided_with(1 << 30).guard, 0);
}

}  // namespace
}  // namespace jige::cluster

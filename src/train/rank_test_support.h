// For tests of runs on several ranks: each on a thread of its own, and what became of it.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/shared_transport.h"
#include "comm/test_support.h"
#include "formats/checkpoint.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {

struct RankOutcome {
  std::string error;
  TrainResult result;
  std::vector<double> numbers;  // losses and norms of all steps, losses of evaluations, rewards
  std::vector<StepInfo> steps;
};

inline void add_rewards(const RewardMeans& means, std::vector<double>& numbers) {
  numbers.insert(numbers.end(), {static_cast<double>(means.answer_count), means.reward,
                                 means.spread, means.full_share, means.length, means.cut_share});
}

inline void add_rewards(const RewardStep& step, std::vector<double>& numbers) {
  add_rewards(step.means, numbers);
  numbers.insert(numbers.end(),
                 {static_cast<double>(step.group_count), step.silent_share, step.loss,
                  step.clipped_share, step.kl.value_or(-1), step.logprob_gap.value_or(-1)});
}

inline TrainCallbacks recorded(RankOutcome& outcome, TrainCallbacks callbacks) {
  callbacks.on_step = [&outcome, before = callbacks.on_step](const StepInfo& info) {
    outcome.numbers.push_back(info.loss);
    outcome.numbers.push_back(info.grad_norm);
    if (info.rewards) add_rewards(*info.rewards, outcome.numbers);
    outcome.steps.push_back(info);
    if (before) before(info);
  };
  callbacks.on_eval = [&outcome](const EvalInfo& info) {
    outcome.numbers.push_back(info.loss);
    if (info.rewards) add_rewards(*info.rewards, outcome.numbers);
  };
  return callbacks;
}

inline RankOutcome train_one(const TrainOptions& options, TrainCallbacks callbacks = {}) {
  RankOutcome outcome;
  auto trainer = Trainer::create(options, recorded(outcome, std::move(callbacks)));
  auto result = trainer ? (*trainer)->run() : tl::unexpected(trainer.error());
  if (!result) outcome.error = result.error().message;
  if (result) outcome.result = *result;
  return outcome;
}

struct Group {
  int size = 2;
  GradientSum sum = GradientSum::kRelay;
  bool overlap = true;
  bool shard = false;  // the optimizer's state
  bool split = false;  // every sequence
  bool tcp = false;
  bool delays = false;
  std::vector<int> order = {};  // of the ring; empty: by rank
  int64_t tree_bytes_max = 0;   // up to which trees carry what all get; 0: no trees
};

using RankCallbacks = std::function<TrainCallbacks(int rank)>;
using Adjust = std::function<void(int rank, TrainOptions& options)>;

// Every rank on a thread of its own.
inline std::vector<RankOutcome> train_ranks(const TrainOptions& options, const Group& group,
                                            const RankCallbacks& callbacks = nullptr,
                                            const Adjust& adjust = nullptr) {
  comm::RingPlan plan = comm::RingPlan::in_rank_order(group.size);
  plan.piece_bytes = 1024;
  if (!group.order.empty()) plan.rings[0].order = group.order;
  if (group.tree_bytes_max > 0) {
    plan.trees = comm::TreePair::over(plan.rings[0].order);
    plan.trees->bytes_max = group.tree_bytes_max;
  }
  auto transports = comm::make_transports(group.tcp ? "tcp" : "threads", group.size, plan);
  std::vector<RankOutcome> outcomes(static_cast<size_t>(group.size));
  std::vector<std::thread> threads;
  for (int r = 0; r < group.size; ++r) {
    threads.emplace_back([&, r] {
      auto transport = std::move(transports[static_cast<size_t>(r)]);
      if (group.delays) {
        transport = std::make_unique<comm::DelayedTransport>(std::move(transport), 3);
      }
      TrainOptions own = options;
      own.ranks = {.rank = r,
                   .size = group.size,
                   .local = group.size,
                   .sum = group.sum,
                   .overlap = group.overlap,
                   .split_context = group.split,
                   .shard_optimizer = group.shard,
                   .group = comm::AsyncGroup::over(
                       *comm::Communicator::over(std::move(transport), plan, {.timeout_s = 20}))};
      if (adjust) adjust(r, own);
      outcomes[static_cast<size_t>(r)] =
          train_one(own, callbacks ? callbacks(r) : TrainCallbacks{});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline TrainOptions rank_options(const TestFolder& folder, const std::string& out) {
  folder.write("a.jsonl", small_corpus(40));
  TrainOptions options = tiny_options(folder, {folder.file("a.jsonl")});
  options.out_folder = folder.file(out);
  options.steps = 4;  // which reach into a second epoch
  options.step_tokens = 200;
  options.data.eval_fraction = 0.2;
  options.eval_every_steps = 2;
  return options;
}

// Parameters and both moments of a run's last checkpoint, and the model, as bytes.
inline std::string saved_bytes(const TrainOptions& options) {
  const auto checkpoint = formats::find_latest_checkpoint(options.out_folder + "/checkpoints");
  EXPECT_TRUE(checkpoint);
  std::string all = read_file(options.out_folder + "/model/model.safetensors").value_or("");
  for (const char* name : {kCheckpointValues, kCheckpointMoments1, kCheckpointMoments2}) {
    all += read_file(*checkpoint + "/" + name + ".safetensors").value_or("none");
  }
  return all;
}

inline void expect_alike(const std::vector<RankOutcome>& ranks, const RankOutcome& alone,
                         const std::string& what) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_EQ(ranks[r].error, "") << what << ", rank " << r;
    EXPECT_EQ(ranks[r].numbers, alone.numbers) << what << ", rank " << r;
  }
}

}  // namespace jige::train

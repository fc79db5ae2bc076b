// Learning from rewards on one device that holds everything: answers are drawn by the weights that
// learn (rollout.h), scored (rewards.h), and learned from (policy_loss.h).
//
// A step: a group of answers to each of its prompts; rewards; advantages; then, once for every
// update, F of all answers of groups whose rewards differ, weights of their tokens made of the
// losses, the head's logits once more with these, X and W (schedule_tasks.h), and AdamW. Where no
// rewards differ nothing is changed.
// Invariant: what a step draws depends on weights, seed and step alone, so a run that goes on draws
// the same.
// Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/dataset.h"
#include "train/reference_model.h"
#include "train/rewards.h"
#include "train/whole_model_engine.h"

namespace jige::train {

class RewardEngine final : public WholeModelEngine {
 public:
  struct Sizes {
    model::TrainingMemory memory;
    int64_t beside_bytes = 0;  // of what draws, and of the reference
  };
  // All that is given must outlive the engine. Fails with kExhausted, and as AnswerSource::attach.
  // REQUIRES: options.grpo; start() before anything is drawn or learned.
  static Result<std::unique_ptr<RewardEngine>> create(CpuDevice& device,
                                                      const model::Architecture& architecture,
                                                      const model::WeightsOptions& weights_options,
                                                      const Sizes& sizes,
                                                      const TrainOptions& options,
                                                      const Dataset& dataset);
  // Takes what draws, and the reference. Fails as AnswerSource::attach and ReferenceModel::load.
  Status start(const std::string& tokenizer_folder);

  ~RewardEngine() override;

  RewardEngine* rewards() override { return this; }
  // A sequence of the plan is a prompt. Fails as AnswerSource::draw and Rewards::score.
  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;
  // Of one greedy answer to each held-out prompt. Fails in the same ways.
  Result<RewardMeans> measure(int64_t step);
  Status end_steps() override;
  EngineMemory memory() const override;

 private:
  // An answer that is learned from.
  struct Learned {
    const Prompt* prompt = nullptr;
    const DrawnAnswer* answer = nullptr;
    double advantage = 0;
    std::vector<float> reference;  // log-probabilities of its tokens; empty without
  };
  // Sums over tokens, of all updates.
  struct Sums {
    double loss = 0, clipped = 0, kl = 0, gap = 0;
    double tokens = 0;  // of one update
    double updates = 0;
  };

  RewardEngine(const TrainOptions& options, const Dataset& dataset, const Sizes& sizes)
      : options_(options),
        dataset_(dataset),
        beside_bytes_(sizes.beside_bytes),
        scorer_(options.grpo->reward) {}

  Result<std::vector<AnswerGroup>> draw(std::span<const Prompt* const> prompts, int64_t step);
  // Rewards of all answers, group by group.
  Result<std::vector<double>> score(std::span<const Prompt* const> prompts,
                                    const std::vector<AnswerGroup>& groups, int64_t step);
  Result<std::vector<Learned>> choose(std::span<const Prompt* const> prompts,
                                      const std::vector<AnswerGroup>& groups,
                                      std::span<const double> rewards, RewardStep& info);
  // One update; what it did is added to `outcome` and `sums`.
  Status update(std::span<const Learned> answers, const StepRates& rates, StepOutcome& outcome,
                Sums& sums);
  void learn(const MicroBatch& micro_batch, std::span<const Learned> answers,
             model::GradientUse gradients, Sums& sums);
  void fill_batch(const MicroBatch& micro_batch, std::span<const Learned> answers);

  const TrainOptions& options_;
  const Dataset& dataset_;
  CpuDevice* cpu_ = nullptr;
  int64_t beside_bytes_;
  Rewards scorer_;
  std::optional<ReferenceModel> reference_;
  TwoPassTasks tasks_;
  std::vector<float> token_weights_;  // of the loaded micro-batch
};

}  // namespace jige::train

// What learning from rewards makes of a step's prompts, on one device or on one of several ranks:
// a group of answers to each, drawn by the weights that learn and scored (answer_rounds.h);
// advantages; then, once for every update, F of all answers of groups whose rewards differ, and
// weights of their tokens made of the losses (policy_loss.h). The head's logits once more with
// these, X, W (schedule_tasks.h) and AdamW are the engine's (reward_engine.h, rank_engine.h).
//
//   JIGE_TRY(const bool drawn, passes.begin_step(plan, rates));       // false: the step was left
//   passes.update_count() times, unless an update is not applied:
//     passes.begin_update();
//     per micro-batch of its own: JIGE_DO(passes.forward(i));  … backward_tasks() …
//     JIGE_TRY(const bool finite, passes.end_update());
//   passes.end_step(outcome);
//
// Invariant: what a step draws depends on weights, seed and step alone, and sums are over all
// answers in the order of the prompts, whoever computed them (StepEngine::complete). So a run that
// goes on, also with other ranks, draws and says the same.
// Threads: one thread at a time; all ranks call the same.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tensor/cpu_device.h"
#include "train/answer_rounds.h"
#include "train/dataset.h"
#include "train/executor.h"
#include "train/reference_model.h"
#include "train/step_engine.h"

namespace jige::train {

// What answers are drawn from and with; device and data must outlive the passes.
struct RewardPlace {
  CpuDevice& device;
  const Dataset& dataset;
  std::string tokenizer_folder;
  int64_t bytes = 0;  // that what draws and the reference take
};

class RewardPasses {
 public:
  // Options, engine and executor must outlive it. REQUIRES: options.grpo.
  RewardPasses(const TrainOptions& options, StepEngine& engine, Executor& executor);
  ~RewardPasses();

  // Takes what draws, and the reference, before anything is drawn or learned. Fails as
  // AnswerSource::attach and ReferenceModel::load.
  Status start(const RewardPlace& place);
  // Gives them back, and ends the program.
  void end();

  // A sequence of the plan is a prompt. Whether it was not left (StepRates::should_leave) on any
  // rank. Fails as AnswerRounds::run.
  Result<bool> begin_step(const StepPlan& plan, const StepRates& rates);
  // What each update learns from; no updates where nothing is to be learned.
  const std::vector<MicroBatch>& micro_batches() const { return micro_batches_; }
  int64_t update_count() const { return micro_batches_.empty() ? 0 : grpo_.updates; }
  // Of begin_step(), for other ranks.
  double wait_seconds() const { return round_.wait_seconds; }

  void begin_update();
  // F of a micro-batch; what backward_tasks() need is in the executor then. Fails as
  // ReferenceModel::logprobs.
  Status forward(size_t micro_batch);
  std::span<const Task> backward_tasks() const { return tasks_.backward; }
  // Whether the loss is a number. Fails as StepEngine::complete.
  Result<bool> end_update();
  // Says what was learned.
  void end_step(StepOutcome& outcome);

  // Of one greedy answer to each held-out prompt; nothing where it was left. Fails as begin_step().
  Result<std::optional<RewardMeans>> measure(int64_t step,
                                             const std::function<bool()>& should_leave);
  // Adds what draws and the reference.
  void add_memory(EngineMemory& memory) const;

 private:
  // An answer that is learned from.
  struct Learned {
    const Prompt* prompt = nullptr;
    const DrawnAnswer* answer = nullptr;
    double advantage = 0;
    std::vector<float> reference;  // log-probabilities of its tokens, where it is learned from here
  };
  // Of an answer in an update, or of all in all of them: sums over tokens.
  struct Sums {
    double loss = 0, clipped = 0, kl = 0, gap = 0;
    void add(const Sums& other);
  };

  // What the answers of the step are worth, with what lengths add.
  std::vector<double> worths();
  void choose();
  void pack();
  void fill_batch(const MicroBatch& micro_batch);
  // Sets the weights of an answer's tokens, of which the loaded micro-batch has the losses.
  Sums weigh(const Learned& one, std::span<const float> losses, std::span<float> weights) const;

  const TrainOptions& options_;
  const GrpoOptions& grpo_;
  StepEngine& engine_;
  Executor& executor_;
  TwoPassTasks tasks_;
  AnswerRounds rounds_;
  std::optional<RewardPlace> place_;
  std::optional<ReferenceModel> reference_;
  HostBatch batch_;
  std::vector<float> token_weights_;  // of the loaded micro-batch
  // Of the step.
  std::vector<const Prompt*> prompts_;
  AnswerRound round_;
  std::vector<Learned> learned_;
  std::vector<MicroBatch> micro_batches_;  // a sequence begins at the number of its answer
  double token_count_ = 0;                 // of one update
  RewardStep info_;
  StopWatch learn_watch_;
  std::vector<Sums> records_;  // of the update, by answer
  Sums sums_;                  // of all updates
  double gap_ = 0;             // of the first
  int64_t updates_done_ = 0;
};

}  // namespace jige::train

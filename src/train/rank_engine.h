// Training on several ranks that hold the whole model each: a step's micro-batches are dealt out
// (where rewards are learned from, its prompts before, see answer_rounds.h), or each rank has a
// part of every sequence of each (context_passes.h), their gradients summed
// while backward passes run (gradient_sync.h), and every rank makes the same update, or its part of
// it where the optimizer's state is divided (sharded_update.h).
//
// Invariant: after a step weights and moments have the same bits on all ranks, divided or not; with
// GradientSum::kRelay those of OneDeviceEngine with the same micro-batches, with f32 compute those
// of any micro-batches.
// Threads: one thread at a time; the device's team or streams run the kernels, the group's thread
// moves data, that of a GPU the carrier's (gradient_carrier.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "train/context_passes.h"
#include "train/gradient_sync.h"
#include "train/preference_passes.h"
#include "train/rank_exchange.h"
#include "train/sharded_update.h"
#include "train/whole_model_engine.h"

namespace jige::train {

class RankEngine final : public WholeModelEngine {
 public:
  // Device, architecture and group must outlive the engine. Fails with kExhausted.
  // REQUIRES: options.ranks with a group of more than one rank.
  static Result<std::unique_ptr<StepEngine>> create(Device& device,
                                                    const model::Architecture& architecture,
                                                    const model::WeightsOptions& weights_options,
                                                    const model::TrainingMemory& memory,
                                                    const TrainOptions& options);

  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;
  bool takes(size_t micro_batch) const override {
    return context_ || sync_->is_own(static_cast<int64_t>(micro_batch));
  }
  Status evaluate(HostBatch& batch, ExactSum& sum) override;
  Status add_ranks(ExactSum& sum) override;
  Status complete(std::span<double> numbers) override;
  PreferencePasses* preference() override { return preference_ ? &*preference_ : nullptr; }
  // Masters of a share are those of the values.
  void refresh() override;

 private:
  using Pass = std::function<Status(int64_t micro_batch)>;

  RankEngine() = default;
  // The step, but for what is said of ranks.
  Status run_plan(const Corpus& corpus, const StepPlan& plan, const StepRates& rates,
                  StepOutcome& outcome);
  Status run_rewards(const StepPlan& plan, const StepRates& rates, StepOutcome& outcome);
  // The passes of this rank's of so many micro-batches, and the sums of squares of all gradients,
  // which are there then, or with the holder (GradientSync::holder).
  Result<std::vector<double>> sum_gradients(int64_t micro_batch_count, const Pass& forward);
  // The passes of a micro-batch of which this rank has some or a part.
  Status run_passes(int64_t micro_batch, const Pass& forward);
  void start_gradients(int64_t micro_batch_count);
  // Behind the passes: what ranks tell one another of the step.
  Result<StepWord> say_word(const StepRates& rates);
  // F of a micro-batch, of the head with pairs only; then the backward pass, which takes up and
  // passes on the sums of gradients.
  Status run_forward(const Corpus& corpus, const StepPlan& plan, int64_t micro_batch,
                     const BatchTerms& terms);
  Status run_backward(int64_t micro_batch);
  Status run_weights(size_t node, int64_t micro_batch, const Task& task);
  Status wait_for_totals();
  // Sums of squares of all gradients, each as soon as it is there. All are there then.
  Result<std::vector<double>> take_totals();
  // The same where one rank has the sums (GradientSync::holder) and tells the others.
  Result<std::vector<double>> take_squares_of_holder();
  // What the sums of squares make of weights and moments.
  Result<OptimizerReport> update(std::span<const double> squares, const StepRates& rates,
                                 bool refuse);
  int64_t sent_bytes() const;
  // Waits, and counts the time, unless the device has something to do all the while.
  Status waited(const std::function<Status()>& wait);

  comm::AsyncGroup* group_ = nullptr;
  std::unique_ptr<GradientSync> sync_;
  std::optional<ShardedUpdate> sharded_;
  std::optional<PreferencePasses> preference_;
  std::optional<ContextPasses> context_;      // where each rank has a part of every sequence
  int64_t micro_batch_count_ = 0;             // of the step, or of an update of it
  double wait_s_ = 0;                         // of the step, as what follows
  ExactSum loss_;                             // of this rank's micro-batches, of texts
  std::unique_ptr<GradientCarrier> carrier_;  // last: what it runs uses the rest
};

}  // namespace jige::train

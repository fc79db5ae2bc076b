// What computes a run's steps and holds its model: on one device with everything in its memory, or
// by a pipeline schedule on several. The trainer does the rest: data, rates, log, checkpoints.
//
// Invariant: weights(), optimizer() and streams() give the current state in host memory between
// steps, whatever holds it during one.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/exact_sum.h"
#include "base/result.h"
#include "model/weights.h"
#include "train/corpus.h"
#include "train/expert_use.h"
#include "train/optimizer.h"
#include "train/preference.h"
#include "train/reward_means.h"
#include "train/row_gate.h"
#include "train/step_plan.h"

namespace jige::train {

class PreferencePasses;
class RewardPasses;

struct StepRates {
  int64_t step = 0;  // from 1
  double learning_rate = 0;
  model::StepDropout dropout;  // of the step's first token
  double balance = 0;          // TrainOptions::expert_balance
  double expert_bias_rate = 0;
  // Called, from any thread, before weights or moments change; may wait. Empty: nothing.
  std::function<void()> before_update;
  // Asked once by engines of several ranks, when the step's passes are done: whether the run shall
  // end behind it.
  std::function<bool()> should_stop;
  // The same: whether a checkpoint shall be written behind it.
  std::function<bool()> should_save;
  // Asked now and then while answers are drawn and scored, before anything is learned of them:
  // whether to leave the step.
  std::function<bool()> should_leave;
};

// What a step of several ranks took to bring them together, on this rank and the slowest one.
struct RankTimes {
  double wait_s = 0;       // in which nothing was computed, for lack of what others send
  double wait_max_s = 0;   // of the rank that waited longest for gradients, or this one
  int64_t sent_bytes = 0;  // by this rank
};

struct StepOutcome {
  double loss_sum = 0;  // over all targets, unweighted; NaN where one is not finite
  std::optional<PreferenceMeans> preference;  // of pairs; loss_sum is over them then
  std::optional<RewardStep> rewards;          // of steps that draw answers
  // What such a step learned from, in all its updates, in place of the plan's sequences.
  std::optional<StepPlan> learned;
  ExpertUse experts;               // in the step's backward passes, of all ranks
  std::optional<RowGateUse> rows;  // of runs that skip some
  OptimizerReport optimizer;
  bool left =
      false;  // should_leave said so on some rank: nothing was done, and nothing else is said
  bool stop = false;  // with several ranks: should_stop said so on one of them
  bool save = false;  // the same of should_save
  RankTimes ranks;
};

// Bytes of all arenas, and of each device of a pipeline.
struct EngineMemory {
  int64_t predicted_bytes = 0;
  int64_t peak_bytes = 0;
};

class StepEngine {
 public:
  virtual ~StepEngine() = default;

  virtual model::ModelWeights& weights() = 0;
  virtual Optimizer& optimizer() = 0;
  // On which these are read and written.
  virtual model::NodeStreams streams() = 0;
  // The one of an engine on one device.
  Stream& stream() { return streams()[0]; }
  // Others, for reading the state from another thread.
  virtual Result<model::OwnNodeStreams> make_streams() = 0;
  // After weights or moments were changed from outside.
  virtual void refresh() = 0;

  // Gradient of the mean loss over the step's targets, and the update. Fails as Corpus::read, and
  // where a device fails.
  virtual Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                                  const StepRates& rates) = 0;
  // Adds the losses of a micro-batch, without training; reads its images.
  virtual Status evaluate(HostBatch& batch, ExactSum& sum) = 0;
  // Whether a micro-batch of an evaluation is this rank's, and the sum over all ranks.
  virtual bool takes(size_t /*micro_batch*/) const { return true; }
  virtual Status add_ranks(ExactSum& /*sum*/) { return {}; }
  // Completes numbers of which each rank has made its part and left the rest zero, bit by bit.
  virtual Status complete(std::span<double> /*numbers*/) { return {}; }

  // Of engines of preference runs: measures and makes the reference; null without pairs.
  virtual PreferencePasses* preference() { return nullptr; }
  // Of engines of runs that learn from rewards: draws, scores and measures; null without.
  virtual RewardPasses* rewards() { return nullptr; }

  // Decides which rows of weights a step skips; null where none are.
  virtual RowGate* row_gate() { return nullptr; }

  // Gives back what only steps need, and writes what is kept of them. No step follows; the weights
  // stay. Fails where a file cannot be written.
  virtual Status end_steps() = 0;
  virtual EngineMemory memory() const = 0;
};

}  // namespace jige::train

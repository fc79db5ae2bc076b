// A training run on one device, from data to model folder.
//
//   JIGE_TRY(auto trainer, train::Trainer::create(options, callbacks));
//   JIGE_TRY(const train::TrainResult result, trainer->run());
//
// A step: zero gradients; for every micro-batch in order, its tasks (schedule_tasks.h); AdamW;
// pack. The gradient is that of the mean loss over all targets of the step; the reported loss is
// that mean, as an exact sum. So with f32 compute losses and weights have the same bits whatever
// the micro-batch size and the number of threads, and a run that is killed and continued ends with
// the bits of one that was not.
//
// OUT/checkpoints   see run_state.h; the newest `checkpoints_kept`
// OUT/log.jsonl     see step_log.h
// OUT/cache         tokenised data
// OUT/model, OUT/adapter   the result, see export.h
//
// Memory: weights, optimizer and activations have an arena each, capped at what the plan says.
// Threads: one thread at a time; the device's team runs the kernels.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "formats/checkpoint.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"
#include "train/executor.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/report.h"
#include "train/run_lock.h"
#include "train/run_setup.h"
#include "train/run_state.h"
#include "train/step_log.h"
#include "train/step_plan.h"

namespace jige::train {

class Trainer {
 public:
  // Prepares everything up to the first step: data, memory, weights, or the state of the newest
  // checkpoint. Fails as prepare_run does; with kInvalidArgument when a checkpoint of OUT was made
  // under other options; with kCorrupt when none of its checkpoints is intact; with kUnavailable
  // when another process trains into OUT.
  static Result<std::unique_ptr<Trainer>> create(const TrainOptions& options,
                                                 TrainCallbacks callbacks = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const TrainPlan& plan() const { return setup_.plan; }
  const RunState& state() const { return state_; }

  // Trains to the last step or until should_stop, then writes the model. To be called once.
  // Fails with kExhausted or kIo when a checkpoint or the log cannot be written (the checkpoint
  // before stays good), with kInvalidArgument after too many steps in a row without finite
  // gradients.
  Result<TrainResult> run();

 private:
  Trainer(RunLock lock, RunSetup setup, std::unique_ptr<CpuDevice> device,
          TrainCallbacks callbacks);
  // Reads the newest checkpoint, if the run is to go on from one.
  static Result<std::optional<formats::CheckpointReader>> find_checkpoint(const RunSetup& setup);
  Status allocate();
  Status start_weights();
  Status resume(const formats::CheckpointReader& checkpoint);

  Result<StepInfo> run_step();
  // What follows a step: log, callbacks, evaluation and checkpoint where they are due.
  Status finish_step(const StepInfo& info);
  Status run_evaluation();
  Status write_checkpoint();
  bool checkpoint_due() const;
  Status write_model(TrainResult& result);
  TrainResult make_result();
  MemoryReport memory_report() const;
  void note_memory();

  RunLock lock_;
  RunSetup setup_;
  TrainCallbacks callbacks_;
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Stream> stream_;
  // Arenas come before what lives in them.
  std::unique_ptr<Arena> weights_arena_, moments_arena_, activations_arena_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::optional<Executor> executor_;
  std::optional<StepPlanner> planner_;
  std::optional<StepLog> log_;
  std::vector<MicroBatch> evaluation_;
  std::vector<Task> tasks_;  // of one micro-batch
  HostBatch batch_;
  RunState state_;
  int64_t steps_here_ = 0;
  int64_t tokens_here_ = 0;
  double seconds_here_ = 0;
  int64_t private_peak_bytes_ = 0;
  int64_t checkpoint_step_ = -1;  // of the newest checkpoint
  StopWatch checkpoint_watch_;
  double checkpoint_seconds_ = 0;  // on checkpoint_watch_, of the newest checkpoint
  std::optional<double> last_loss_;
  std::optional<EvalInfo> last_eval_;
};

}  // namespace jige::train

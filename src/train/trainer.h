// A training run, from data to model folder.
//
//   JIGE_TRY(auto trainer, train::Trainer::create(options, callbacks));
//   JIGE_TRY(const train::TrainResult result, trainer->run());
//
// Steps are computed by an engine (step_engine.h): one device that holds everything, a pipeline
// of devices with little memory each (TrainOptions::pipeline), one of several ranks
// (TrainOptions::ranks), or on one device one of preference runs (TrainOptions::dpo). Every rank
// makes a trainer; rank 0 alone writes to OUT, apart from OUT/cache, and gives the others its
// state. The gradient is that of the mean loss over all targets of the step; the reported loss is
// that mean, as an exact sum. So with f32 compute losses and weights have the same bits whatever
// the micro-batch size, the number of threads, the devices and their schedule, the number of ranks
// (GradientSum::kRelay), and a run that is killed and continued ends with the bits of one that was
// not.
//
// OUT/checkpoints   see run_state.h; the newest `checkpoints_kept`, and with keep_best the best one
// OUT/log.jsonl     see step_log.h
// OUT/cache         tokenised data, and the reference of preference runs (reference_logprobs.h)
// OUT/model, OUT/adapter   the result, see export.h
// What a killed run left half-written goes when the next one begins.
//
// Threads: one thread at a time; engines have threads of their own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "formats/checkpoint.h"
#include "tensor/cpu_device.h"
#include "train/checkpoint_export.h"
#include "train/checkpoint_task.h"
#include "train/options.h"
#include "train/report.h"
#include "train/run_lock.h"
#include "train/run_setup.h"
#include "train/run_state.h"
#include "train/step_engine.h"
#include "train/step_log.h"
#include "train/step_plan.h"

namespace jige::train {

class PipelineEngine;

class Trainer {
 public:
  // Prepares everything up to the first step: data, memory, weights, or the state of the newest
  // checkpoint. Fails as prepare_run does; with kInvalidArgument when a checkpoint of OUT was made
  // under other options, or of a run that began from another model; with kCorrupt when none of its
  // checkpoints is intact; with kUnavailable when another process trains into OUT.
  static Result<std::unique_ptr<Trainer>> create(const TrainOptions& options,
                                                 TrainCallbacks callbacks = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const TrainPlan& plan() const { return setup_.plan; }
  const RunState& state() const { return state_; }

  // Trains to the last step or until should_stop, then writes the model. To be called once.
  // Fails with kExhausted or kIo when a checkpoint or the log cannot be written (the checkpoint
  // before stays good), as a task that fails, naming step, task, device and the checkpoint that is
  // whole, with kInvalidArgument after too many steps in a row without finite
  // gradients, when weights that a checkpoint is to keep are no numbers, or at the end when no step
  // had finite gradients or the last one's loss is no number; kCorrupt where the weights of a given
  // model are the reason.
  Result<TrainResult> run();
  // Whether run() failed for gradients or weights that are no numbers.
  bool has_diverged() const { return diverged_; }

 private:
  Trainer(std::shared_ptr<RunLock> lock, RunSetup setup, std::unique_ptr<CpuDevice> device,
          TrainCallbacks callbacks);
  static Result<std::unique_ptr<Trainer>> create_on_rank(const TrainOptions& options,
                                                         TrainCallbacks callbacks);
  Result<TrainResult> run_on_rank();
  // Sets what the steps begin with, from the checkpoint or anew; the other ranks get rank 0's.
  Status set_state(const std::optional<formats::CheckpointReader>& checkpoint);
  Status join_ranks(const std::optional<formats::CheckpointReader>& checkpoint);
  // What the first weights think of every pair: from its file on rank 0, or computed by all ranks,
  // each some of it, and kept there. The weights may become the first ones.
  Status share_reference(const std::optional<formats::CheckpointReader>& checkpoint);
  // Reads the newest checkpoint, if the run is to go on from one.
  static Result<std::optional<formats::CheckpointReader>> find_checkpoint(const RunSetup& setup);
  Status allocate();
  Status make_engine();
  Status load_base();
  Status start_weights();
  // Whether the reference was there.
  bool read_kept_reference();
  // Fails where the weights that the run began with are not there any more.
  Status check_first_weights() const;
  // By the engine's weights, which are the first ones; rank 0 keeps it.
  Status compute_reference();
  Status resume(const formats::CheckpointReader& checkpoint);
  // Forgets a best measurement whose checkpoint is not there.
  void check_best();

  // Takes what draws answers, unless nothing is left to draw.
  Status start_rewards(bool resumed);
  // Whether the reference of all ranks is what the run began with.
  Status check_reference(bool resumed) const;

  // Whether steps and measurements are all behind the run.
  bool nothing_left() const {
    return (state_.step == setup_.plan.steps_total || out_of_patience()) && !state_.evaluation_due;
  }
  bool out_of_patience() const;
  // The step whose weights are the best so far and are kept, and whether it is this one.
  std::optional<int64_t> kept_step() const;
  bool is_best_kept() const;
  // The step whose weights are the result.
  int64_t model_step() const;
  // Steps up to the last one; whether it ends before.
  Result<bool> run_steps();
  // Nothing where the step was left.
  Result<std::optional<StepInfo>> run_step();
  // Of what a step learned from.
  double step_flops(const StepPlan& learned) const;
  // What becomes of a step that failed: waits for the checkpoint under way, and says where the run
  // can go on.
  Error step_failure(int64_t step, Error error);
  // What follows a step: log, callbacks, evaluation and checkpoint where they are due.
  Status finish_step(const StepInfo& info);
  // Whether there is no use in going on, and the error that says so.
  bool diverged(const StepInfo& info) const;
  Status divergence(const StepInfo& info) const;
  // Fails where weights are no numbers, which no later step can mend.
  Status check_weights();
  // One that is left is due from then on.
  Status run_evaluation();
  Result<std::optional<EvalInfo>> measure_held_out();
  // Begins to write; await_checkpoint() says how it went.
  Status start_checkpoint();
  Status await_checkpoint();
  bool checkpoint_due() const;
  bool time_is_up() const;  // since the last checkpoint
  // Whether the optimizer's state is divided among ranks: all of them take part in a checkpoint.
  bool shards() const { return setup_.options.ranks && setup_.options.ranks->shards(); }
  Status write_log(const Json& record);
  Status write_model(TrainResult& result);
  // The last weights, or those of the best checkpoint; a merged model is made of the adapter that
  // is written.
  Status write_adapter(const std::string& folder);
  Status write_whole_model(const std::string& folder);
  Status export_step(CheckpointExportOptions what);
  TrainResult make_result();
  MemoryReport memory_report() const;
  std::optional<StepTimes> step_times() const;
  void note_memory();

  std::shared_ptr<RunLock> lock_;  // of rank 0, as all that is written
  RunSetup setup_;
  TrainCallbacks callbacks_;
  std::unique_ptr<CpuDevice> device_;          // the host's
  std::vector<std::unique_ptr<Device>> gpus_;  // that train
  int64_t gpu_free_first_bytes_ = 0;           // of all, before anything was allocated there
  std::unique_ptr<StepEngine> engine_;
  PipelineEngine* pipeline_ = nullptr;  // engine_, where it is one
  std::optional<StepPlanner> planner_;
  std::optional<StepLog> log_;
  std::vector<MicroBatch> evaluation_;
  RunState state_;
  int64_t steps_here_ = 0;
  int64_t tokens_here_ = 0;
  double seconds_here_ = 0;
  int64_t private_peak_bytes_ = 0;
  CheckpointTask checkpoint_;
  int64_t checkpoint_step_ = -1;  // of the newest checkpoint, be it still being written
  int64_t whole_step_ = -1;       // of the one that a run after this goes on from; on rank 0
  StopWatch checkpoint_watch_;
  double checkpoint_seconds_ = 0;  // on checkpoint_watch_, of the newest checkpoint
  std::optional<double> last_loss_;
  std::optional<EvalInfo> last_eval_;
  bool was_written_ = false;  // the results, by an earlier part of the run
  bool stop_asked_ = false;   // by a rank, in the last step
  bool save_asked_ = false;   // the same of a checkpoint
  bool diverged_ = false;
  bool ends_alike_ = false;  // the run ends with an error that all ranks come to by themselves
};

}  // namespace jige::train

// What a run tells its caller: before it starts, after every step, and at the end.
//
// Threads: values; callbacks are called from the thread that runs the trainer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/memory_plan.h"
#include "train/best_measurement.h"
#include "train/dataset.h"
#include "train/pipeline_plan.h"
#include "train/step_engine.h"
#include "train/step_plan.h"

namespace jige::train {

// Known before the first step.
struct TrainPlan {
  int64_t parameter_count = 0;
  int64_t trainable_count = 0;
  int64_t adapter_rank = 0;         // 0: the whole model is trained
  int64_t adapter_rank_useful = 0;  // Architecture::adapter_rank_useful
  int64_t steps_total = 0;
  int64_t step_first = 0;  // steps done by earlier parts of this run
  int64_t document_count = 0;
  bool pairs = false;                  // sequences are pairs of answers, of two documents each
  int64_t skipped_count = 0;           // bad lines left out of what was read just now
  int64_t sequence_count = 0;          // of one epoch
  int64_t epoch_tokens = 0;            // inputs of one epoch
  int64_t epoch_learned = 0;           // targets of one epoch
  int64_t held_out_count = 0;          // sequences
  double dropped_share = 0;            // of a step's products, left out with blocks
  double skipped_share = 0;            // of a step's products, that rows which are skipped may be
  int64_t context = 0;                 // tokens of a sequence at most
  int64_t context_max = 0;             // what the model's positions allow
  model::TrainingMemory memory;        // by purpose
  int64_t memory_predicted_bytes = 0;  // of the process, see run_setup.h
  int64_t memory_limit_bytes = 0;
  int64_t index_bytes = 0;          // of it, where documents and sequences of the data begin
  int64_t image_count = 0;          // in the data, of all records
  int64_t image_reading_bytes = 0;  // of it, file, pixels and patches of the largest one
  // Of it, what the first weights think of pairs, or where rewards are learned from they
  // themselves.
  int64_t reference_bytes = 0;
  bool prompts = false;       // sequences are prompts, whose answers are drawn
  int64_t drawing_bytes = 0;  // of it, what draws them, and the prompts
  int64_t prompt_bytes = 0;
  std::optional<PipelinePlan> pipeline;
  int64_t device_budget_bytes = 0;  // of the pipeline's largest device; 0: no limit
  int rank_count = 1;
  int ranks_here = 1;          // on this machine, each with the predicted memory
  int ranks_on_gpu = 1;        // of those, on this one's GPU
  int64_t stream_bytes = 0;    // of it, between the ranks; with GPUs of the host, besides
  int64_t pinned_bytes = 0;    // of the host, of ranks on GPUs: where their gradients meet
  bool sharded = false;        // the optimizer's state is divided among them; memory is this rank's
  bool split_context = false;  // each has a part of every sequence
};

// How a step used its experts.
struct ExpertInfo {
  BusiestExperts busiest;
  std::optional<double> balance_loss;  // what TrainOptions::expert_balance adds to the loss
};

struct StepInfo {
  int64_t step = 0;  // from 1
  int64_t steps_total = 0;
  double loss = 0;  // mean over the step's targets, in nats; of preference runs over its pairs
  std::optional<PreferenceMeans> preference;  // of runs with pairs
  std::optional<RewardStep> rewards;          // of runs that draw answers
  std::optional<ExpertInfo> experts;          // of models with experts
  std::optional<double> weight_share;         // RowGateUse::share of runs that skip rows
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  bool skipped = false;  // gradients were not finite: nothing changed
  int64_t input_count = 0;
  int64_t learned_count = 0;
  int64_t micro_batch_count = 0;
  double epoch = 0;    // epochs of data read so far
  double seconds = 0;  // this step
  double tokens_per_s = 0;
  double flops_per_s = 0;
  double flops_share = 0;  // of options.gemm_flops_per_s; 0: not known
  double run_seconds = 0;  // all steps so far
  int rank_count = 1;
  RankTimes ranks;  // with several ranks
};

struct EvalInfo {
  int64_t step = 0;
  double loss = 0;                            // 0 with rewards
  double perplexity = 0;                      // 0 with pairs, whose loss is not that of a token
  std::optional<PreferenceMeans> preference;  // of runs with pairs
  std::optional<RewardMeans> rewards;         // of runs that draw answers; greedy ones here
  int64_t learned_count = 0;
  double seconds = 0;
  bool best = false;  // of all so far
};

struct CheckpointInfo {
  int64_t step = 0;
  std::string folder;
  double seconds = 0;
};

struct TrainCallbacks {
  std::function<bool(const DataProgress&)> on_data;  // returns whether to go on
  WalkProgress on_walk;                              // while the run's steps are counted
  WalkProgress on_measure;                           // while blocks are timed, for a plan
  WalkProgress on_reference;  // while the reference is computed, in inputs (preference runs)
  // While held-out data is measured, in inputs. False leaves the measurement, as should_leave does;
  // of several ranks all go on.
  WalkProgress on_held_out;
  std::function<void(const TrainPlan&)> on_plan;
  std::function<void(const StepInfo&)> on_step;
  std::function<void(const EvalInfo&)> on_eval;
  std::function<void(const CheckpointInfo&)> on_checkpoint;
  // Asked between steps; true ends the run behind a checkpoint.
  std::function<bool()> should_stop;
  // Asked now and then while answers are drawn and scored; true leaves the step or measurement, and
  // ends the run behind a checkpoint of the step before, from which it goes on with the same bits.
  std::function<bool()> should_leave;
};

struct MemoryReport {
  int64_t arena_predicted_bytes = 0;
  int64_t arena_peak_bytes = 0;
  int64_t process_predicted_bytes = 0;
  int64_t index_bytes = 0;                 // of it, the data's: TrainPlan::index_bytes
  int64_t process_private_peak_bytes = 0;  // measured after steps, without mapped files; of a GPU
  int64_t process_peak_bytes = 0;          // VmHWM, mapped files included
  std::vector<int64_t> device_planned_bytes, device_peak_bytes;  // of a pipeline, by device
};

// How long a step of a pipeline takes.
struct StepTimes {
  double predicted_s = 0;
  double measured_s = 0;  // median of this part's steps, the first, which warms up, left out
};

struct TrainResult {
  int64_t steps_done = 0;
  int64_t steps_total = 0;
  bool stopped = false;                 // by should_stop; the checkpoint of steps_done is written
  bool was_complete = false;            // nothing was left to do
  std::optional<double> loss;           // of the last step of this part
  std::optional<EvalInfo> eval;         // the last one of this part
  std::optional<BestMeasurement> best;  // of the whole run
  int64_t model_step = 0;               // whose weights are the result
  int64_t bad_steps = 0;                // skipped in the whole run
  int64_t input_tokens = 0;             // of the whole run
  double seconds = 0;                   // of the whole run
  double tokens_per_s = 0;              // of this part
  MemoryReport memory;
  std::optional<StepTimes> step_times;  // of a pipeline, where more than one step ran
  std::string log_path;
  std::string model_folder;    // written at the end; empty when stopped, or LoRA without merging
  std::string adapter_folder;  // LoRA
};

}  // namespace jige::train

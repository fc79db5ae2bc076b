// Everything a run decides before it allocates the model: which model, which data, how many steps,
// how much memory; and that it may run at all.
//
// Order: options are checked, the model's configuration is read and the memory plan is compared
// with the limit before any data is touched; then the data is tokenised and cut, and the steps are
// counted.
// Threads: one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "base/threads.h"
#include "model/architecture.h"
#include "model/memory_plan.h"
#include "text/tokenizer.h"
#include "train/dataset.h"
#include "train/options.h"
#include "train/report.h"
#include "train/run_state.h"
#include "train/step_plan.h"

namespace jige::train {

struct TrainingThreads {
  int devices = 1;  // logical ones of a pipeline
  int of_each = 1;
  int64_t micro_batch_tokens = 0;
  int64_t scratch_bytes = 0;  // that each takes at least, where blocks are dropped
};

// Resident memory of a process besides arenas and mapped files: code, libraries, allocator,
// tokeniser buffers, and the scratch of the threads that train in it.
int64_t process_overhead_bytes(const model::Architecture& architecture, DType compute,
                               const TrainingThreads& threads);

// What the host has left now for a pipeline on GPUs, whose copies go from and to pinned memory.
int64_t pipeline_host_bytes();

struct RunSetup {
  TrainOptions options;  // with context, folders, log path and steps_total filled in
  int threads = 1;       // that train in this process, without a pipeline
  std::string tokenizer_folder;
  std::string image_folder;  // the one to start from, where its model reads images; or empty
  text::SpecialTokens special;
  std::unique_ptr<const model::Architecture> architecture;
  model::WeightsOptions weights_options;
  model::TrainingMemory memory;
  Dataset dataset;
  std::optional<RunSource> source;       // filled in by the trainer (run_source.h)
  std::shared_ptr<const Json> identity;  // options.h, with the model and the hashes of the data
  TrainPlan plan;
  std::optional<PipelinePlan> pipeline;  // with options.pipeline

  std::string checkpoints_folder() const { return options.out_folder + "/checkpoints"; }
  uint64_t cursor_max() const;  // of the step planner
  StepPlannerOptions planner_options() const;
  int64_t updates_per_step() const { return options.grpo ? options.grpo->updates : 1; }
  bool leads() const { return !options.ranks || options.ranks->rank == 0; }
  RunOrigin origin() const;
};

// The checksum of a folder's weights, by which an adapter knows its base.
Result<std::string> hash_weights(const std::string& folder);

// Fails with kInvalidArgument naming the option, kExhausted when the plan does not fit into memory,
// saying what would; and as the readers of configuration, tokenizer and data do.
Result<RunSetup> prepare_run(const TrainOptions& options, const TrainCallbacks& callbacks,
                             ThreadTeam& team);

}  // namespace jige::train

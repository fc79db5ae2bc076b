// Training by a pipeline schedule: logical devices with capped memory, and the masters on the host
// or on the devices, as the plan says. Keeps when the tasks of the last steps ran
// (OUT/pipeline.json, for `jige report`), and traces the first ones where asked.
//
// Threads: one thread at a time.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/options.h"
#include "train/pipeline_executor.h"
#include "train/pipeline_plan.h"
#include "train/pipeline_record.h"
#include "train/step_engine.h"
#include "train/trace.h"

namespace jige::train {

class PipelineEngine final : public StepEngine {
 public:
  // The architecture, and the GPUs of which the devices are parts in turns (none: the processor's),
  // must outlive the engine.
  // `options.pipeline` is set. Fails with kExhausted.
  static Result<std::unique_ptr<PipelineEngine>> create(
      std::vector<Device*> gpus, const model::Architecture& architecture,
      const model::WeightsOptions& weights_options, const PipelinePlan& plan,
      const TrainOptions& options);

  model::ModelWeights& weights() override { return *weights_; }
  Optimizer& optimizer() override { return *optimizer_; }
  model::NodeStreams streams() override { return machine_->state_streams(); }
  Result<model::OwnNodeStreams> make_streams() override { return machine_->make_state_streams(); }
  void refresh() override { executor_->refresh(); }
  Result<StepOutcome> run(const Corpus& corpus, const StepPlan& plan,
                          const StepRates& rates) override;
  Status evaluate(HostBatch& batch, ExactSum& sum) override;
  Status end_steps() override;
  EngineMemory memory() const override;

  const plan::PipelineSchedule& schedule() const { return machine_->schedule(); }
  // Median of the latest steps, the first, which warms up, left out; none where it was alone.
  std::optional<double> step_seconds() const;
  // When the tasks of the last step ran.
  std::span<const TaskSpan> spans() const { return executor_->spans(); }
  int64_t device_peak_bytes(int32_t device) const {
    return machine_->device(device).arena().peak_bytes();
  }

 private:
  PipelineEngine() = default;

  void record_memory();
  void note_time();

  static constexpr size_t kTimedSteps = 256;  // that are kept

  int64_t predicted_bytes_ = 0;
  int64_t step_ = 0;  // that runs
  PipelineRecord record_;
  std::string record_path_;
  std::optional<TraceWriter> trace_;
  std::unique_ptr<PipelineMachine> machine_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::vector<HostBatch> batches_;
  bool is_warm_ = false;
  std::deque<double> seconds_;  // of the latest steps
};

}  // namespace jige::train

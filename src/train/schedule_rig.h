// A schedule with everything it runs on: logical devices with capped arenas, the weights of a
// random model, an optimizer, an executor. For benchmarks of schedules and for measuring blocks.
//
//   JIGE_TRY(const auto rig, ScheduleRig::create(schedule, options));
//   JIGE_TRY(const double seconds, rig->step());
//
// All rigs of one set of options start with the same weights and see the same tokens, so with f32
// their losses must have the same bits.
// Threads: one thread; the executor has its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "formats/model_config.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "plan/pipeline_peak.h"
#include "plan/pipeline_schedule.h"
#include "train/optimizer.h"
#include "train/pipeline_executor.h"

namespace jige::train {

// Times of timed devices, in forward passes of one block. The defaults are those of a node of four
// V100: 40 TFLOP/s and 10 GB/s a device, 2 bytes a parameter, 5e8 parameters a second that the host
// updates for each, micro-batches of 2048 tokens, a width of some 7000.
struct TimedRatios {
  double forward_s = 5e-3;  // recompute and both backward passes take as long each
  double fetch = 2;         // a block's parameters
  double offload = 2;       // a block's gradient
  double update = 20;       // a block, on the host
  double message = 0.05;    // a boundary
};

struct RigOptions {
  formats::ModelConfig config;  // block_count - 2 layers
  int64_t micro_batch_tokens = 64;
  int64_t context = 32;
  DType compute = DType::kF32;
  std::vector<Device*> gpus;  // of which the devices are parts, in turns; none: this processor's
  int compute_threads = 1;    // of each device
  int optimizer_threads = 1;
  double clip_norm = 1;
  int64_t device_bytes = 0;          // cap of each device; 0: what the schedule was planned to need
  std::vector<int64_t> own_bytes;    // what each may need at most; empty: as much as it was planned
  std::optional<TimedRatios> timed;  // hold the time instead of computing
};

// A Llama of `block_count` blocks that all have nearly the same number of parameters, embedding and
// head too. Fails with kInvalidArgument below three blocks or on a width that is no multiple of 16.
Result<formats::ModelConfig> even_blocks_config(int64_t block_count, int64_t width);

class ScheduleRig {
 public:
  // GPUs must outlive the rig. Fails with kExhausted, naming the bytes, when the schedule can need
  // more than `device_bytes` or `own_bytes`.
  static Result<std::unique_ptr<ScheduleRig>> create(const plan::PipelineSchedule& schedule,
                                                     const RigOptions& options);

  // Runs the next training step; its seconds.
  Result<double> step();
  // Of all steps so far; zeros of timed devices.
  const std::vector<double>& losses() const { return losses_; }
  int64_t step_tokens() const;
  // Predicted from the costs.
  double predicted_s() const { return predicted_s_; }
  // The most that the fullest device can hold, and what each did.
  int64_t planned_bytes() const { return peaks_.device_bytes_max(); }
  std::vector<int64_t> device_peak_bytes() const;
  int64_t host_peak_bytes() const { return machine_->host_peak_bytes(); }
  const PipelineExecutor& executor() const { return *executor_; }

 private:
  ScheduleRig() = default;
  std::vector<HostBatch> next_batches() const;

  RigOptions options_;
  plan::PipelinePeaks peaks_;
  double predicted_s_ = 0;
  std::unique_ptr<const model::Architecture> architecture_;
  std::unique_ptr<PipelineMachine> machine_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::unique_ptr<PipelineExecutor> executor_;
  std::vector<double> losses_;
};

}  // namespace jige::train

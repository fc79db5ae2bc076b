// Runs training steps as a schedule says: on logical devices with capped arenas, each queue on a
// thread of its own, with the optimizer on the devices or on the host, during the passes or behind
// them.
//
//   JIGE_TRY(auto machine, PipelineMachine::create(…));
//   JIGE_TRY(auto weights, model::ModelWeights::create(machine->node_arenas(), …)); …
//   JIGE_TRY(auto executor, PipelineExecutor::create(*machine, weights, optimizer));
//   JIGE_TRY(const PipelineStep step, executor->run({.batches = batches, …}));
//
// A step ends when every task has ended, updates included: the next one reads the new weights.
// Invariants: (1) with f32 compute, losses, gradients, parameters and moments have the bits of
//                 train/executor.h with train/optimizer.h, whatever the schedule, the devices, the
//                 optimizer's place and the clipping.
//             (2) a device never holds more than its cap; what it holds at most is planned
//                 (plan/pipeline_peak.h).
// Threads: run() and evaluate() from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/exact_sum.h"
#include "base/result.h"
#include "model/weights.h"
#include "plan/pipeline_costs.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_passes.h"
#include "plan/pipeline_schedule.h"
#include "tensor/pinned_memory.h"
#include "train/boundary_carrier.h"
#include "train/expert_use.h"
#include "train/logical_device.h"
#include "train/optimizer.h"
#include "train/pipeline_passes.h"
#include "train/pipeline_updates.h"
#include "train/pipeline_weights.h"
#include "train/queue_runner.h"
#include "train/schedule_memory.h"
#include "train/task_pacing.h"

namespace jige::train {

struct PipelineMachineOptions {
  std::vector<int64_t> device_bytes;  // by device: its cap; empty: none
  int64_t host_bytes = kUnlimitedBytes;
  // Of which the devices are parts, in turns (gpu_in_turn); none: they are this processor's.
  std::vector<Device*> gpus;
  int compute_threads = 1;  // of each device
  int optimizer_threads = 1;
};

// The devices of a schedule and the host's memory. Beside GPUs the host's is of two kinds: what is
// copied to and from devices is pinned.
class PipelineMachine {
 public:
  // Fails with kInvalidArgument or kCorrupt when the schedule is not sound, with kExhausted where
  // the host has no memory for messages. GPUs must outlive it.
  static Result<std::unique_ptr<PipelineMachine>> create(plan::PipelineSchedule schedule,
                                                         plan::PipelineCosts costs,
                                                         const PipelineMachineOptions& options);

  const plan::PipelineSchedule& schedule() const { return schedule_; }
  const plan::PipelineCosts& costs() const { return costs_; }
  LogicalDevice& device(int32_t d) { return *devices_[static_cast<size_t>(d)]; }
  // Brings a device's bytes into the memory of another, through the host where they are parts of
  // different GPUs (boundary_carrier.h), and waits. One thread at a time for each device `from`.
  struct Message {
    int32_t from = 0, to = 0;
    void* dst = nullptr;
    const void* src = nullptr;
    int64_t bytes = 0;
  };
  void carry(const Message& message);
  // The most that was taken of the host's memory.
  int64_t host_peak_bytes() const;
  // For masters and moments, which are on the host or, with an optimizer on devices, on the device
  // of the node's update: streams of the host, or of the GPUs.
  const model::NodeStreams& state_streams() const { return state_streams_->get(); }
  // Others, for another thread.
  Result<model::OwnNodeStreams> make_state_streams();
  // By block: the arena of its masters, gradients and packed forms, and that of its moments.
  std::vector<Arena*> node_arenas() { return arenas_of_nodes(*copied_arena_); }
  std::vector<Arena*> moment_arenas() { return arenas_of_nodes(*host_arena_); }
  // Whether gradients are kept with the masters (on the host) or in the devices' buffers.
  bool host_gradients() const { return schedule_.optimizer != plan::OptimizerMode::kDevice; }

 private:
  PipelineMachine() = default;
  Device* gpu_of(int32_t d) const;  // null: the processor
  Status make_host(const PipelineMachineOptions& options);
  Status make_carriers();
  std::vector<Arena*> arenas_of_nodes(Arena& host);
  // By node: the device of its update, where that is not the host's; else -1.
  std::vector<int32_t> devices_of_nodes() const;

  plan::PipelineSchedule schedule_;
  plan::PipelineCosts costs_;
  std::vector<Device*> gpus_;
  std::unique_ptr<CpuDevice> host_;
  std::unique_ptr<PinnedMemory> pinned_;  // with a GPU
  std::unique_ptr<Arena> host_arena_, pinned_arena_;
  Arena* copied_arena_ = nullptr;  // of these the one of what devices copy
  std::optional<model::OwnNodeStreams> state_streams_;
  std::vector<std::unique_ptr<LogicalDevice>> devices_;
  std::vector<BoundaryCarrier> carriers_;  // by sender, with several GPUs
};

struct PipelineInput {
  std::span<const HostBatch>
      batches;       // as many as the schedule has micro-batches; some may be empty
  BatchTerms terms;  // of the step's first token
  double learning_rate = 0;
  double expert_bias_rate = 0;
  // Called in an update's queue before weights or moments change; may wait. Empty: nothing.
  std::function<void()> before_update;
};

struct PipelineStep {
  double loss_sum = 0;  // over all targets, unweighted; NaN when one is not finite
  ExpertUse experts;
  OptimizerReport optimizer;
};

struct PipelineExecutorOptions {
  int64_t micro_batch_tokens = 0;
  int64_t position_count = 0;  // rows of the devices' rope tables: the longest sequence
  // Called in a task's queue before it runs; a failure fails the run. For tests.
  std::function<Status(int32_t task)> before_task;
  // Timed devices (train/task_pacing.h): passes and updates take the time of the machine's costs
  // and compute nothing, copies move their bytes and take theirs. Weights stay as they are, losses
  // are 0.
  bool timed = false;
};

class PipelineExecutor {
 public:
  // The weights were made in machine.node_arenas(), the optimizer in machine.moment_arenas(), and
  // their values are set.
  // Everything must outlive the executor. Fails with kExhausted when what is always on a device is
  // more than its cap, with kInvalidArgument when the
  // schedule is of another model or could not skip a step.
  static Result<std::unique_ptr<PipelineExecutor>> create(PipelineMachine& machine,
                                                          model::ModelWeights& weights,
                                                          Optimizer& optimizer,
                                                          PipelineExecutorOptions options);

  // One training step. A failed step changes nothing where updates are speculative or behind a
  // barrier that was not reached; else the weights may be of neither step.
  Result<PipelineStep> run(const PipelineInput& input);

  // Loss of one micro-batch without training: block after block, each on the device of its forward
  // pass, which has room for it; parameters of the host are brought there. Adds to `sum`. Fails
  // with kExhausted when a device has no room.
  Status evaluate(const HostBatch& batch, ExactSum& sum);

  // Renews what devices keep, after the weights were changed from outside.
  void refresh();

  std::span<const TaskSpan> spans() const { return runner_->spans(); }

 private:
  PipelineExecutor(PipelineMachine& machine, model::ModelWeights& weights, Optimizer& optimizer,
                   PipelineExecutorOptions options);
  Status prepare();
  // One task; failures name it and its device.
  Status execute(int32_t task);
  Status run_task(int32_t task);
  void compute(int32_t task);
  void move_bytes(int32_t task);
  void execute_pass(int32_t task);
  void send(int32_t task);
  void move_biases(const ExpertUse& use, double rate);
  bool is_last_weight(const plan::PipelineTask& task) const;
  bool is_decision(int32_t barrier) const;

  PipelineMachine& machine_;
  model::ModelWeights& weights_;
  Optimizer& optimizer_;
  PipelineExecutorOptions options_;
  std::optional<plan::PipelineGraph> graph_;
  std::optional<plan::PipelinePasses> passes_;
  std::optional<ScheduleMemory> memory_;
  std::optional<PipelineWeights> places_;
  std::optional<PipelineUpdates> updates_;
  std::optional<PassRunner> pass_runner_;
  std::optional<TaskPacing> pacing_;     // of timed devices
  std::function<void()> before_update_;  // of the step
  ExactSum loss_;                        // of the step; written by the queue that runs the head
  std::optional<ExpertMeter> experts_;   // of the step; of any queue
  std::unique_ptr<QueueRunner> runner_;  // last: its threads use all of the above
};

}  // namespace jige::train

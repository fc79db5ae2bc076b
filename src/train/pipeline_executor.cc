#include "train/pipeline_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "model/weights_copy.h"
#include "plan/pipeline_verify.h"
#include "train/expert_bias.h"

namespace jige::train {

using plan::BufferKind;
using plan::PipelineTask;
using plan::TaskKind;

Result<std::unique_ptr<PipelineMachine>> PipelineMachine::create(
    plan::PipelineSchedule schedule, plan::PipelineCosts costs,
    const PipelineMachineOptions& options) {
  JIGE_DO(plan::verify_pipeline(schedule));
  JIGE_DO(plan::check_costs(costs, schedule.block_count));
  JIGE_DO(plan::check_paces(costs, schedule.device_count));
  JIGE_CHECK(
      options.device_bytes.empty() || std::ssize(options.device_bytes) == schedule.device_count,
      "caps of {} devices for {}", options.device_bytes.size(), schedule.device_count);
  std::unique_ptr<PipelineMachine> machine(new PipelineMachine());
  machine->schedule_ = std::move(schedule);
  machine->costs_ = std::move(costs);
  machine->gpus_ = options.gpus;
  JIGE_DO(machine->make_host(options));
  for (int32_t d = 0; d < machine->schedule_.device_count; ++d) {
    const int64_t cap = options.device_bytes.empty() ? kUnlimitedBytes
                                                     : options.device_bytes[static_cast<size_t>(d)];
    JIGE_TRY(auto device, LogicalDevice::create({.name = fmt::format("device{}", d),
                                                 .gpu = machine->gpu_of(d),
                                                 .capacity_bytes = cap,
                                                 .compute_threads = options.compute_threads,
                                                 .optimizer_threads = options.optimizer_threads}));
    machine->devices_.push_back(std::move(device));
  }
  JIGE_DO(machine->make_carriers());
  return machine;
}

Device* PipelineMachine::gpu_of(int32_t d) const {
  return gpus_.empty() ? nullptr : gpus_[gpu_in_turn(gpus_.size(), d)];
}

Status PipelineMachine::make_host(const PipelineMachineOptions& options) {
  host_ = std::make_unique<CpuDevice>(
      CpuDeviceOptions{.name = "host", .thread_count = options.optimizer_threads});
  host_arena_ = std::make_unique<Arena>(*host_, "host", options.host_bytes);
  copied_arena_ = host_arena_.get();
  if (!gpus_.empty()) {
    // Pinned by one GPU's driver, it is so for all of them.
    pinned_ = std::make_unique<PinnedMemory>(*host_, *gpus_.front());
    pinned_arena_ = std::make_unique<Arena>(*pinned_, "host", options.host_bytes);
    copied_arena_ = pinned_arena_.get();
  }
  JIGE_TRY(state_streams_, make_state_streams());
  return {};
}

Status PipelineMachine::make_carriers() {
  if (gpus_.size() < 2) return {};
  for (size_t d = 0; d < devices_.size(); ++d) {
    JIGE_TRY(auto carrier,
             BoundaryCarrier::create(*pinned_arena_, gpus_, plan::message_bytes_max(costs_)));
    carriers_.push_back(std::move(carrier));
  }
  return {};
}

void PipelineMachine::carry(const Message& message) {
  Stream& stream = device(message.from).send();
  if (gpu_of(message.from) != gpu_of(message.to)) {
    carriers_[static_cast<size_t>(message.from)].carry(
        stream, {.dst = message.dst,
                 .src = message.src,
                 .bytes = message.bytes,
                 .to = gpu_in_turn(gpus_.size(), message.to)});
    return;
  }
  stream.copy(message.dst, message.src, message.bytes, CopyKind::kDeviceToDevice);
  stream.synchronize();
}

int64_t PipelineMachine::host_peak_bytes() const {
  return host_arena_->peak_bytes() + (pinned_arena_ ? pinned_arena_->peak_bytes() : 0);
}

std::vector<int32_t> PipelineMachine::devices_of_nodes() const {
  std::vector<int32_t> devices(static_cast<size_t>(schedule_.block_count), -1);
  if (host_gradients()) return devices;
  for (const PipelineTask& task : schedule_.tasks) {
    if (task.kind != TaskKind::kOptimizerStep) continue;
    for (int32_t b = task.blocks.begin; b < task.blocks.end; ++b) {
      devices[static_cast<size_t>(b)] = task.device;
    }
  }
  return devices;
}

std::vector<Arena*> PipelineMachine::arenas_of_nodes(Arena& host) {
  std::vector<Arena*> arenas;
  for (const int32_t d : devices_of_nodes()) arenas.push_back(d < 0 ? &host : &device(d).arena());
  return arenas;
}

Result<model::OwnNodeStreams> PipelineMachine::make_state_streams() {
  std::vector<Device*> devices;
  for (const int32_t d : devices_of_nodes()) {
    Device* const gpu = d < 0 ? nullptr : gpu_of(d);
    devices.push_back(gpu ? gpu : host_.get());
  }
  return model::OwnNodeStreams::make(devices);
}

PipelineExecutor::PipelineExecutor(PipelineMachine& machine, model::ModelWeights& weights,
                                   Optimizer& optimizer, PipelineExecutorOptions options)
    : machine_(machine), weights_(weights), optimizer_(optimizer), options_(std::move(options)) {}

Result<std::unique_ptr<PipelineExecutor>> PipelineExecutor::create(
    PipelineMachine& machine, model::ModelWeights& weights, Optimizer& optimizer,
    PipelineExecutorOptions options) {
  std::unique_ptr<PipelineExecutor> executor(
      new PipelineExecutor(machine, weights, optimizer, std::move(options)));
  JIGE_DO(executor->prepare());
  return executor;
}

Status PipelineExecutor::prepare() {
  const plan::PipelineSchedule& schedule = machine_.schedule();
  JIGE_CHECK(weights_.options().gradients == machine_.host_gradients(),
             "gradients of an optimizer on the host are the weights' own, others are not");
  const bool tied =
      weights_.architecture().config().tied_embeddings && !weights_.architecture().lora();
  if (tied != schedule.tied) {
    return fail(Code::kInvalidArgument,
                "the schedule is made for a model whose head is {}tied to its embedding, this one "
                "is {}; plan anew",
                schedule.tied ? "" : "not ", tied ? "tied" : "not");
  }
  const auto nodes = static_cast<int32_t>(weights_.architecture().node_count());
  if (schedule.block_count != nodes) {
    return fail(Code::kInvalidArgument,
                "the schedule is made for a model of {} blocks, this one has {}; plan anew",
                schedule.block_count, nodes);
  }
  if (schedule.clip == plan::ClipMode::kNone && schedule.optimizer != plan::OptimizerMode::kSync &&
      !options_.timed) {
    return fail(Code::kInvalidArgument,
                "a step whose gradients are not finite must be taken back as a whole: plan with "
                "clipping `exact` or `speculate`, or the optimizer `sync`");
  }
  JIGE_TRY(graph_, plan::PipelineGraph::create(schedule));
  JIGE_TRY(passes_, plan::PipelinePasses::create(schedule));
  std::vector<plan::PipelineBuffer> buffers = plan::pipeline_buffers(schedule, machine_.costs());
  // Masters, moments and images are the weights', the optimizer's and the updates' own.
  std::erase_if(buffers, [&](const plan::PipelineBuffer& buffer) {
    const bool state = buffer.kind == BufferKind::kState || buffer.kind == BufferKind::kUndo;
    const bool own = buffer.kind == BufferKind::kParameters && !machine_.host_gradients();
    return state || own || buffer.device == plan::kHostDevice;
  });
  std::vector<Arena*> arenas;
  for (int32_t d = 0; d < schedule.device_count; ++d) arenas.push_back(&machine_.device(d).arena());
  JIGE_TRY(memory_,
           ScheduleMemory::create(std::move(buffers), schedule.tasks.size(), std::move(arenas)));
  for (int32_t d = 0; d < schedule.device_count; ++d) {
    machine_.device(d).use_workspace(weights_.architecture(), weights_.options().compute,
                                     {.micro_batch_tokens = options_.micro_batch_tokens,
                                      .micro_batches = schedule.micro_batch_count,
                                      .position_count = options_.position_count},
                                     memory_->lasting(BufferKind::kWorkspace, d, 0));
  }
  places_.emplace(schedule, *graph_, *passes_, weights_, *memory_);
  std::optional<UndoImages> undo;
  if (schedule.clip == plan::ClipMode::kSpeculate) {
    JIGE_TRY(undo, UndoImages::create(machine_.moment_arenas(), optimizer_));
  }
  updates_.emplace(schedule, weights_, optimizer_, *places_, std::move(undo));
  pass_runner_.emplace(PassWorld{.schedule = schedule,
                                 .graph = *graph_,
                                 .passes = *passes_,
                                 .architecture = weights_.architecture(),
                                 .compute = weights_.options().compute,
                                 .memory = *memory_,
                                 .weights = *places_,
                                 .micro_batch_tokens = options_.micro_batch_tokens});
  experts_.emplace(weights_.architecture());
  if (options_.timed) pacing_.emplace(schedule, *graph_, machine_.costs());
  refresh();
  runner_ = std::make_unique<QueueRunner>(*graph_, [this](int32_t task) { return execute(task); });
  return {};
}

void PipelineExecutor::refresh() {
  for (int32_t d = 0; d < machine_.schedule().device_count; ++d) {
    places_->refresh(machine_.device(d).fetch(), d);
  }
}

Result<PipelineStep> PipelineExecutor::run(const PipelineInput& input) {
  for (int32_t d = 0; d < machine_.schedule().device_count; ++d) {
    machine_.device(d).load(input.batches, input.terms);
  }
  before_update_ = input.before_update;
  loss_ = ExactSum();
  experts_->take();  // of a step that failed
  updates_->begin(input.learning_rate);
  if (Status status = runner_->run(); !status) {
    memory_->release_all();
    updates_->abandon(machine_.state_streams());
    refresh();
    return tl::unexpected(std::move(status.error()));
  }
  if (pacing_) {
    memory_->release_all();
    return PipelineStep{};
  }
  const double loss = loss_.value();
  const PipelineUpdates::Outcome outcome =
      updates_->finish(machine_.state_streams(), std::isfinite(loss));
  memory_->release_all();
  if (outcome.redone) refresh();
  PipelineStep step{.loss_sum = loss, .experts = experts_->take(), .optimizer = outcome.report};
  if (step.optimizer.applied) move_biases(step.experts, input.expert_bias_rate);
  return step;
}

void PipelineExecutor::move_biases(const ExpertUse& use, double rate) {
  if (rate == 0) return;
  move_choice_biases(machine_.state_streams(), weights_, use, rate);
  for (const model::NamedParam& param : weights_.trainable()) {
    if (!param.spec->choice_bias) continue;
    const int32_t home = places_->home(static_cast<int32_t>(param.node));
    if (home >= 0) places_->renew(machine_.device(home).fetch(), param);
  }
}

bool PipelineExecutor::is_last_weight(const PipelineTask& task) const {
  return task.kind == TaskKind::kBackwardWeight &&
         task.micro_batch == machine_.schedule().micro_batch_count - 1;
}

// The barrier in front of the updates, not the one that ends the step.
bool PipelineExecutor::is_decision(int32_t barrier) const {
  return static_cast<size_t>(barrier) + 1 != machine_.schedule().tasks.size();
}

Status PipelineExecutor::execute(int32_t id) {
  Status status = run_task(id);
  if (status) return {};
  return with_context(std::move(status.error()), "task {}",
                      plan::describe_task(machine_.schedule(), id));
}

Status PipelineExecutor::run_task(int32_t id) {
  const int64_t begun_ns = pacing_ ? pacing_->begin(id, pacing_->now_ns()) : 0;
  if (options_.before_task) JIGE_DO(options_.before_task(id));
  JIGE_DO(memory_->acquire(id));
  if (pacing_) {
    move_bytes(id);
    pacing_->hold(id, begun_ns);
  } else {
    compute(id);
  }
  memory_->release(id);
  return {};
}

void PipelineExecutor::compute(int32_t id) {
  const PipelineTask& task = machine_.schedule().tasks[static_cast<size_t>(id)];
  const auto device = [&]() -> LogicalDevice& { return machine_.device(task.device); };
  if (plan::is_pass(task.kind)) {
    execute_pass(id);
  } else if (task.kind == TaskKind::kGradientOffload) {
    updates_->gather(device().offload(), task.blocks);
  } else if (task.kind == TaskKind::kOptimizerStep) {
    if (before_update_) before_update_();
    updates_->update(machine_.host_gradients() ? device().optimizer() : device().compute(),
                     task.blocks);
  } else if (task.kind == TaskKind::kBarrier && is_decision(id)) {
    updates_->decide(machine_.state_streams(), std::isfinite(loss_.value()));
  } else {
    move_bytes(id);
  }
}

// What a task copies; passes, updates and waits copy nothing.
void PipelineExecutor::move_bytes(int32_t id) {
  const PipelineTask& task = machine_.schedule().tasks[static_cast<size_t>(id)];
  if (plan::is_send(task.kind)) {
    send(id);
  } else if (task.kind == TaskKind::kFetch) {
    places_->fetch(machine_.device(task.device).fetch(), id);
  } else if (task.kind == TaskKind::kGradientOffload) {
    updates_->take(machine_.device(task.device).offload(), task.blocks);
  }
}

void PipelineExecutor::execute_pass(int32_t id) {
  const PipelineTask& task = machine_.schedule().tasks[static_cast<size_t>(id)];
  LogicalDevice& device = machine_.device(task.device);
  pass_runner_->run(device, id);
  if (pass_runner_->makes_losses(id) && device.token_count(task.micro_batch) > 0) {
    device.add_losses(task.micro_batch, loss_);
  }
  pass_runner_->add_expert_use(device, id, *experts_);
  if (is_last_weight(task) && !machine_.host_gradients()) {
    updates_->gather(device.compute(), task.blocks);
  }
}

void PipelineExecutor::send(int32_t id) {
  const PipelineTask& task = machine_.schedule().tasks[static_cast<size_t>(id)];
  LogicalDevice& device = machine_.device(task.device);
  const PassRunner::Message message = pass_runner_->message(id);
  const int64_t bytes =
      device.token_count(task.micro_batch) * weights_.architecture().stream_columns() * 4;
  if (bytes == 0) return;
  machine_.carry({.from = task.device,
                  .to = task.peer,
                  .dst = message.to.data,
                  .src = message.from.data,
                  .bytes = bytes});
}

}  // namespace jige::train

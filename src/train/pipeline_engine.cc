#include "train/pipeline_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace jige::train {

Result<std::unique_ptr<PipelineEngine>> PipelineEngine::create(
    std::vector<Device*> gpus, const model::Architecture& architecture,
    const model::WeightsOptions& weights_options, const PipelinePlan& plan,
    const TrainOptions& options) {
  std::unique_ptr<PipelineEngine> engine(new PipelineEngine());
  const PipelineOptions& wanted = *options.pipeline;
  const auto capacity = [](int64_t bytes) { return bytes > 0 ? bytes : kUnlimitedBytes; };
  std::vector<int64_t> budgets, caps;
  for (int32_t d = 0; d < plan.schedule.device_count; ++d) {
    budgets.push_back(wanted.budget_of(d));
    caps.push_back(capacity(budgets.back()));
  }
  engine->predicted_bytes_ = plan.total_bytes();
  JIGE_TRY(engine->machine_,
           PipelineMachine::create(plan.schedule, plan.costs,
                                   {.device_bytes = std::move(caps),
                                    .host_bytes = capacity(wanted.host_bytes),
                                    .gpus = std::move(gpus),
                                    .compute_threads = std::max(options.thread_count, 1),
                                    .optimizer_threads = optimizer_threads(options)}));
  model::WeightsOptions kept = weights_options;
  kept.gradients = engine->machine_->host_gradients();
  kept.position_count = 0;  // devices have their own rope tables
  const std::vector<Arena*> arenas = engine->machine_->node_arenas();
  JIGE_TRY(engine->weights_, model::ModelWeights::create(arenas, architecture, kept));
  JIGE_TRY(engine->optimizer_, Optimizer::create(engine->machine_->moment_arenas(),
                                                 engine->weights_->trainable(), options.optimizer));
  PipelineExecutorOptions execution{.micro_batch_tokens = options.micro_batch_tokens,
                                    .position_count = weights_options.position_count};
  if (wanted.before_task) {
    execution.before_task = [hook = wanted.before_task, self = engine.get()](int32_t task) {
      return hook(self->step_, task);
    };
  }
  JIGE_TRY(engine->executor_, PipelineExecutor::create(*engine->machine_, *engine->weights_,
                                                       *engine->optimizer_, std::move(execution)));
  engine->record_ = {.schedule = plan.schedule,
                     .costs = plan.costs,
                     .memory = {.device_budget_bytes = std::move(budgets),
                                .host_budget_bytes = wanted.host_bytes,
                                .device_planned_bytes = plan.device_bytes,
                                .host_planned_bytes = plan.host_bytes}};
  engine->record_path_ = options.out_folder + "/pipeline.json";
  if (!wanted.trace_path.empty()) {
    JIGE_TRY(engine->trace_, TraceWriter::create(wanted.trace_path, {.steps = wanted.trace_steps}));
  }
  engine->batches_.resize(static_cast<size_t>(plan.schedule.micro_batch_count));
  return engine;
}

Result<StepOutcome> PipelineEngine::run(const Corpus& corpus, const StepPlan& plan,
                                        const StepRates& rates) {
  JIGE_CHECK(plan.micro_batches.size() <= batches_.size(), "{} micro-batches for a schedule of {}",
             plan.micro_batches.size(), batches_.size());
  for (size_t m = 0; m < batches_.size(); ++m) {
    batches_[m] = {};
    if (m >= plan.micro_batches.size()) continue;
    JIGE_DO(read_batch(corpus, plan.micro_batches[m], batches_[m]));
  }
  step_ = rates.step;
  JIGE_TRY(const PipelineStep step,
           executor_->run({.batches = batches_,
                           .terms = {.loss_weight = loss_weight_of(plan),
                                     .dropout = rates.dropout,
                                     .balance_weight = balance_weight_of(plan, rates.balance)},
                           .learning_rate = rates.learning_rate,
                           .expert_bias_rate = rates.expert_bias_rate,
                           .before_update = rates.before_update}));
  record_.add_step(rates.step, executor_->spans());
  note_time();
  if (trace_) JIGE_DO(trace_->add_step(rates.step, schedule(), executor_->spans()));
  return StepOutcome{
      .loss_sum = step.loss_sum, .experts = step.experts, .optimizer = step.optimizer};
}

Status PipelineEngine::evaluate(HostBatch& batch, ExactSum& sum) {
  return executor_->evaluate(batch, sum);
}

void PipelineEngine::note_time() {
  int64_t end_ns = 0;
  for (const TaskSpan& span : executor_->spans()) end_ns = std::max(end_ns, span.end_ns);
  if (is_warm_) seconds_.push_back(static_cast<double>(end_ns) * 1e-9);
  if (seconds_.size() > kTimedSteps) seconds_.pop_front();
  is_warm_ = true;
}

std::optional<double> PipelineEngine::step_seconds() const {
  if (seconds_.empty()) return std::nullopt;
  std::vector<double> sorted(seconds_.begin(), seconds_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

void PipelineEngine::record_memory() {
  record_.memory.device_peak_bytes.clear();
  for (int32_t d = 0; d < schedule().device_count; ++d) {
    record_.memory.device_peak_bytes.push_back(device_peak_bytes(d));
  }
  record_.memory.host_peak_bytes = machine_->host_peak_bytes();
}

Status PipelineEngine::end_steps() {
  executor_.reset();
  optimizer_.reset();
  if (trace_) JIGE_DO(trace_->finish());
  if (record_.steps.empty()) return {};  // nothing was left to do
  record_memory();
  return write_pipeline_record(record_path_, record_);
}

EngineMemory PipelineEngine::memory() const {
  EngineMemory memory{.predicted_bytes = predicted_bytes_,
                      .peak_bytes = machine_->host_peak_bytes()};
  for (int32_t d = 0; d < schedule().device_count; ++d) memory.peak_bytes += device_peak_bytes(d);
  return memory;
}

}  // namespace jige::train

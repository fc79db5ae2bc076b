#include "train/schedule_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"
#include "model/init.h"
#include "plan/pipeline_simulate.h"
#include "train/pipeline_costs.h"

namespace jige::train {
namespace {

model::WeightsOptions weights_options(const plan::PipelineSchedule& schedule, DType compute,
                                      int64_t context) {
  return {.compute = compute,
          .use = model::PackFor::kTraining,
          .position_count = context,
          .gradients = schedule.optimizer != plan::OptimizerMode::kDevice};
}

// Times and rates such that a block of average bytes takes what the ratios say.
void set_times(plan::PipelineCosts& costs, const TimedRatios& ratios) {
  const double f = ratios.forward_s;
  double parameters = 0, parameter_bytes = 0, gradient_bytes = 0;
  for (plan::BlockCost& block : costs.blocks) {
    block.forward_s = block.recompute_s = f;
    block.backward_input_s = block.backward_weight_s = f;
    parameters += static_cast<double>(block.parameters);
    parameter_bytes += static_cast<double>(block.parameter_bytes);
    gradient_bytes += static_cast<double>(block.gradient_bytes);
  }
  const auto count = static_cast<double>(costs.blocks.size());
  const auto rate = [&](double total, double ratio) { return total / count / (ratio * f); };
  costs.rates.fetch_bytes_per_s = rate(parameter_bytes, ratios.fetch);
  costs.rates.offload_bytes_per_s = rate(gradient_bytes, ratios.offload);
  costs.rates.host_parameters_per_s = rate(parameters, ratios.update);
  costs.rates.device_parameters_per_s = std::numeric_limits<double>::infinity();
  costs.rates.link_bytes_per_s =
      static_cast<double>(costs.blocks.back().input_bytes) / (ratios.message * f);
}

Result<plan::PipelineCosts> costs_of(const model::Architecture& architecture,
                                     const plan::PipelineSchedule& schedule,
                                     const RigOptions& options) {
  plan::PipelineCosts costs =
      pipeline_costs(architecture, weights_options(schedule, options.compute, options.context),
                     {.micro_batch_tokens = options.micro_batch_tokens,
                      .micro_batches = schedule.micro_batch_count,
                      .context = options.context,
                      .several_gpus = options.gpus.size() > 1});
  if (options.timed) set_times(costs, *options.timed);
  JIGE_DO(plan::check_costs(costs, schedule.block_count));
  return costs;
}

}  // namespace

Result<formats::ModelConfig> even_blocks_config(int64_t block_count, int64_t width) {
  if (block_count < 3 || width < 16 || width % 16 != 0) {
    return fail(Code::kInvalidArgument,
                "--blocks {} must be at least 3 (embedding, layers, head), and --width {} a "
                "multiple of 16",
                block_count, width);
  }
  formats::ModelConfig config;
  config.hidden_size = width;
  config.layer_count = block_count - 2;
  config.head_count = config.kv_head_count = width / 16;
  config.head_dim = 16;
  // A layer has 4 width^2 for attention and 3 width · 3 width for the feed-forward part.
  config.ffn_size = 3 * width;
  config.vocab_size = 13 * width;
  config.context_max = 1 << 20;
  return config;
}

Result<std::unique_ptr<ScheduleRig>> ScheduleRig::create(const plan::PipelineSchedule& schedule,
                                                         const RigOptions& options) {
  std::unique_ptr<ScheduleRig> rig(new ScheduleRig());
  rig->options_ = options;
  JIGE_TRY(rig->architecture_, model::Architecture::create(
                                   options.config, {}, model::HeadKind::kLanguageModel,
                                   options.gpus.empty() ? DeviceKind::kCpu : DeviceKind::kCuda));
  const model::Architecture& architecture = *rig->architecture_;
  JIGE_TRY(const plan::PipelineCosts costs, costs_of(architecture, schedule, options));
  JIGE_TRY(const plan::PipelineGraph graph, plan::PipelineGraph::create(schedule));
  rig->predicted_s_ = plan::time_tasks(schedule, graph, costs).step_s;
  const std::vector<plan::PipelineBuffer> buffers = plan::pipeline_buffers(schedule, costs);
  JIGE_TRY(rig->peaks_, plan::pipeline_peaks(schedule, graph, plan::HappensBefore(graph), buffers));
  PipelineMachineOptions machine{.gpus = options.gpus,
                                 .compute_threads = options.compute_threads,
                                 .optimizer_threads = options.optimizer_threads};
  for (const plan::MemoryPeak& peak : rig->peaks_.devices) {
    machine.device_bytes.push_back(options.device_bytes > 0 ? options.device_bytes : peak.bytes);
  }
  plan::MemoryBudget budget{.own_bytes = options.own_bytes};
  if (options.device_bytes > 0) budget.device_bytes = options.device_bytes;
  JIGE_DO(plan::check_budgets(schedule, rig->peaks_, buffers, budget));
  JIGE_TRY(rig->machine_, PipelineMachine::create(schedule, costs, machine));
  const std::vector<Arena*> arenas = rig->machine_->node_arenas();
  // Devices have rope tables of their own.
  JIGE_TRY(auto weights, model::ModelWeights::create(
                             arenas, architecture, weights_options(schedule, options.compute, 0)));
  rig->weights_.emplace(std::move(weights));
  model::initialise_weights(*rig->weights_, rig->machine_->state_streams(), 1);
  JIGE_TRY(auto optimizer,
           Optimizer::create(rig->machine_->moment_arenas(), rig->weights_->trainable(),
                             {.clip_norm = options.clip_norm}));
  rig->optimizer_.emplace(std::move(optimizer));
  JIGE_TRY(rig->executor_,
           PipelineExecutor::create(*rig->machine_, *rig->weights_, *rig->optimizer_,
                                    {.micro_batch_tokens = options.micro_batch_tokens,
                                     .position_count = options.context,
                                     .timed = options.timed.has_value()}));
  return rig;
}

int64_t ScheduleRig::step_tokens() const {
  return options_.micro_batch_tokens * machine_->schedule().micro_batch_count;
}

std::vector<HostBatch> ScheduleRig::next_batches() const {
  Rng rng(derive_key(losses_.size(), "schedule tokens"));
  const auto vocab = static_cast<uint64_t>(options_.config.vocab_size);
  std::vector<HostBatch> batches(static_cast<size_t>(machine_->schedule().micro_batch_count));
  for (HostBatch& batch : batches) {
    for (int64_t left = options_.micro_batch_tokens; left > 0; left -= options_.context) {
      const auto count = static_cast<int32_t>(std::min(left, options_.context));
      batch.counts.push_back(count);
      for (int32_t i = 0; i < count; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(rng.below(vocab)));
        batch.targets.push_back(static_cast<int32_t>(rng.below(vocab)));
        batch.positions.push_back(i);
      }
    }
  }
  return batches;
}

Result<double> ScheduleRig::step() {
  const std::vector<HostBatch> batches = next_batches();
  const auto weight = static_cast<float>(1.0 / static_cast<double>(step_tokens()));
  const StopWatch watch;
  JIGE_TRY(const PipelineStep step, executor_->run({batches, weight, 1e-3}));
  const double seconds = watch.seconds();
  losses_.push_back(step.loss_sum);
  return seconds;
}

std::vector<int64_t> ScheduleRig::device_peak_bytes() const {
  std::vector<int64_t> bytes;
  for (int32_t d = 0; d < machine_->schedule().device_count; ++d) {
    bytes.push_back(machine_->device(d).arena().peak_bytes());
  }
  return bytes;
}

}  // namespace jige::train

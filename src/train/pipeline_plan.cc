#include "train/pipeline_plan.h"

#include <numeric>
#include <utility>

#include "base/log.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_verify.h"
#include "train/measured_costs.h"
#include "train/pipeline_costs.h"

namespace jige::train {
namespace {

// Assumed where nothing was measured: copies at the speed of a core, AdamW at that of memory.
constexpr plan::PipelineRates kAssumedRates = {.fetch_bytes_per_s = 5e9,
                                               .offload_bytes_per_s = 5e9,
                                               .link_bytes_per_s = 5e9,
                                               .host_parameters_per_s = 3e8,
                                               .device_parameters_per_s = 3e8};
constexpr double kAssumedFlops = 1e11;

// The same of a GPU in a server: copies over PCIe 5, updates by the processors of the host and at
// the speed of the GPU's memory.
constexpr plan::PipelineRates kAssumedGpuRates = {.fetch_bytes_per_s = 4e10,
                                                  .offload_bytes_per_s = 4e10,
                                                  .link_bytes_per_s = 1e12,
                                                  .host_parameters_per_s = 3e9,
                                                  .device_parameters_per_s = 5e10};
constexpr double kAssumedGpuFlops = 4e14;
// Messages between GPUs, down to the host and up again at once.
constexpr double kAssumedBetweenGpus = 2e10;

plan::PipelineRates assumed_rates(size_t gpu_count) {
  plan::PipelineRates rates = gpu_count > 0 ? kAssumedGpuRates : kAssumedRates;
  if (gpu_count > 1) rates.link_bytes_per_s = kAssumedBetweenGpus;
  return rates;
}

bool is_tied(const model::Architecture& architecture) {
  return architecture.config().tied_embeddings && !architecture.lora();
}

Status check_counts(const PipelineOptions& options, const PipelineDemand& demand) {
  if (demand.micro_batches >= options.devices) return {};
  return fail(
      Code::kInvalidArgument,
      "a step has {} micro-batch(es) of {} tokens for {} devices, so some would never work; "
      "make micro-batches smaller (--micro-batch-tokens) or steps larger (--batch-tokens)",
      demand.micro_batches, demand.micro_batch_tokens, options.devices);
}

plan::MemoryBudget budget_of(const PipelineOptions& options) {
  plan::MemoryBudget budget;
  if (options.device_bytes > 0) budget.device_bytes = options.device_bytes;
  budget.own_bytes = options.own_bytes;
  if (options.host_bytes > 0) budget.host_bytes = options.host_bytes;
  if (options.total_bytes > 0) budget.total_bytes = options.total_bytes;
  return budget;
}

Status check_given(const plan::PipelineSchedule& schedule, const PipelineOptions& options,
                   const PipelineDemand& demand) {
  const auto blocks = static_cast<int32_t>(demand.architecture.node_count());
  if (schedule.block_count != blocks || schedule.tied != is_tied(demand.architecture)) {
    return fail(Code::kInvalidArgument,
                "{}: is a plan for {} blocks{}, the model has {}{}; plan anew for this model",
                options.source, schedule.block_count, schedule.tied ? " with a tied head" : "",
                blocks, is_tied(demand.architecture) ? " and a tied head" : "");
  }
  if (schedule.micro_batch_count < demand.micro_batches) {
    return fail(Code::kInvalidArgument,
                "{}: is a plan for {} micro-batches, a step of this run has up to {}; plan with "
                "--micro-batches {}, or raise --micro-batch-tokens",
                options.source, schedule.micro_batch_count, demand.micro_batches,
                demand.micro_batches);
  }
  if (Status sound = plan::verify_pipeline(schedule); !sound) {
    return with_context(std::move(sound.error()), "{}", options.source);
  }
  return {};
}

Status check_same_model(const plan::PipelineCosts& given, const plan::PipelineCosts& counted,
                        const std::string& source) {
  const auto differ = [&](size_t block, std::string_view what, int64_t there, int64_t here,
                          std::string_view cause) {
    return fail(
        Code::kInvalidArgument,
        "{}: is a plan for another model, type or micro-batch: block {}{} has {} {} there, {} "
        "here{}; plan anew for this run",
        source, block, block == 0 ? ", the embedding," : "", there, what, here, cause);
  };
  const std::string_view vocabulary = ", as with another number of tokens in the tokenizer";
  if (given.blocks.size() != counted.blocks.size()) {
    return fail(Code::kInvalidArgument,
                "{}: has the costs of {} blocks, the model has {}; plan anew for this run", source,
                given.blocks.size(), counted.blocks.size());
  }
  for (size_t b = 0; b < counted.blocks.size(); ++b) {
    const plan::BlockCost &there = given.blocks[b], &here = counted.blocks[b];
    if (there.parameters != here.parameters) {
      return differ(b, "parameters", there.parameters, here.parameters, b == 0 ? vocabulary : "");
    }
    if (there.parameter_bytes != here.parameter_bytes) {
      return differ(b, "bytes of parameters", there.parameter_bytes, here.parameter_bytes,
                    ", as with another --dtype");
    }
    if (there.input_bytes != here.input_bytes) {
      return differ(b, "bytes of input", there.input_bytes, here.input_bytes, "");
    }
  }
  return {};
}

// `counted`, with the times, rates and paces of `given`. REQUIRES: check_same_model().
plan::PipelineCosts with_times(plan::PipelineCosts counted, const plan::PipelineCosts& given) {
  for (size_t b = 0; b < counted.blocks.size(); ++b) {
    counted.blocks[b].forward_s = given.blocks[b].forward_s;
    counted.blocks[b].recompute_s = given.blocks[b].recompute_s;
    counted.blocks[b].backward_input_s = given.blocks[b].backward_input_s;
    counted.blocks[b].backward_weight_s = given.blocks[b].backward_weight_s;
  }
  counted.rates = given.rates;
  counted.device_paces = given.device_paces;
  return counted;
}

// Where what would be timed has no room, times are counted: a plan may fit nevertheless. `times`
// becomes where they come from.
Result<plan::PipelineCosts> costs_for(const PipelineOptions& options, const PipelineDemand& demand,
                                      int32_t micro_batches, TimesSource& times) {
  const double assumed_flops = demand.gpus.empty() ? kAssumedFlops : kAssumedGpuFlops;
  plan::PipelineCosts counted =
      pipeline_costs(demand.architecture, demand.weights,
                     {.micro_batch_tokens = demand.micro_batch_tokens,
                      .micro_batches = micro_batches,
                      .context = demand.weights.position_count,
                      .device_flops = demand.device_flops > 0 ? demand.device_flops : assumed_flops,
                      .rates = assumed_rates(demand.gpus.size()),
                      .several_gpus = demand.gpus.size() > 1});
  if (options.costs) {
    JIGE_DO(check_same_model(*options.costs, counted, options.source));
    if (Status one_each = plan::check_paces(*options.costs, options.devices); !one_each) {
      return with_context(std::move(one_each.error()), "{}: costs", options.source);
    }
  }
  times = demand.architecture.lora() ? TimesSource::kAssumed : options.times;
  if (options.times == TimesSource::kAssumed) return counted;
  if (options.times == TimesSource::kGiven) return with_times(std::move(counted), *options.costs);
  auto measured = measure_costs(demand.architecture, counted,
                                {.devices = options.devices,
                                 .micro_batch_tokens = demand.micro_batch_tokens,
                                 .context = demand.weights.position_count,
                                 .compute = demand.weights.compute,
                                 .gpus = demand.gpus,
                                 .device_bytes = demand.device_bytes,
                                 .compute_threads = demand.compute_threads,
                                 .optimizer_threads = demand.optimizer_threads,
                                 .progress = demand.measure_progress});
  if (measured || measured.error().code != Code::kExhausted) return measured;
  log_warn("blocks could not be timed, so that times are assumed: {}", measured.error().message);
  times = TimesSource::kAssumed;
  return counted;
}

// Timing and memory of a schedule under the model's costs.
Status predict(PipelinePlan& plan, const plan::MemoryBudget& budget) {
  JIGE_TRY(const plan::PipelineGraph graph, plan::PipelineGraph::create(plan.schedule));
  const plan::HappensBefore order(graph);
  const std::vector<plan::PipelineBuffer> buffers =
      plan::pipeline_buffers(plan.schedule, plan.costs);
  JIGE_TRY(const plan::PipelinePeaks peaks,
           plan::pipeline_peaks(plan.schedule, graph, order, buffers));
  JIGE_DO(plan::check_budgets(plan.schedule, peaks, buffers, budget));
  for (const plan::MemoryPeak& peak : peaks.devices) plan.device_bytes.push_back(peak.bytes);
  plan.host_bytes = peaks.host.bytes;
  const plan::PipelineTimes times = plan::time_tasks(plan.schedule, graph, plan.costs);
  plan.step_s = times.step_s;
  plan.bubble = plan::bubble_fraction(plan::split_device_time(plan.schedule, graph, times));
  return {};
}

}  // namespace

int64_t PipelinePlan::total_bytes() const {
  return std::accumulate(device_bytes.begin(), device_bytes.end(), host_bytes);
}

Result<PipelinePlan> plan_pipeline(const PipelineOptions& options, const PipelineDemand& demand) {
  PipelinePlan result;
  // Groups of as many micro-batches as devices suit every schedule; the last may be empty.
  const int32_t groups = (demand.micro_batches + options.devices - 1) / options.devices;
  const int32_t micro_batches =
      options.schedule ? options.schedule->micro_batch_count : groups * options.devices;
  JIGE_DO(options.schedule ? check_given(*options.schedule, options, demand)
                           : check_counts(options, demand));
  JIGE_TRY(result.costs, costs_for(options, demand, micro_batches, result.times));
  if (options.schedule) {
    result.schedule = *options.schedule;
  } else {
    const plan::TrainPlanRequest request{.costs = result.costs,
                                         .devices = options.devices,
                                         .micro_batches = {micro_batches},
                                         .budget = budget_of(options),
                                         .clip = options.clip,
                                         .kinds = options.kinds,
                                         .optimizers = options.optimizers,
                                         .recompute = options.recompute,
                                         .host_parameters = options.host_parameters,
                                         .forward_stages = options.forward_stages,
                                         .backward_stages = options.backward_stages};
    JIGE_TRY(plan::TrainPlan plan, plan::plan_train(request));
    result.schedule = std::move(plan.schedule);
    result.binding = std::move(plan.binding);
  }
  JIGE_DO(predict(result, budget_of(options)));
  return result;
}

}  // namespace jige::train

#include "train/measured_costs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "plan/pipeline_generate.h"
#include "train/logical_device.h"
#include "train/schedule_rig.h"

namespace jige::train {
namespace {

using plan::BlockCost;
using plan::TaskKind;

struct TimeField {
  TaskKind kind;
  double BlockCost::*field;
};
constexpr std::array kTimes = {
    TimeField{TaskKind::kForward, &BlockCost::forward_s},
    TimeField{TaskKind::kRecompute, &BlockCost::recompute_s},
    TimeField{TaskKind::kBackwardInput, &BlockCost::backward_input_s},
    TimeField{TaskKind::kBackwardWeight, &BlockCost::backward_weight_s},
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double seconds_of(const TaskSpan& span) {
  return static_cast<double>(span.end_ns - span.start_ns) * 1e-9;
}

// The sum of `field` over all tasks for which `counts`, per second of them; `otherwise` where there
// are none.
template <typename Counts, typename Amount>
double measured_rate(const plan::PipelineSchedule& schedule,
                     std::span<const std::vector<TaskSpan>> steps, double otherwise,
                     const Counts& counts, const Amount& amount) {
  double total = 0, seconds = 0;
  for (const std::vector<TaskSpan>& spans : steps) {
    for (size_t i = 0; i < spans.size(); ++i) {
      if (!counts(schedule.tasks[i].kind)) continue;
      total += static_cast<double>(amount(schedule.tasks[i]));
      seconds += seconds_of(spans[i]);
    }
  }
  return total > 0 && seconds > 0 ? total / seconds : otherwise;
}

// Median seconds of tasks of this kind, by block of the schedule.
std::vector<double> block_seconds(const plan::PipelineSchedule& schedule,
                                  std::span<const std::vector<TaskSpan>> steps, TaskKind kind) {
  std::vector<std::vector<double>> samples(static_cast<size_t>(schedule.block_count));
  for (const std::vector<TaskSpan>& spans : steps) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const plan::PipelineTask& task = schedule.tasks[i];
      if (task.kind != kind) continue;
      JIGE_CHECK(task.blocks.size() == 1, "a stage of {} blocks is measured", task.blocks.size());
      samples[static_cast<size_t>(task.blocks.begin)].push_back(seconds_of(spans[i]));
    }
  }
  std::vector<double> seconds;
  for (std::vector<double>& block : samples) seconds.push_back(median(std::move(block)));
  return seconds;
}

// By block: the device of its passes.
std::vector<int32_t> block_devices(const plan::PipelineSchedule& schedule) {
  std::vector<int32_t> devices(static_cast<size_t>(schedule.block_count));
  for (const plan::PipelineTask& task : schedule.tasks) {
    if (plan::is_pass(task.kind)) devices[static_cast<size_t>(task.blocks.begin)] = task.device;
  }
  return devices;
}

// Of the devices of a run; empty where the GPUs are as good as alike. `ratios` has, for each GPU,
// what passes of its layers took over the median of all.
std::vector<double> device_paces(std::vector<std::vector<double>> ratios, int32_t devices) {
  constexpr double kAlike = 1.1;
  std::vector<double> of_gpus;
  for (std::vector<double>& of_gpu : ratios) {
    of_gpus.push_back(of_gpu.empty() ? 1 : median(std::move(of_gpu)));
  }
  const auto [least, most] = std::ranges::minmax(of_gpus);
  if (!(least > 0) || most < kAlike * least) return {};
  std::vector<double> paces;
  for (int32_t d = 0; d < devices; ++d) paces.push_back(of_gpus[gpu_in_turn(of_gpus.size(), d)]);
  return paces;
}

void set_block_times(plan::PipelineCosts& costs, const plan::PipelineSchedule& schedule,
                     std::span<const std::vector<TaskSpan>> steps,
                     const MeasuredDevices& measured) {
  const size_t gpu_count = std::max<size_t>(measured.gpu_count, 1);
  const std::vector<int32_t> devices = block_devices(schedule);
  std::vector<std::vector<double>> seconds;             // by kind and block
  std::vector<std::vector<double>> of_gpus(gpu_count);  // over the median of all
  for (const auto& [kind, field] : kTimes) {
    seconds.push_back(block_seconds(schedule, steps, kind));
    const size_t layers_end = seconds.back().size() - 1;
    std::vector<double> ratios(layers_end);  // of a layer's measured to its counted time
    std::vector<double> counted;
    for (size_t b = 1; b < layers_end; ++b) {
      if (costs.blocks[b].*field <= 0) continue;
      ratios[b] = seconds.back()[b] / costs.blocks[b].*field;
      counted.push_back(ratios[b]);
    }
    const double ratio = median(std::move(counted));
    for (size_t b = 1; b + 1 < costs.blocks.size(); ++b) costs.blocks[b].*field *= ratio;
    for (size_t b = 1; b < layers_end && ratio > 0; ++b) {
      of_gpus[gpu_in_turn(gpu_count, devices[b])].push_back(ratios[b] / ratio);
    }
  }
  costs.device_paces = device_paces(std::move(of_gpus), measured.devices);
  for (size_t k = 0; k < kTimes.size(); ++k) {
    costs.blocks.front().*kTimes[k].field = seconds[k].front() / costs.pace(devices.front());
    costs.blocks.back().*kTimes[k].field = seconds[k].back() / costs.pace(devices.back());
  }
}

}  // namespace

Result<plan::PipelineSchedule> measuring_schedule(const plan::PipelineCosts& counted,
                                                  int32_t devices) {
  const auto blocks = static_cast<int32_t>(counted.blocks.size());
  JIGE_CHECK(blocks >= 3, "a model of {} blocks", blocks);
  int32_t used = std::clamp(devices, 1, blocks);
  int32_t stages = std::clamp(blocks / used, 1, 3);
  if (used * stages < 3) used = 1, stages = 3;
  plan::ScheduleRequest request = plan::natural_request(plan::ScheduleKind::kMobius);
  request.devices = used;
  request.micro_batches = std::max(used, 2);
  request.block_count = used * stages;
  request.forward_stages = request.backward_stages = stages;
  request.host_parameters = request.recompute = true;
  request.optimizer = plan::OptimizerMode::kSync;
  request.clip = plan::ClipMode::kExact;
  request.tied = counted.tied;
  return plan::generate_pipeline(request);
}

plan::PipelineCosts costs_from_spans(plan::PipelineCosts counted,
                                     const plan::PipelineSchedule& schedule,
                                     std::span<const std::vector<TaskSpan>> steps,
                                     const MeasuredDevices& measured) {
  // Block b of the schedule is block b of the model, but for the last, which is the head.
  const auto cost_of = [&](int32_t block) -> const BlockCost& {
    return block + 1 == schedule.block_count ? counted.blocks.back()
                                             : counted.blocks[static_cast<size_t>(block)];
  };
  const auto is = [](TaskKind wanted) {
    return [wanted](TaskKind kind) { return kind == wanted; };
  };
  const auto of = [&](int64_t BlockCost::*field) {
    return
        [&cost_of, field](const plan::PipelineTask& t) { return cost_of(t.blocks.begin).*field; };
  };
  plan::PipelineRates& rates = counted.rates;
  rates.fetch_bytes_per_s = measured_rate(schedule, steps, rates.fetch_bytes_per_s,
                                          is(TaskKind::kFetch), of(&BlockCost::parameter_bytes));
  rates.offload_bytes_per_s =
      measured_rate(schedule, steps, rates.offload_bytes_per_s, is(TaskKind::kGradientOffload),
                    of(&BlockCost::gradient_bytes));
  rates.link_bytes_per_s = measured_rate(schedule, steps, rates.link_bytes_per_s, plan::is_send,
                                         of(&BlockCost::input_bytes));
  rates.link_latency_s = 0;  // part of the rate
  rates.host_parameters_per_s =
      measured_rate(schedule, steps, rates.host_parameters_per_s, is(TaskKind::kOptimizerStep),
                    of(&BlockCost::parameters));
  rates.device_parameters_per_s = rates.host_parameters_per_s;
  set_block_times(counted, schedule, steps, measured);
  return counted;
}

Result<plan::PipelineCosts> measure_costs(const model::Architecture& architecture,
                                          const plan::PipelineCosts& counted,
                                          const MeasureOptions& options) {
  if (architecture.lora()) return counted;
  JIGE_TRY(const plan::PipelineSchedule schedule, measuring_schedule(counted, options.devices));
  const formats::ModelConfig config =
      formats::first_layers(architecture.config(), schedule.block_count - 2);
  std::vector<int64_t> own_bytes = options.device_bytes;
  if (!own_bytes.empty()) own_bytes.resize(static_cast<size_t>(schedule.device_count));
  JIGE_TRY(const auto rig,
           ScheduleRig::create(schedule, {.config = config,
                                          .micro_batch_tokens = options.micro_batch_tokens,
                                          .context = options.context,
                                          .compute = options.compute,
                                          .gpus = options.gpus,
                                          .compute_threads = options.compute_threads,
                                          .optimizer_threads = options.optimizer_threads,
                                          .own_bytes = std::move(own_bytes)}));
  std::vector<std::vector<TaskSpan>> steps;
  for (int i = 0; i <= options.steps; ++i) {
    if (options.progress && !options.progress(i, options.steps + 1)) {
      return fail(Code::kCancelled, "stopped while blocks were timed");
    }
    JIGE_TRY([[maybe_unused]] const double seconds, rig->step());
    if (i == 0) continue;  // it warms up
    const std::span<const TaskSpan> spans = rig->executor().spans();
    steps.emplace_back(spans.begin(), spans.end());
  }
  plan::PipelineCosts costs = costs_from_spans(
      counted, schedule, steps, {.devices = options.devices, .gpu_count = options.gpus.size()});
  if (!options.gpus.empty())
    costs.rates.device_parameters_per_s = counted.rates.device_parameters_per_s;
  return costs;
}

}  // namespace jige::train

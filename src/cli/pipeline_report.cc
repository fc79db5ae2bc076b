#include "cli/pipeline_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/file.h"
#include "cli/table.h"
#include "plan/pipeline_svg.h"
#include "train/logical_device.h"

namespace jige::cli {
namespace {

std::string with_budget(int64_t bytes, int64_t budget) {
  if (budget == std::numeric_limits<int64_t>::max()) return format_bytes(bytes);
  return fmt::format("{} of {}", format_bytes(bytes), format_bytes(budget));
}

std::string stages_text(const plan::ScheduleRequest& choice) {
  if (choice.forward_stages == choice.backward_stages) {
    return fmt::format("{} on each device", choice.forward_stages);
  }
  return fmt::format("{} forward and {} backward on each device", choice.forward_stages,
                     choice.backward_stages);
}

std::string order_text(const plan::ScheduleRequest& choice) {
  switch (choice.defer) {
    case plan::WeightDefer::kOne:
      return "one pass later";
    case plan::WeightDefer::kUnbounded:
      return "where the device would wait";
    default:
      return choice.fast_forward ? "after the gradient has left" : "with the input gradients";
  }
}

// What a GPU has of a plan.
struct GpuPart {
  std::vector<plan::BlockRange> forward, backward;  // by stage
  int64_t planned_bytes = 0, budget_bytes = 0;
  double busy_s = 0;  // of its busiest device
};

std::vector<GpuPart> gpu_parts(const plan::TrainPlan& plan, const plan::MemoryBudget& budget,
                               const std::vector<int>& gpus) {
  std::vector<GpuPart> parts(gpus.size());
  if (gpus.empty()) return parts;
  const auto of = [&](int32_t device) -> GpuPart& {
    return parts[train::gpu_in_turn(gpus.size(), device)];
  };
  for (const plan::PipelineTask& task : plan.schedule.tasks) {
    if (task.micro_batch != 0) continue;
    if (task.kind == plan::TaskKind::kForward) of(task.device).forward.push_back(task.blocks);
    if (task.kind == plan::TaskKind::kBackwardWeight) {
      of(task.device).backward.push_back(task.blocks);
    }
  }
  const plan::TrainPrediction& prediction = plan.prediction;
  for (size_t d = 0; d < prediction.bytes_of_devices.size(); ++d) {
    GpuPart& part = of(static_cast<int32_t>(d));
    part.planned_bytes += prediction.bytes_of_devices[d];
    part.budget_bytes += budget.of(d);
    part.busy_s = std::max(part.busy_s, prediction.devices[d].busy_s);
  }
  for (GpuPart& part : parts) {
    std::ranges::sort(part.forward);
    std::ranges::sort(part.backward);
  }
  return parts;
}

// "0-3, 8", with the last block of each run named.
std::string blocks_text(const std::vector<plan::BlockRange>& stages) {
  std::vector<plan::BlockRange> runs;
  for (const plan::BlockRange& stage : stages) {
    if (!runs.empty() && runs.back().end == stage.begin) {
      runs.back().end = stage.end;
    } else {
      runs.push_back(stage);
    }
  }
  std::vector<std::string> texts;
  for (const plan::BlockRange& run : runs) {
    texts.push_back(run.size() == 1 ? fmt::format("{}", run.begin)
                                    : fmt::format("{}-{}", run.begin, run.end - 1));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string share_text(const GpuPart& part) {
  if (part.forward == part.backward) return "blocks " + blocks_text(part.forward);
  return fmt::format("forward blocks {}, backward {}", blocks_text(part.forward),
                     blocks_text(part.backward));
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

Json choice_json(const plan::ScheduleRequest& choice) {
  return Json{{"schedule", plan::schedule_name(choice.kind)},
              {"devices", choice.devices},
              {"micro_batches", choice.micro_batches},
              {"forward_stages", choice.forward_stages},
              {"backward_stages", choice.backward_stages},
              {"forward_cuts", choice.forward_cuts},
              {"backward_cuts", choice.backward_cuts},
              {"parameters", choice.host_parameters ? "host" : "device"},
              {"resident_stages", choice.resident_stages},
              {"lockstep", choice.lockstep},
              {"recompute", choice.recompute},
              {"optimizer", plan::optimizer_name(choice.optimizer)},
              {"clip", plan::clip_name(choice.clip)},
              {"weight_gradients", plan::defer_name(choice.defer)}};
}

Json prediction_json(const plan::TrainPrediction& prediction) {
  Json json{{"simulated", true},
            {"step_s", prediction.step_s},
            {"bubble", prediction.bubble},
            {"tail_s", prediction.tail_s},
            {"device_bytes", prediction.device_bytes},
            {"host_bytes", prediction.host_bytes}};
  json["devices"] = Json::array();
  for (size_t d = 0; d < prediction.devices.size(); ++d) {
    const plan::DeviceTime& device = prediction.devices[d];
    json["devices"].push_back({{"bytes", prediction.bytes_of_devices[d]},
                               {"busy_s", device.busy_s},
                               {"ramp_s", device.ramp_s},
                               {"turn_s", device.turn_s},
                               {"transfer_s", device.transfer_s},
                               {"optimizer_s", device.optimizer_s}});
  }
  return json;
}

Json gpu_shares_json(const plan::TrainPlan& plan, const plan::MemoryBudget& budget,
                     const std::vector<int>& gpus) {
  Json list = Json::array();
  const std::vector<GpuPart> parts = gpu_parts(plan, budget, gpus);
  for (size_t i = 0; i < parts.size(); ++i) {
    list.push_back({{"gpu", gpus[i]},
                    {"share", share_text(parts[i])},
                    {"planned_bytes", parts[i].planned_bytes},
                    {"budget_bytes", parts[i].budget_bytes},
                    {"busy_s", parts[i].busy_s}});
  }
  return list;
}

std::string plan_text(const plan::TrainPlan& plan, const plan::MemoryBudget& budget,
                      const std::vector<int>& gpus) {
  const plan::ScheduleRequest& choice = plan.choice;
  const plan::TrainPrediction& prediction = plan.prediction;
  Table table({{}, {}});
  table.row({"schedule", fmt::format("{}: {}", plan::schedule_name(choice.kind),
                                     plan::schedule_summary(choice.kind))});
  table.row({"stages", stages_text(choice)});
  table.row({"parameters",
             choice.host_parameters ? "on the host, fetched stage by stage" : "on the devices"});
  table.row({"optimizer", choice.optimizer == plan::OptimizerMode::kDevice ? "on the devices"
                          : choice.optimizer == plan::OptimizerMode::kSync
                              ? "on the host, behind all passes"
                              : "on the host, beside the passes"});
  table.row({"recompute", choice.recompute ? "on" : "off"});
  table.row({"weight gradients", order_text(choice)});
  table.rule();
  table.row({"step", seconds_text(prediction.step_s)});
  table.row({"bubble", fmt::format("{:.1f} % of the devices' time", 100 * prediction.bubble)});
  table.row({"behind the passes", seconds_text(prediction.tail_s)});
  if (gpus.empty()) {
    table.row({"fullest device", with_budget(prediction.device_bytes, budget.device_bytes)});
  }
  const std::vector<GpuPart> parts = gpu_parts(plan, budget, gpus);
  for (size_t i = 0; i < parts.size(); ++i) {
    table.row({fmt::format("GPU {}", gpus[i]),
               fmt::format("{}; {}; works {:.0f} % of the time", share_text(parts[i]),
                           with_budget(parts[i].planned_bytes, parts[i].budget_bytes),
                           100 * parts[i].busy_s / std::max(prediction.step_s, 1e-30))});
  }
  table.row({"host", with_budget(prediction.host_bytes, budget.host_bytes)});
  return table.render() + fmt::format(
                              "\nWhat limits it: {}.\nSimulated, not measured; best of {} "
                              "candidates.\n",
                              plan.binding, plan.candidate_count);
}

Status write_timeline(const std::string& path, const plan::PipelineSchedule& schedule,
                      const plan::PipelineCosts& costs, const std::string& subtitle) {
  JIGE_TRY(const plan::PipelineGraph graph, plan::PipelineGraph::create(schedule));
  const plan::PipelineTimes times = plan::time_tasks(schedule, graph, costs);
  return write_file_atomic(
      path, plan::timeline_svg(schedule, graph, times,
                               {.title = fmt::format("One training step, {}", schedule.name),
                                .subtitle = subtitle + "; simulated, not measured"}));
}

}  // namespace jige::cli

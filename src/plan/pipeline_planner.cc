#include "plan/pipeline_planner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/counted.h"
#include "plan/pipeline_cuts.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_limits.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_verify.h"

namespace jige::plan {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Status check_request(const TrainPlanRequest& request) {
  if (request.devices < 1 || request.micro_batches.empty() || request.costs.blocks.empty()) {
    return fail(Code::kInvalidArgument,
                "{} devices, {} choices of micro-batches, {} blocks; each must be at least 1",
                request.devices, request.micro_batches.size(), request.costs.blocks.size());
  }
  const auto budgets = std::ssize(request.budget.own_bytes);
  if (budgets != 0 && budgets != request.devices) {
    return fail(Code::kInvalidArgument, "{} budgets for {} devices", budgets, request.devices);
  }
  JIGE_DO(check_paces(request.costs, request.devices));
  return check_costs(request.costs, static_cast<int32_t>(request.costs.blocks.size()));
}

// A candidate with its schedule and its times; memory is looked at where it may matter.
struct Timed {
  size_t index = 0;
  double seconds_per_micro_batch = 0;
};

Result<TrainPrediction> predict_times(const TrainPlanRequest& request,
                                      const PipelineSchedule& schedule,
                                      const PipelineGraph& graph) {
  const PipelineTimes times = time_tasks(schedule, graph, request.costs);
  TrainPrediction prediction;
  prediction.step_s = times.step_s;
  prediction.seconds_per_micro_batch = times.step_s / schedule.micro_batch_count;
  prediction.devices = split_device_time(schedule, graph, times);
  prediction.bubble = bubble_fraction(prediction.devices);
  prediction.tail_s = tail_seconds(schedule, times);
  return prediction;
}

std::string choice_text(const ScheduleRequest& choice) {
  std::string text{schedule_name(choice.kind)};
  if (choice.kind == ScheduleKind::kSPipe) {
    text += fmt::format(" with {} forward and {} backward stages a device", choice.forward_stages,
                        choice.backward_stages);
  } else if (has_stage_choice(choice.kind)) {
    text += fmt::format(" with {} stage{} a device", choice.forward_stages,
                        choice.forward_stages == 1 ? "" : "s");
  }
  return text + fmt::format(", {}, parameters on the {}, recompute {}, optimizer {}",
                            counted(choice.micro_batches, "micro-batch"),
                            choice.host_parameters ? "host" : "device",
                            choice.recompute ? "on" : "off", optimizer_name(choice.optimizer));
}

// What a prediction lacks, in bytes; 0 where it fits.
struct Shortfall {
  int64_t device_bytes = 0;  // of the device that lacks most
  size_t device = 0;         // that one
  int64_t host_bytes = 0;
  int64_t total_bytes = 0;
  int64_t sum() const { return device_bytes + host_bytes + total_bytes; }
};

Shortfall shortfall_of(const TrainPrediction& prediction, const MemoryBudget& budget) {
  Shortfall lacks{.host_bytes = std::max<int64_t>(0, prediction.host_bytes - budget.host_bytes),
                  .total_bytes = std::max<int64_t>(0, prediction.total_bytes - budget.total_bytes)};
  for (size_t d = 0; d < prediction.bytes_of_devices.size(); ++d) {
    const int64_t lack = prediction.bytes_of_devices[d] - budget.of(d);
    if (lack <= lacks.device_bytes) continue;
    lacks.device_bytes = lack;
    lacks.device = d;
  }
  return lacks;
}

std::string raise_text(const TrainPrediction& prediction, const MemoryBudget& budget) {
  const Shortfall lacks = shortfall_of(prediction, budget);
  std::vector<std::string> parts;
  const auto add = [&](const std::string& name, int64_t lack, int64_t needed) {
    if (lack == 0) return;
    parts.push_back(fmt::format("the {} budget by {} bytes, to {} ({})", name, lack, needed,
                                format_bytes_up(needed)));
  };
  const std::string device =
      budget.own_bytes.empty() ? "device" : fmt::format("device {}", lacks.device);
  add(device, lacks.device_bytes, budget.of(lacks.device) + lacks.device_bytes);
  add("host", lacks.host_bytes, prediction.host_bytes);
  add("total", lacks.total_bytes, prediction.total_bytes);
  return fmt::format("raise {}", fmt::join(parts, " and "));
}

// The largest part of the devices' time that is not work, or work itself.
std::string slowest_part(const TrainPrediction& prediction) {
  DeviceTime sum;
  for (const DeviceTime& device : prediction.devices) {
    sum.busy_s += device.busy_s;
    sum.ramp_s += device.ramp_s;
    sum.turn_s += device.turn_s;
    sum.transfer_s += device.transfer_s;
    sum.optimizer_s += device.optimizer_s;
  }
  const double waits = std::max({sum.ramp_s + sum.turn_s, sum.transfer_s, sum.optimizer_s});
  const double total = sum.busy_s + sum.idle_s();
  if (total <= 0) return "nothing takes time";
  if (waits < 0.1 * total) {
    return fmt::format("compute: devices work {:.1f} % of the time", 100 * sum.busy_s / total);
  }
  const char* name = waits == sum.optimizer_s  ? "the optimizer"
                     : waits == sum.transfer_s ? "transfers"
                                               : "other devices' passes";
  return fmt::format("devices wait {:.1f} % of the time for {}", 100 * waits / total, name);
}

class Search {
 public:
  Search(const TrainPlanRequest& request, const PlanListener& listener)
      : request_(request), listener_(listener) {}

  Result<TrainPlan> run() {
    JIGE_TRY(candidates_, train_candidates(request_));
    JIGE_TRY(const std::vector<Timed> order, by_time());
    for (const Timed& timed : order) {
      if (fitted_ && seconds_of_fitted() <= timed.seconds_per_micro_batch) break;
      const ScheduleRequest& candidate = candidates_[timed.index];
      JIGE_TRY(const TrainPrediction prediction, predict_candidate(request_, candidate));
      if (shortfall_of(prediction, request_.budget).sum() == 0) {
        return accept(candidate, prediction);
      }
      refuse(candidate, prediction);
      fit(candidate, prediction);
      part_done();
    }
    if (fitted_) return accept(fitted_->request, fitted_->prediction);
    return fail(Code::kExhausted, "nothing fits the budgets; closest is {}: {}",
                choice_text(*closest_), raise_text(closest_prediction_, request_.budget));
  }

 private:
  void part_done() {
    if (listener_) listener_(++parts_done_, 2 * std::ssize(candidates_));
  }

  Result<std::vector<Timed>> by_time() {
    std::vector<Timed> order;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      JIGE_TRY(const PipelineSchedule schedule, generate_pipeline(candidates_[i]));
      JIGE_TRY(const PipelineGraph graph, PipelineGraph::create(schedule));
      const double step = time_tasks(schedule, graph, request_.costs).step_s;
      order.push_back({i, step / schedule.micro_batch_count});
      part_done();
    }
    std::stable_sort(order.begin(), order.end(), [](const Timed& a, const Timed& b) {
      return a.seconds_per_micro_batch < b.seconds_per_micro_batch;
    });
    return order;
  }

  void refuse(const ScheduleRequest& candidate, const TrainPrediction& prediction) {
    if (!fastest_) {
      fastest_ = candidate;
      fastest_prediction_ = prediction;
    }
    const int64_t lack = shortfall_of(prediction, request_.budget).sum();
    if (closest_ && lack >= shortfall_of(closest_prediction_, request_.budget).sum()) return;
    closest_ = candidate;
    closest_prediction_ = prediction;
  }

  double seconds_of_fitted() const { return fitted_->prediction.seconds_per_micro_batch; }

  void fit(const ScheduleRequest& candidate, const TrainPrediction& prediction) {
    if (request_.budget.own_bytes.empty()) return;
    auto fitted =
        fit_to_devices(request_, candidate, prediction, fitted_ ? seconds_of_fitted() : kNoLimit);
    if (fitted) fitted_ = std::move(fitted);
  }

  bool devices_are_unequal() const {
    return !request_.budget.own_bytes.empty() || !request_.costs.device_paces.empty();
  }

  Result<TrainPlan> accept(const ScheduleRequest& found, const TrainPrediction& found_prediction) {
    FittedCandidate best{found, found_prediction};
    if (devices_are_unequal()) best = move_cuts(request_, std::move(best));
    const ScheduleRequest& candidate = best.request;
    const TrainPrediction& prediction = best.prediction;
    TrainPlan plan;
    plan.choice = candidate;
    plan.prediction = prediction;
    plan.candidate_count = candidates_.size();
    JIGE_TRY(plan.schedule, generate_pipeline(candidate));
    if (const Status verified = verify_pipeline(plan.schedule); !verified) {
      return fail(Code::kInternal, "{}: {}", choice_text(candidate), verified.error().message);
    }
    plan.binding = slowest_part(prediction);
    const double saved = fastest_ ? 1 - fastest_prediction_.seconds_per_micro_batch /
                                            prediction.seconds_per_micro_batch
                                  : 0;
    if (saved > 0.001) {
      plan.binding =
          fmt::format("memory: {} would take {:.1f} % less time; {}", choice_text(*fastest_),
                      100 * saved, raise_text(fastest_prediction_, request_.budget));
    }
    return plan;
  }

  const TrainPlanRequest& request_;
  const PlanListener& listener_;
  int64_t parts_done_ = 0;
  std::vector<ScheduleRequest> candidates_;
  std::optional<ScheduleRequest> fastest_, closest_;  // of those that do not fit
  TrainPrediction fastest_prediction_, closest_prediction_;
  std::optional<FittedCandidate> fitted_;  // the fastest that was cut again
};

}  // namespace

Result<TrainPrediction> predict_candidate(const TrainPlanRequest& request,
                                          const ScheduleRequest& candidate) {
  JIGE_TRY(const PipelineSchedule schedule, generate_pipeline(candidate));
  JIGE_TRY(const PipelineGraph graph, PipelineGraph::create(schedule));
  JIGE_TRY(TrainPrediction prediction, predict_times(request, schedule, graph));
  JIGE_DO(check_clocks(graph));
  const std::vector<PipelineBuffer> buffers = pipeline_buffers(schedule, request.costs);
  const HappensBefore order(graph);
  JIGE_TRY(const PipelinePeaks peaks, pipeline_peaks(schedule, graph, order, buffers));
  for (const MemoryPeak& peak : peaks.devices) prediction.bytes_of_devices.push_back(peak.bytes);
  prediction.device_bytes = peaks.device_bytes_max();
  prediction.host_bytes = peaks.host.bytes;
  prediction.total_bytes = peaks.total_bytes();
  return prediction;
}

Result<TrainPlan> plan_train(const TrainPlanRequest& request, const PlanListener& listener) {
  JIGE_DO(check_request(request));
  return Search(request, listener).run();
}

Result<std::vector<KindOutcome>> plan_each_kind(const TrainPlanRequest& request,
                                                const PlanListener& listener) {
  JIGE_DO(check_request(request));
  std::vector<KindOutcome> outcomes;
  for (int k = 0; k < kScheduleKindCount; ++k) {
    KindOutcome outcome{.kind = static_cast<ScheduleKind>(k)};
    const auto& allowed = request.kinds;
    if (!allowed.empty() && std::ranges::find(allowed, outcome.kind) == allowed.end()) continue;
    TrainPlanRequest alone = request;
    alone.kinds = {outcome.kind};
    const PlanListener one_kind = [&](int64_t done, int64_t total) {
      constexpr int64_t kOneKind = 1000;
      if (listener) listener(k * kOneKind + done * kOneKind / total, kScheduleKindCount * kOneKind);
    };
    Result<TrainPlan> plan = Search(alone, one_kind).run();
    if (plan) {
      outcome.best = std::move(plan->choice);
      outcome.prediction = std::move(plan->prediction);
    } else if (plan.error().code == Code::kInternal) {
      return tl::unexpected<Error>(std::move(plan.error()));
    } else {
      outcome.refusal = std::move(plan.error().message);
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace jige::plan

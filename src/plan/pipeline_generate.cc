#include "plan/pipeline_generate.h"

#include <algorithm>

#include "plan/pipeline_limits.h"
#include "plan/pipeline_lockstep.h"
#include "plan/pipeline_lower.h"

namespace jige::plan {

std::string_view schedule_name(ScheduleKind kind) {
  static constexpr std::string_view kNames[kScheduleKindCount] = {
      "gpipe",         "1f1b",   "interleaved",  "zb-h1", "zb-v",
      "breadth-first", "mobius", "zero-offload", "spipe"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view schedule_summary(ScheduleKind kind) {
  static constexpr std::string_view kSummaries[kScheduleKindCount] = {
      "all forward passes, then all backward passes",
      "forward and backward in turn; holds few micro-batches",
      "1f1b with several stages a device; shorter waits, more messages",
      "1f1b with weight gradients moved into the waits",
      "two stages a device in a V, weight gradients in the waits",
      "several stages a device, each for all micro-batches before the next",
      "breadth-first with parameters fetched from the host",
      "one device, no pipeline, optimizer on the host",
      "forward and backward stages cut apart, one ring, parameters on the host"};
  return kSummaries[static_cast<size_t>(kind)];
}

std::string_view defer_name(WeightDefer defer) {
  static constexpr std::string_view kNames[] = {"none", "one", "unbounded"};
  return kNames[static_cast<size_t>(defer)];
}

bool has_stage_choice(ScheduleKind kind) {
  return kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kBreadthFirst ||
         kind == ScheduleKind::kMobius || kind == ScheduleKind::kSPipe;
}

ScheduleRequest natural_request(ScheduleKind kind) {
  ScheduleRequest request{.kind = kind};
  if (has_stage_choice(kind) || kind == ScheduleKind::kZbV) {
    request.forward_stages = request.backward_stages = 2;
  }
  if (kind == ScheduleKind::kMobius || kind == ScheduleKind::kSPipe) {
    request.host_parameters = request.recompute = true;
    request.optimizer = OptimizerMode::kSync;
  }
  if (kind == ScheduleKind::kZeroOffload) request.optimizer = OptimizerMode::kSync;
  if (kind == ScheduleKind::kSPipe) {
    request.backward_stages = 6;
    request.optimizer = OptimizerMode::kAsync;
  }
  return request;
}

std::vector<int32_t> even_cuts(int32_t block_count, int32_t stage_count) {
  std::vector<int32_t> cuts;
  for (int64_t k = 0; k < stage_count; ++k) {
    cuts.push_back(static_cast<int32_t>(k * block_count / stage_count));
  }
  return cuts;
}

namespace {

Status check_counts(const ScheduleRequest& r) {
  const std::string_view name = schedule_name(r.kind);
  if (r.devices < 1 || r.micro_batches < 1 || r.block_count < 1 || r.forward_stages < 1 ||
      r.backward_stages < 1) {
    return fail(Code::kInvalidArgument,
                "devices {}, micro-batches {}, blocks {}, stages {} and {} must be at least 1",
                r.devices, r.micro_batches, r.block_count, r.forward_stages, r.backward_stages);
  }
  const int64_t stages = int64_t{r.devices} * std::max(r.forward_stages, r.backward_stages);
  if (stages > r.block_count) {
    return fail(Code::kInvalidArgument,
                "{}: {} stages ({} devices with {} each) need as many blocks, the model has {}; "
                "take fewer devices or fewer stages",
                name, stages, r.devices, std::max(r.forward_stages, r.backward_stages),
                r.block_count);
  }
  // F, R, X, W and messages of them all, and some for the rest.
  if (stages * r.micro_batches * 10 > kPipelineTasksMax) {
    return fail(Code::kInvalidArgument,
                "{}: {} stages and {} micro-batches make more than {} tasks; take fewer of either",
                name, stages, r.micro_batches, kPipelineTasksMax);
  }
  if (int64_t{r.block_count} * r.micro_batches > kPipelineBlockPassesMax) {
    return fail(Code::kInvalidArgument,
                "{}: {} blocks times {} micro-batches are more than {}; take fewer micro-batches",
                name, r.block_count, r.micro_batches, kPipelineBlockPassesMax);
  }
  return {};
}

Status check_kind(const ScheduleRequest& r) {
  const std::string_view name = schedule_name(r.kind);
  const int32_t wanted = r.kind == ScheduleKind::kZbV ? 2 : 1;
  if (!has_stage_choice(r.kind) && r.forward_stages != wanted) {
    return fail(Code::kInvalidArgument, "{} has {} stage(s) a device, not {}", name, wanted,
                r.forward_stages);
  }
  if (r.kind != ScheduleKind::kSPipe && r.backward_stages != r.forward_stages) {
    return fail(Code::kInvalidArgument,
                "{} has the same stages forward and backward, not {} and {}; spipe chooses them "
                "apart",
                name, r.forward_stages, r.backward_stages);
  }
  if (r.kind == ScheduleKind::kInterleaved && r.micro_batches % r.devices != 0) {
    return fail(Code::kInvalidArgument,
                "{} works in groups of as many micro-batches as devices; {} micro-batches are no "
                "multiple of {} devices",
                name, r.micro_batches, r.devices);
  }
  const bool fills = r.kind == ScheduleKind::kSPipe || r.kind == ScheduleKind::kMobius ||
                     r.kind == ScheduleKind::kBreadthFirst;
  if (fills && r.forward_stages + r.backward_stages > 2 && r.micro_batches < r.devices) {
    return fail(Code::kInvalidArgument,
                "{} needs at least as many micro-batches as devices, {} are fewer than {}; without "
                "them every device waits for the ring once a stage",
                name, r.micro_batches, r.devices);
  }
  if (r.kind == ScheduleKind::kZeroOffload && r.devices != 1) {
    return fail(Code::kInvalidArgument, "{} has no pipeline and runs on 1 device, not {}", name,
                r.devices);
  }
  if (r.kind == ScheduleKind::kZeroOffload && r.optimizer == OptimizerMode::kDevice) {
    return fail(Code::kInvalidArgument, "{} keeps the optimizer on the host: take sync or async",
                name);
  }
  return {};
}

Status check_placement(const ScheduleRequest& r) {
  const std::string_view name = schedule_name(r.kind);
  if (r.host_parameters && r.optimizer == OptimizerMode::kDevice) {
    return fail(Code::kInvalidArgument,
                "parameters on the host need their optimizer there: take sync or async");
  }
  if (r.kind == ScheduleKind::kMobius && !r.host_parameters) {
    return fail(Code::kInvalidArgument,
                "mobius keeps parameters on the host; with parameters on the device it is "
                "breadth-first");
  }
  if (r.kind == ScheduleKind::kSPipe && !(r.host_parameters && r.recompute)) {
    return fail(Code::kInvalidArgument,
                "{} runs the two passes of a block on different devices: it needs parameters on "
                "the host and recompute",
                name);
  }
  if (r.lockstep && r.kind != ScheduleKind::kSPipe) {
    return fail(Code::kInvalidArgument, "{} sends no checkpoints that a pass could wait for", name);
  }
  const bool stage_by_stage = r.kind == ScheduleKind::kMobius || r.kind == ScheduleKind::kSPipe;
  const int32_t least = stage_by_stage ? 1 : 2;
  if (r.host_parameters && r.resident_stages < least) {
    return fail(Code::kInvalidArgument, "{}: at least {} must fit a device at once, not {}", name,
                stage_by_stage ? "1 stage" : "2 stages, one at work and one being fetched,",
                r.resident_stages);
  }
  return {};
}

Status check_cuts(const std::vector<int32_t>& cuts, int32_t stage_count, int32_t block_count) {
  if (cuts.empty()) return {};
  bool ascending =
      static_cast<int32_t>(cuts.size()) == stage_count && cuts[0] == 0 && cuts.back() < block_count;
  for (size_t i = 1; i < cuts.size(); ++i) ascending = ascending && cuts[i - 1] < cuts[i];
  if (ascending) return {};
  return fail(Code::kInvalidArgument,
              "the first blocks of {} stages must ascend from 0 to less than {}; found [{}]",
              stage_count, block_count, fmt::join(cuts, ", "));
}

int32_t device_of(const ScheduleRequest& r, int32_t stage, bool forward) {
  const int32_t turn = stage % r.devices;
  if (r.kind == ScheduleKind::kSPipe && !forward) return r.devices - 1 - turn;
  if (r.kind == ScheduleKind::kZbV && stage >= r.devices) return r.devices - 1 - turn;
  return turn;
}

std::vector<PipelineStage> make_stages(const ScheduleRequest& r, bool forward) {
  const int32_t count = r.devices * (forward ? r.forward_stages : r.backward_stages);
  const bool own = !forward && r.kind == ScheduleKind::kSPipe;
  std::vector<int32_t> cuts = own ? r.backward_cuts : r.forward_cuts;
  if (cuts.empty()) cuts = even_cuts(r.block_count, count);
  cuts.push_back(r.block_count);
  std::vector<PipelineStage> stages;
  for (int32_t k = 0; k < count; ++k) {
    const auto i = static_cast<size_t>(k);
    stages.push_back({{cuts[i], cuts[i + 1]}, device_of(r, k, forward)});
  }
  return stages;
}

std::vector<DeviceOrder> base_orders(const ScheduleRequest& r, const PipelineOrder& stages) {
  const DevicesAndMicroBatches size{r.devices, r.micro_batches};
  switch (r.kind) {
    case ScheduleKind::k1F1B:
    case ScheduleKind::kZeroOffload:
      return one_f_one_b_orders(size);
    case ScheduleKind::kInterleaved:
      return interleaved_orders(size, r.forward_stages);
    case ScheduleKind::kZbH1:
      return zb_h1_orders(size);
    case ScheduleKind::kZbV:
      return zb_v_orders(stages, size);
    default:
      return looped_orders(stages, size);
  }
}

}  // namespace

Result<PipelineOrder> pipeline_stages(const ScheduleRequest& request) {
  JIGE_DO(check_counts(request));
  JIGE_DO(check_kind(request));
  JIGE_DO(check_placement(request));
  JIGE_DO(check_cuts(request.forward_cuts, request.devices * request.forward_stages,
                     request.block_count));
  if (request.kind == ScheduleKind::kSPipe) {
    JIGE_DO(check_cuts(request.backward_cuts, request.devices * request.backward_stages,
                       request.block_count));
  }
  PipelineOrder order;
  order.forward = make_stages(request, true);
  order.backward = make_stages(request, false);
  const int32_t first = order.backward.front().device, last = order.backward.back().device;
  if (request.tied && request.optimizer == OptimizerMode::kDevice && first != last) {
    return fail(Code::kInvalidArgument,
                "the last block shares parameters with the first, and {} puts them on devices {} "
                "and {}: their optimizer must be on the host (sync or async), or the head untied",
                schedule_name(request.kind), last, first);
  }
  return order;
}

Result<PipelineOrder> pipeline_order(const ScheduleRequest& request) {
  JIGE_TRY(PipelineOrder order, pipeline_stages(request));
  order.devices = base_orders(request, order);
  const bool split = request.kind == ScheduleKind::kZbH1 || request.kind == ScheduleKind::kZbV;
  order.fused = !split && !request.fast_forward && request.defer == WeightDefer::kNone;
  if (request.defer == WeightDefer::kOne) order.devices = defer_weights_by_one(order.devices);
  if (request.defer == WeightDefer::kUnbounded) {
    const DevicesAndMicroBatches size{request.devices, request.micro_batches};
    const bool given = request.times.forward.size() == order.forward.size() &&
                       request.times.backward_input.size() == order.backward.size() &&
                       request.times.backward_weight.size() == order.backward.size();
    order.devices =
        fill_waits_with_weights(order, size, given ? request.times : uniform_times(order, 1));
  }
  return order;
}

Result<PipelineSchedule> generate_pipeline(const ScheduleRequest& request) {
  JIGE_TRY(const PipelineOrder order, pipeline_order(request));
  PipelineSchedule schedule;
  schedule.name = schedule_name(request.kind);
  schedule.device_count = request.devices;
  schedule.micro_batch_count = request.micro_batches;
  schedule.block_count = request.block_count;
  schedule.host_parameters = request.host_parameters;
  schedule.recompute = request.recompute;
  schedule.optimizer = request.optimizer;
  schedule.clip = request.clip;
  schedule.tied = request.tied;
  lower_pipeline(order, request.resident_stages, schedule);
  if (request.lockstep) wait_for_checkpoints(schedule);
  return schedule;
}

}  // namespace jige::plan

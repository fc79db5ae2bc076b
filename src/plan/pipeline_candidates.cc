#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan/pipeline_cuts.h"
#include "plan/pipeline_planner.h"

namespace jige::plan {
namespace {

template <typename T>
std::vector<T> or_all(const std::vector<T>& chosen, std::vector<T> all) {
  return chosen.empty() ? all : chosen;
}

std::vector<int32_t> up_to(int32_t count) {
  std::vector<int32_t> list(static_cast<size_t>(std::max(count, 0)));
  std::iota(list.begin(), list.end(), 1);
  return list;
}

class Lattice {
 public:
  explicit Lattice(const TrainPlanRequest& request) : request_(request) {}

  Result<std::vector<ScheduleRequest>> collect() {
    std::vector<ScheduleKind> kinds;
    for (int k = 0; k < kScheduleKindCount; ++k) kinds.push_back(static_cast<ScheduleKind>(k));
    for (const ScheduleKind kind : or_all(request_.kinds, kinds)) {
      for (const int32_t micro_batches : request_.micro_batches) {
        ScheduleRequest base = natural_request(kind);
        base.devices = request_.devices;
        base.micro_batches = micro_batches;
        base.block_count = static_cast<int32_t>(request_.costs.blocks.size());
        base.tied = request_.costs.tied;
        add_places(base);
      }
    }
    if (!list_.empty()) return std::move(list_);
    return fail(Code::kInvalidArgument, "no schedule is possible: {}",
                !reason_.empty()        ? reason_
                : !twin_reason_.empty() ? twin_reason_
                                        : "nothing is allowed");
  }

 private:
  void add_places(ScheduleRequest base) {
    for (const bool host : or_all(request_.host_parameters, {false, true})) {
      // With parameters on the host, breadth-first is mobius.
      if (host && base.kind == ScheduleKind::kBreadthFirst) {
        twin_reason_ = "breadth-first with parameters on the host is mobius; ask for that";
        continue;
      }
      base.host_parameters = host;
      for (const bool recompute : or_all(request_.recompute, {false, true})) {
        base.recompute = recompute;
        for (const OptimizerMode optimizer :
             or_all(request_.optimizers, {OptimizerMode::kDevice, OptimizerMode::kAsync})) {
          base.optimizer = optimizer;
          base.clip = request_.clip.value_or(
              optimizer == OptimizerMode::kAsync ? ClipMode::kSpeculate : ClipMode::kExact);
          add_stages(base);
        }
      }
    }
  }

  void add_stages(ScheduleRequest base) {
    if (!has_stage_choice(base.kind)) return add_orders(base);
    const std::vector<int32_t> all = up_to(request_.stages_max);
    for (const int32_t forward : or_all(request_.forward_stages, all)) {
      base.forward_stages = base.backward_stages = forward;
      // With one stage a device, breadth-first is gpipe.
      const bool twin = base.kind == ScheduleKind::kBreadthFirst && forward == 1;
      if (twin && request_.forward_stages.empty()) continue;
      if (base.kind != ScheduleKind::kSPipe) {
        add_orders(base);
        continue;
      }
      for (const int32_t backward : or_all(request_.backward_stages, all)) {
        base.backward_stages = backward;
        add_orders(base);
      }
    }
  }

  void add_orders(ScheduleRequest base) {
    // What contradicts itself does so with every order.
    const auto stages = pipeline_stages(base);
    if (!stages) {
      if (reason_.empty()) reason_ = stages.error().message;
      return;
    }
    const std::vector<int32_t> rooms =
        base.host_parameters ? std::vector<int32_t>{2, 3} : std::vector<int32_t>{2};
    for (const int32_t room : rooms) {
      base.resident_stages = room;
      for (const WeightDefer defer :
           {WeightDefer::kNone, WeightDefer::kOne, WeightDefer::kUnbounded}) {
        const bool splits = base.kind == ScheduleKind::kZbH1 || base.kind == ScheduleKind::kZbV;
        if (splits && defer != WeightDefer::kNone) continue;
        base.defer = defer;
        add_partitions(base, *stages);
      }
    }
  }

  // Even in time; where that differs, also even in bytes, for what would not fit otherwise.
  void add_partitions(ScheduleRequest base, const PipelineOrder& stages) {
    const bool apart = base.kind == ScheduleKind::kSPipe;
    ScheduleRequest timed = base;
    timed.forward_cuts = cuts(base, apart ? Balance::kForward : Balance::kBoth, stages.forward);
    if (apart) timed.backward_cuts = cuts(base, Balance::kBackward, stages.backward);
    push(timed);
    ScheduleRequest light = base;
    light.forward_cuts = cuts(base, Balance::kBytes, stages.forward);
    if (apart) light.backward_cuts = cuts(base, Balance::kBytes, stages.backward);
    if (light.forward_cuts != timed.forward_cuts || light.backward_cuts != timed.backward_cuts) {
      push(light);
    }
  }

  // Found once for all candidates that weigh blocks alike.
  const std::vector<int32_t>& cuts(const ScheduleRequest& candidate, Balance balance,
                                   const std::vector<PipelineStage>& stages) {
    const bool on_device = candidate.optimizer == OptimizerMode::kDevice;
    std::vector<int32_t> devices;
    for (const PipelineStage& stage : stages) devices.push_back(stage.device);
    const auto [entry, fresh] =
        cuts_.try_emplace({balance, candidate.recompute, on_device, std::move(devices)});
    if (fresh) {
      auto found = cut_stages(request_, candidate, balance, stages);
      if (found) entry->second = std::move(*found);
    }
    return entry->second;
  }

  void push(ScheduleRequest candidate) {
    renew_times(request_.costs, candidate);
    list_.push_back(std::move(candidate));
  }

  const TrainPlanRequest& request_;
  std::vector<ScheduleRequest> list_;
  std::string reason_;       // why the first that was possible in itself is not
  std::string twin_reason_;  // where nothing else was tried
  std::map<std::tuple<Balance, bool, bool, std::vector<int32_t>>, std::vector<int32_t>> cuts_;
};

}  // namespace

Result<std::vector<ScheduleRequest>> train_candidates(const TrainPlanRequest& request) {
  return Lattice(request).collect();
}

}  // namespace jige::plan

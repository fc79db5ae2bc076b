#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "plan/pipeline_partition.h"
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

// What a partition evens out.
enum class Balance { kForward, kBackward, kBoth, kBytes };

std::vector<double> block_weights(const PipelineCosts& costs, const ScheduleRequest& candidate,
                                  Balance balance) {
  std::vector<double> weights;
  for (const BlockCost& block : costs.blocks) {
    const double backward = block.backward_input_s + block.backward_weight_s +
                            (candidate.recompute ? block.recompute_s : 0);
    const int64_t state = candidate.optimizer == OptimizerMode::kDevice
                              ? block.parameters * costs.state_bytes_per_parameter
                              : 0;
    const int64_t bytes = block.parameter_bytes + block.gradient_bytes + block.saved_bytes + state;
    weights.push_back(balance == Balance::kForward    ? block.forward_s
                      : balance == Balance::kBackward ? backward
                      : balance == Balance::kBoth     ? block.forward_s + backward
                                                      : static_cast<double>(bytes));
  }
  return weights;
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
    if (const auto stages = pipeline_stages(base); !stages) {
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
        add_partitions(base);
      }
    }
  }

  // Even in time; where that differs, also even in bytes, for what would not fit otherwise.
  void add_partitions(ScheduleRequest base) {
    const bool apart = base.kind == ScheduleKind::kSPipe;
    const int32_t forward = base.devices * base.forward_stages;
    const int32_t backward = base.devices * base.backward_stages;
    ScheduleRequest timed = base;
    timed.forward_cuts = cuts(base, apart ? Balance::kForward : Balance::kBoth, forward);
    if (apart) timed.backward_cuts = cuts(base, Balance::kBackward, backward);
    push(timed);
    ScheduleRequest light = base;
    light.forward_cuts = cuts(base, Balance::kBytes, forward);
    if (apart) light.backward_cuts = cuts(base, Balance::kBytes, backward);
    if (light.forward_cuts != timed.forward_cuts || light.backward_cuts != timed.backward_cuts) {
      push(light);
    }
  }

  // Found once for all candidates that weigh blocks alike.
  const std::vector<int32_t>& cuts(const ScheduleRequest& candidate, Balance balance,
                                   int32_t stages) {
    const bool on_device = candidate.optimizer == OptimizerMode::kDevice;
    const auto [entry, fresh] =
        cuts_.try_emplace({balance, candidate.recompute, on_device, stages});
    if (fresh) {
      const Result<Partition> partition =
          balance_stages(block_weights(request_.costs, candidate, balance), stages);
      if (partition) entry->second = partition->cuts;
    }
    return entry->second;
  }

  void push(ScheduleRequest candidate) {
    if (candidate.defer == WeightDefer::kUnbounded) {
      if (const Result<PipelineOrder> stages = pipeline_stages(candidate)) {
        candidate.times = stage_times(*stages, request_.costs, candidate.recompute);
      }
    }
    list_.push_back(std::move(candidate));
  }

  const TrainPlanRequest& request_;
  std::vector<ScheduleRequest> list_;
  std::string reason_;       // why the first that was possible in itself is not
  std::string twin_reason_;  // where nothing else was tried
  std::map<std::tuple<Balance, bool, bool, int32_t>, std::vector<int32_t>> cuts_;
};

}  // namespace

Result<std::vector<ScheduleRequest>> train_candidates(const TrainPlanRequest& request) {
  return Lattice(request).collect();
}

}  // namespace jige::plan

#include "plan/pipeline_lower.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"
#include "plan/pipeline_residency.h"

namespace jige::plan {
namespace {

using enum TaskKind;

class Lowering {
 public:
  Lowering(const PipelineOrder& order, PipelineSchedule& schedule)
      : order_(order), schedule_(schedule), tasks_(schedule.tasks) {
    const auto m = static_cast<size_t>(schedule.micro_batch_count);
    forward_.assign(order.forward.size() * m, -1);
    recompute_.assign(order.backward.size() * m, -1);
    input_.assign(order.backward.size() * m, -1);
    weight_.assign(order.backward.size() * m, -1);
    offload_.assign(order.backward.size(), -1);
    for (size_t q = 1; schedule.recompute && q < order.backward.size(); ++q) {
      const int32_t boundary = order.backward[q].blocks.begin;
      checkpoints_of_.emplace(forward_stage_of(boundary), static_cast<int32_t>(q));
    }
  }

  void run(int32_t resident_stages) {
    tasks_.clear();
    for (size_t d = 0; d < order_.devices.size(); ++d) {
      add_device(static_cast<int32_t>(d), resident_stages);
    }
    wire_forward();
    wire_backward();
    add_optimizer();
    add_end();
  }

 private:
  static BlockRange boundary(int32_t block) { return {block, block}; }

  size_t at(int32_t stage, int32_t micro_batch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micro_batch_count) +
           static_cast<size_t>(micro_batch);
  }
  const PipelineStage& forward_stage(int32_t k) const {
    return order_.forward[static_cast<size_t>(k)];
  }
  const PipelineStage& backward_stage(int32_t q) const {
    return order_.backward[static_cast<size_t>(q)];
  }
  int32_t forward_count() const { return static_cast<int32_t>(order_.forward.size()); }
  int32_t backward_count() const { return static_cast<int32_t>(order_.backward.size()); }
  int32_t forward_stage_of(int32_t block) const {
    int32_t k = 0;
    while (!forward_stage(k).blocks.contains(block)) ++k;
    return k;
  }
  bool host_optimizer() const { return schedule_.optimizer != OptimizerMode::kDevice; }

  int32_t add(PipelineTask task) {
    tasks_.push_back(std::move(task));
    return static_cast<int32_t>(tasks_.size() - 1);
  }
  void depend(int32_t task, int32_t on) {
    JIGE_CHECK(task >= 0 && on >= 0, "a dependency of task {} on task {}", task, on);
    tasks_[static_cast<size_t>(task)].after.push_back(on);
  }

  // The receive stands right behind its send, so both sides see the same order.
  void add_message(TaskKind kind, int32_t from, int32_t to, int32_t block, int32_t micro_batch,
                   int32_t after) {
    const int32_t send = add({kind, from, boundary(block), micro_batch, to, {after}});
    received_[{receive_of(kind), block, micro_batch}] =
        add({receive_of(kind), to, boundary(block), micro_batch, from, {send}});
  }
  int32_t received(TaskKind kind, int32_t block, int32_t micro_batch) const {
    const auto found = received_.find({kind, block, micro_batch});
    return found == received_.end() ? -1 : found->second;
  }

  void add_device(int32_t device, int32_t resident_stages) {
    const DeviceOrder& ops = order_.devices[static_cast<size_t>(device)];
    std::vector<BlockRange> uses;
    for (const OrderOp& op : ops) {
      uses.push_back(!schedule_.host_parameters ? BlockRange{}
                     : op.kind == kForward      ? forward_stage(op.stage).blocks
                                                : backward_stage(op.stage).blocks);
    }
    const ResidencyPlan residency = plan_residency(uses, resident_stages);
    const size_t done_before = done_.size();
    std::vector<int32_t> fetches, releases;
    for (const ResidencyVisit& visit : residency.visits) {
      fetches.push_back(add({kFetch, device, visit.blocks, -1, -1, {}}));
    }
    releases.assign(residency.visits.size(), -1);
    for (size_t i = 0; i < ops.size(); ++i) {
      const int32_t visit = residency.visit_of_use[i];
      const int32_t fetch = visit < 0 ? -1 : fetches[static_cast<size_t>(visit)];
      add_op(ops[i], fetch);
      if (schedule_.host_parameters && ops[i].kind == kBackwardInput && ops[i].micro_batch == 0) {
        bound_gradients(ops[i].stage, done_before, resident_stages);
      }
      if (visit < 0 || residency.visits[static_cast<size_t>(visit)].last_use != i) continue;
      releases[static_cast<size_t>(visit)] = add(
          {kRelease, device, residency.visits[static_cast<size_t>(visit)].blocks, -1, -1, {fetch}});
    }
    for (size_t v = 0; v < residency.visits.size(); ++v) {
      const int32_t follows = residency.visits[v].follows;
      if (follows >= 0) depend(fetches[v], releases[static_cast<size_t>(follows)]);
    }
    last_compute_.push_back(last_of_compute(device));
  }

  int32_t last_of_compute(int32_t device) const {
    for (size_t i = tasks_.size(); i-- > 0;) {
      if (tasks_[i].device == device && queue_of(schedule_, tasks_[i].kind) == QueueKind::kCompute)
        return static_cast<int32_t>(i);
    }
    return -1;
  }

  void add_op(const OrderOp& op, int32_t fetch) {
    if (op.kind == kForward) {
      add_forward(op.stage, op.micro_batch, fetch);
    } else if (op.kind == kBackwardInput) {
      add_backward_input(op.stage, op.micro_batch, fetch);
    } else {
      add_backward_weight(op.stage, op.micro_batch, fetch);
    }
  }

  // Gradients of the stages that this device is done with are on their way to the host; with that
  // of the stage that begins they are as many as there is room for parameters.
  void bound_gradients(int32_t q, size_t done_before, int32_t resident_stages) {
    const auto ahead = static_cast<size_t>(resident_stages);
    if (!host_optimizer() || done_.size() - done_before < ahead) return;
    const int32_t gone = done_[done_.size() - ahead];
    depend(input_[at(q, 0)], offload_[static_cast<size_t>(gone)]);
  }

  int32_t add_pass(TaskKind kind, const PipelineStage& stage, int32_t m, int32_t fetch) {
    const int32_t task = add({kind, stage.device, stage.blocks, m, -1, {}});
    if (fetch >= 0) depend(task, fetch);
    return task;
  }

  void add_forward(int32_t k, int32_t m, int32_t fetch) {
    const PipelineStage& stage = forward_stage(k);
    const int32_t task = add_pass(kForward, stage, m, fetch);
    forward_[at(k, m)] = task;
    if (k + 1 < forward_count() && forward_stage(k + 1).device != stage.device) {
      add_message(kSendActivation, stage.device, forward_stage(k + 1).device, stage.blocks.end, m,
                  task);
    }
    const auto [first, last] = checkpoints_of_.equal_range(k);
    for (auto it = first; it != last; ++it) {
      const PipelineStage& owner = backward_stage(it->second);
      if (owner.device == stage.device) continue;
      add_message(kCheckpointSend, stage.device, owner.device, owner.blocks.begin, m, task);
    }
  }

  void add_backward_input(int32_t q, int32_t m, int32_t fetch) {
    const PipelineStage& stage = backward_stage(q);
    if (schedule_.recompute) recompute_[at(q, m)] = add_pass(kRecompute, stage, m, fetch);
    input_[at(q, m)] = add_pass(kBackwardInput, stage, m, fetch);
    if (!order_.fused) add_gradient_message(q, m, input_[at(q, m)]);
  }

  void add_backward_weight(int32_t q, int32_t m, int32_t fetch) {
    const PipelineStage& stage = backward_stage(q);
    weight_[at(q, m)] = add_pass(kBackwardWeight, stage, m, fetch);
    if (order_.fused) add_gradient_message(q, m, weight_[at(q, m)]);
    if (m != schedule_.micro_batch_count - 1) return;
    done_.push_back(q);
    if (!host_optimizer()) return;
    offload_[static_cast<size_t>(q)] =
        add({kGradientOffload, stage.device, stage.blocks, -1, -1, {weight_[at(q, m)]}});
  }

  void add_gradient_message(int32_t q, int32_t m, int32_t after) {
    if (q == 0 || backward_stage(q - 1).device == backward_stage(q).device) return;
    add_message(kSendGradient, backward_stage(q).device, backward_stage(q - 1).device,
                backward_stage(q).blocks.begin, m, after);
  }

  void wire_forward() {
    for (int32_t k = 1; k < forward_count(); ++k) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        const int32_t message = received(kReceiveActivation, forward_stage(k).blocks.begin, m);
        depend(forward_[at(k, m)], message >= 0 ? message : forward_[at(k - 1, m)]);
      }
    }
  }

  void wire_backward() {
    for (int32_t q = 0; q < backward_count(); ++q) {
      for (int32_t m = 0; m < schedule_.micro_batch_count; ++m) {
        wire_source(q, m);
        depend(weight_[at(q, m)], input_[at(q, m)]);
        if (q + 1 == backward_count()) continue;
        const int32_t message = received(kReceiveGradient, backward_stage(q).blocks.end, m);
        depend(input_[at(q, m)], message >= 0 ? message : input_[at(q + 1, m)]);
      }
    }
  }

  // What X works on: kept by F, or made again from a checkpoint.
  void wire_source(int32_t q, int32_t m) {
    if (!schedule_.recompute) {
      depend(input_[at(q, m)], forward_[at(q, m)]);
      return;
    }
    const int32_t block = backward_stage(q).blocks.begin;
    const int32_t k = forward_stage_of(block);
    const int32_t message = received(kCheckpointReceive, block, m);
    if (message >= 0) {
      depend(recompute_[at(q, m)], message);
    } else if (forward_stage(k).device == backward_stage(q).device) {
      depend(recompute_[at(q, m)], forward_[at(k, m)]);
    }  // else block 0: token ids are everywhere
    depend(input_[at(q, m)], recompute_[at(q, m)]);
  }

  void add_optimizer() {
    int32_t barrier = -1;
    if (schedule_.optimizer == OptimizerMode::kSync || schedule_.clip == ClipMode::kExact) {
      barrier = add({});
      // A device's last pass is the last W of some stage, so offloads stand for all passes.
      if (host_optimizer()) {
        for (const int32_t q : done_) depend(barrier, offload_[static_cast<size_t>(q)]);
      } else {
        for (const int32_t last : last_compute_) depend(barrier, last);
      }
    }
    // A queue's order must not make the last block's update wait for the first's.
    if (schedule_.tied) std::ranges::stable_partition(done_, [](int32_t q) { return q != 0; });
    std::vector<int32_t> steps(order_.backward.size(), -1);
    for (const int32_t q : done_) {
      const PipelineStage& stage = backward_stage(q);
      const int32_t step = add({kOptimizerStep, stage.device, stage.blocks, -1, -1, {}});
      depend(step, host_optimizer() ? offload_[static_cast<size_t>(q)]
                                    : weight_[at(q, schedule_.micro_batch_count - 1)]);
      if (barrier >= 0) depend(step, barrier);
      const bool own_forward_open =
          q + 1 == backward_count() &&
          forward_stage(forward_count() - 1).blocks.begin > stage.blocks.begin;
      // Recomputation does not wait for the F of its own blocks where that runs elsewhere; the
      // update of their parameters does.
      if (schedule_.recompute && own_forward_open) {
        depend(step, forward_[at(forward_count() - 1, schedule_.micro_batch_count - 1)]);
      }
      steps[static_cast<size_t>(q)] = step;
    }
    wire_tied(steps);
    for (const int32_t q : done_) {
      if (!host_optimizer() || schedule_.host_parameters) continue;
      const bool shares = schedule_.tied && q + 1 == backward_count();
      add({kFetch,
           backward_stage(q).device,
           backward_stage(q).blocks,
           -1,
           -1,
           {steps[static_cast<size_t>(shares ? 0 : q)]}});
    }
  }

  // The first block's update is that of the last block's part too, and renews what the last reads.
  void wire_tied(const std::vector<int32_t>& steps) {
    const int32_t last = backward_count() - 1;
    if (!schedule_.tied || last == 0) return;
    const int32_t gradient = host_optimizer() ? offload_[static_cast<size_t>(last)]
                                              : weight_[at(last, schedule_.micro_batch_count - 1)];
    depend(steps.front(), gradient);
    depend(steps.front(), steps[static_cast<size_t>(last)]);
  }

  void add_end() {
    std::map<std::tuple<int32_t, QueueKind, int32_t>, int32_t> last;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const QueueKind queue = queue_of(schedule_, tasks_[i].kind);
      const int32_t peer = queue == QueueKind::kReceive ? tasks_[i].peer : -1;
      last[{tasks_[i].device, queue, peer}] = static_cast<int32_t>(i);
    }
    const int32_t end = add({});
    for (const auto& [queue, task] : last) depend(end, task);
  }

  const PipelineOrder& order_;
  PipelineSchedule& schedule_;
  std::vector<PipelineTask>& tasks_;
  std::vector<int32_t> forward_, recompute_, input_, weight_;  // [stage][micro-batch] → task
  std::vector<int32_t> offload_;                               // [backward stage] → task
  std::vector<int32_t> last_compute_;                          // [device] → task
  std::vector<int32_t> done_;                       // backward stages in the order they end
  std::multimap<int32_t, int32_t> checkpoints_of_;  // forward stage → backward stages it feeds
  std::map<std::tuple<TaskKind, int32_t, int32_t>, int32_t> received_;
};

}  // namespace

void lower_pipeline(const PipelineOrder& order, int32_t resident_stages,
                    PipelineSchedule& schedule) {
  Lowering(order, schedule).run(resident_stages);
}

}  // namespace jige::plan

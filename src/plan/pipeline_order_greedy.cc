#include "plan/pipeline_order_greedy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>

#include "base/check.h"

namespace jige::plan {
namespace {

using enum TaskKind;

constexpr double kNever = std::numeric_limits<double>::infinity();

// Plays a step: which tasks have ended when, and what each device did.
class Play {
 public:
  Play(const PipelineOrder& stages, DevicesAndMicroBatches size, const StageTimes& times)
      : stages_(stages), size_(size), times_(times), devices_(static_cast<size_t>(size.devices)) {
    next_[0].assign(stages.forward.size(), 0);
    next_[1].assign(stages.backward.size(), 0);
    next_[2].assign(stages.backward.size(), 0);
    const auto m = static_cast<size_t>(size.micro_batches);
    forward_end_.assign(stages.forward.size() * m, kNever);
    input_end_.assign(stages.backward.size() * m, kNever);
    remaining_ = (stages.forward.size() + 2 * stages.backward.size()) * m;
    moments_.insert(0);
  }

  // Runs until all is done, or nothing can start any more. `choose(device, now, op)` picks what a
  // free device starts, if anything.
  template <typename Choose>
  std::optional<GreedyOrders> run(Choose choose) {
    while (remaining_ > 0) {
      if (moments_.empty()) return std::nullopt;
      const double now = *moments_.begin();
      moments_.erase(moments_.begin());
      for (size_t d = 0; d < devices_.size(); ++d) {
        if (devices_[d].free_at > now) continue;
        OrderOp op{};
        if (choose(static_cast<int32_t>(d), now, op)) start(d, now, op);
      }
    }
    GreedyOrders orders;
    for (Device& device : devices_) {
      orders.step = std::max(orders.step, device.free_at);
      orders.devices.push_back(std::move(device.order));
    }
    return orders;
  }

  // The next micro-batch of this kind and stage, or M.
  int32_t next(TaskKind kind, int32_t stage) const {
    return next_[slot(kind)][static_cast<size_t>(stage)];
  }
  int32_t in_flight(int32_t device) const {
    return devices_[static_cast<size_t>(device)].in_flight;
  }
  int32_t micro_batches() const { return size_.micro_batches; }
  const PipelineOrder& stages() const { return stages_; }

  bool can_start(const OrderOp& op, double now) const {
    if (op.micro_batch >= size_.micro_batches || next(op.kind, op.stage) != op.micro_batch) {
      return false;
    }
    const auto k = static_cast<size_t>(op.stage);
    if (op.kind == kForward) return k == 0 || there(kForward, k - 1, k, op.micro_batch, now);
    if (op.kind == kBackwardWeight) return input_end_[at(k, op.micro_batch)] <= now;
    const bool last = k + 1 == stages_.backward.size();
    if (!last && !there(kBackwardInput, k + 1, k, op.micro_batch, now)) return false;
    // What X needs of the forward pass: F of the stage that begins where this one does, or around.
    const size_t f = forward_stage_of(stages_.backward[k].blocks.begin);
    const size_t needed = last ? stages_.forward.size() - 1 : f;
    return forward_end_[at(needed, op.micro_batch)] <= now;
  }

 private:
  struct Device {
    double free_at = 0;
    int32_t in_flight = 0;
    DeviceOrder order;
  };

  static size_t slot(TaskKind kind) {
    return kind == kForward ? 0 : kind == kBackwardInput ? 1 : 2;
  }
  size_t at(size_t stage, int32_t micro_batch) const {
    return stage * static_cast<size_t>(size_.micro_batches) + static_cast<size_t>(micro_batch);
  }
  size_t forward_stage_of(int32_t block) const {
    size_t k = 0;
    while (!stages_.forward[k].blocks.contains(block)) ++k;
    return k;
  }
  // Whether what stage `from` made of a micro-batch has reached stage `to`.
  bool there(TaskKind kind, size_t from, size_t to, int32_t micro_batch, double now) const {
    const bool forward = kind == kForward;
    const auto& list = forward ? stages_.forward : stages_.backward;
    const double end = (forward ? forward_end_ : input_end_)[at(from, micro_batch)];
    return end + (list[from].device == list[to].device ? 0 : times_.link) <= now;
  }

  void start(size_t d, double now, const OrderOp& op) {
    const auto k = static_cast<size_t>(op.stage);
    const auto& seconds = op.kind == kForward         ? times_.forward
                          : op.kind == kBackwardInput ? times_.backward_input
                                                      : times_.backward_weight;
    const double end = now + seconds[k];
    if (op.kind == kForward) forward_end_[at(k, op.micro_batch)] = end;
    if (op.kind == kBackwardInput) input_end_[at(k, op.micro_batch)] = end;
    ++next_[slot(op.kind)][k];
    Device& device = devices_[d];
    device.free_at = end;
    device.in_flight += op.kind == kForward ? 1 : op.kind == kBackwardWeight ? -1 : 0;
    device.order.push_back(op);
    moments_.insert(end);
    moments_.insert(end + times_.link);
    --remaining_;
  }

  const PipelineOrder& stages_;
  DevicesAndMicroBatches size_;
  const StageTimes& times_;
  std::vector<Device> devices_;
  std::array<std::vector<int32_t>, 3> next_;  // F, X, W
  std::vector<double> forward_end_, input_end_;
  std::set<double> moments_;
  size_t remaining_ = 0;
};

}  // namespace

StageTimes uniform_times(const PipelineOrder& stages, double seconds) {
  return {.forward = std::vector<double>(stages.forward.size(), seconds),
          .backward_input = std::vector<double>(stages.backward.size(), seconds),
          .backward_weight = std::vector<double>(stages.backward.size(), seconds)};
}

std::optional<GreedyOrders> greedy_orders(const PipelineOrder& stages, DevicesAndMicroBatches size,
                                          const StageTimes& times, const GreedyRule& rule) {
  JIGE_CHECK(stages.forward == stages.backward, "greedy orders need the same stages both ways");
  std::vector<int32_t> last_stage(static_cast<size_t>(size.devices), -1);
  for (size_t k = 0; k < stages.forward.size(); ++k) {
    last_stage[static_cast<size_t>(stages.forward[k].device)] = static_cast<int32_t>(k);
  }
  Play play(stages, size, times);
  return play.run([&](int32_t device, double now, OrderOp& best) {
    // (class, first, second): the smallest wins.
    std::tuple<int, int32_t, int32_t> best_key{9, 0, 0};
    const int32_t last = last_stage[static_cast<size_t>(device)];
    for (int32_t k = 0; k <= last; ++k) {
      if (stages.forward[static_cast<size_t>(k)].device != device) continue;
      const int32_t room = rule.in_flight_max - (rule.keep_place && k != last ? 1 : 0);
      for (const TaskKind kind : {kBackwardInput, kForward, kBackwardWeight}) {
        const OrderOp op{kind, k, play.next(kind, k)};
        if (kind == kForward && play.in_flight(device) >= room) continue;
        if (!play.can_start(op, now)) continue;
        const std::tuple<int, int32_t, int32_t> key{kind == kForward ? (rule.forward_first ? 0 : 2)
                                                    : kind == kBackwardInput ? 1
                                                                             : 3,
                                                    kind == kForward ? -k : k, op.micro_batch};
        if (key < best_key) {
          best_key = key;
          best = op;
        }
      }
    }
    return std::get<0>(best_key) < 9;
  });
}

std::vector<DeviceOrder> zb_v_orders(const PipelineOrder& stages, DevicesAndMicroBatches size) {
  const StageTimes times = uniform_times(stages, 1);
  const int32_t room = 2 * size.devices;
  std::optional<GreedyOrders> best;
  for (const GreedyRule& rule :
       {GreedyRule{.in_flight_max = room, .forward_first = true, .keep_place = true},
        GreedyRule{.in_flight_max = room, .forward_first = true},
        GreedyRule{.in_flight_max = room}}) {
    std::optional<GreedyOrders> orders = greedy_orders(stages, size, times, rule);
    if (orders && (!best || orders->step < best->step)) best = std::move(orders);
  }
  JIGE_CHECK(best, "no order for {} devices and {} micro-batches", size.devices,
             size.micro_batches);
  return std::move(best->devices);
}

std::vector<DeviceOrder> fill_waits_with_weights(const PipelineOrder& order,
                                                 DevicesAndMicroBatches size,
                                                 const StageTimes& times) {
  std::vector<DeviceOrder> fixed(order.devices.size());
  for (size_t d = 0; d < fixed.size(); ++d) {
    for (const OrderOp& op : order.devices[d]) {
      if (op.kind != kBackwardWeight) fixed[d].push_back(op);
    }
  }
  std::vector<size_t> position(fixed.size(), 0);
  Play play(order, size, times);
  std::optional<GreedyOrders> filled = play.run([&](int32_t device, double now, OrderOp& best) {
    const auto d = static_cast<size_t>(device);
    if (position[d] < fixed[d].size() && play.can_start(fixed[d][position[d]], now)) {
      best = fixed[d][position[d]++];
      return true;
    }
    std::tuple<int32_t, int32_t> best_key{std::numeric_limits<int32_t>::max(), 0};
    // Late stages first: their gradients are whole first, and their optimizer can start.
    for (int32_t k = 0; k < static_cast<int32_t>(order.backward.size()); ++k) {
      if (order.backward[static_cast<size_t>(k)].device != device) continue;
      const OrderOp op{kBackwardWeight, k, play.next(kBackwardWeight, k)};
      const std::tuple key{-k, op.micro_batch};
      if (play.can_start(op, now) && key < best_key) {
        best_key = key;
        best = op;
      }
    }
    return std::get<0>(best_key) != std::numeric_limits<int32_t>::max();
  });
  JIGE_CHECK(filled, "an order of F and X stands still");
  return std::move(filled->devices);
}

std::vector<DeviceOrder> defer_weights_by_one(const std::vector<DeviceOrder>& devices) {
  std::vector<DeviceOrder> result;
  for (const DeviceOrder& order : devices) {
    DeviceOrder late;
    DeviceOrder pending;  // the W of the last X
    for (const OrderOp& op : order) {
      if (op.kind == kBackwardWeight) continue;
      if (op.kind == kBackwardInput) {
        late.insert(late.end(), pending.begin(), pending.end());
        pending = {{kBackwardWeight, op.stage, op.micro_batch}};
      }
      late.push_back(op);
    }
    late.insert(late.end(), pending.begin(), pending.end());
    result.push_back(std::move(late));
  }
  return result;
}

}  // namespace jige::plan

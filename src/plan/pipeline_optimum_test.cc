// Generated orders against the best of all orders, at sizes where all can be tried.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

using enum TaskKind;

struct Rules {
  bool fused = false;         // W right behind its X, the gradient leaves behind W
  int32_t in_flight_max = 0;  // micro-batches between F and W on a device
};

// All orders of F, X and W on one device: micro-batches ascend in each, F before X before W.
void all_orders(int32_t device, int32_t micro_batches, const Rules& rules, DeviceOrder& order,
                std::vector<DeviceOrder>& list) {
  int32_t f = 0, x = 0, w = 0;
  for (const OrderOp& op : order) {
    f += op.kind == kForward;
    x += op.kind == kBackwardInput;
    w += op.kind == kBackwardWeight;
  }
  if (w == micro_batches) {
    list.push_back(order);
    return;
  }
  const auto go_on = [&](TaskKind kind, int32_t m) {
    order.push_back({kind, device, m});
    all_orders(device, micro_batches, rules, order, list);
    order.pop_back();
  };
  const bool owes = rules.fused && x > w;
  if (!owes && f < micro_batches && f - w < rules.in_flight_max) go_on(kForward, f);
  if (!owes && x < f) go_on(kBackwardInput, x);
  if (w < x) go_on(kBackwardWeight, w);
}

// The shortest step over all orders of all devices, one stage a device, by trying them all.
double shortest_step(DevicesAndMicroBatches size, const UnitCosts& unit, const Rules& rules) {
  std::vector<std::vector<DeviceOrder>> choices(static_cast<size_t>(size.devices));
  for (int32_t d = 0; d < size.devices; ++d) {
    DeviceOrder order;
    all_orders(d, size.micro_batches, rules, order, choices[static_cast<size_t>(d)]);
  }
  const auto m_count = static_cast<size_t>(size.micro_batches);
  const auto p = static_cast<size_t>(size.devices);
  double best = INFINITY;
  std::vector<size_t> pick(p, 0);
  std::vector<double> f(p * m_count), x(p * m_count), free_at(p);
  std::vector<size_t> position(p);
  while (true) {
    std::ranges::fill(f, -1);
    std::ranges::fill(x, -1);
    std::ranges::fill(free_at, 0);
    std::ranges::fill(position, 0);
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t d = 0; d < p; ++d) {
        const DeviceOrder& order = choices[d][pick[d]];
        for (; position[d] < order.size(); ++position[d], moved = true) {
          const auto m = static_cast<size_t>(order[position[d]].micro_batch);
          const TaskKind kind = order[position[d]].kind;
          double ready = 0;
          if (kind == kForward && d > 0) ready = f[(d - 1) * m_count + m];
          if (kind == kBackwardInput && d + 1 < p) ready = x[(d + 1) * m_count + m];
          if (ready < 0) break;
          free_at[d] =
              std::max(free_at[d], ready) + (kind == kForward         ? unit.forward
                                             : kind == kBackwardInput ? unit.backward_input
                                                                      : unit.backward_weight);
          if (kind == kForward) f[d * m_count + m] = free_at[d];
          // What goes on to the next device: behind X, or behind W where they are one.
          if (kind == (rules.fused ? kBackwardWeight : kBackwardInput)) {
            x[d * m_count + m] = free_at[d];
          }
        }
      }
    }
    bool done = true;
    for (size_t d = 0; d < p; ++d) done = done && position[d] == choices[d][pick[d]].size();
    if (done) best = std::min(best, *std::ranges::max_element(free_at));
    size_t d = 0;
    while (d < p && ++pick[d] == choices[d].size()) pick[d++] = 0;
    if (d == p) return best;
  }
}

double generated(ScheduleKind kind, DevicesAndMicroBatches size, const UnitCosts& unit,
                 WeightDefer defer = WeightDefer::kNone) {
  return step_seconds(generate({.kind = kind,
                                .devices = size.devices,
                                .micro_batches = size.micro_batches,
                                .block_count = size.devices,
                                .defer = defer}),
                      unit_costs(size.devices, unit));
}

TEST(PipelineOptimum, OneFOneBIsTheBestWhereXAndWAreOne) {
  for (const DevicesAndMicroBatches size : {DevicesAndMicroBatches{2, 2}, {2, 4}, {3, 3}, {4, 2}}) {
    for (const UnitCosts& unit : {UnitCosts{1, 1, 1}, UnitCosts{1, 2, 1}, UnitCosts{3, 1, 1}}) {
      const double best = shortest_step(size, unit, {.fused = true, .in_flight_max = size.devices});
      EXPECT_EQ(generated(ScheduleKind::k1F1B, size, unit), best);
      EXPECT_EQ(generated(ScheduleKind::kGPipe, size, unit),
                shortest_step(size, unit, {.fused = true, .in_flight_max = size.micro_batches}));
    }
  }
}

TEST(PipelineOptimum, ZbH1IsTheBestWithinItsMemoryWhereAllPassesCostTheSame) {
  for (const DevicesAndMicroBatches size : {DevicesAndMicroBatches{2, 2}, {2, 4}, {3, 3}}) {
    EXPECT_EQ(generated(ScheduleKind::kZbH1, size, {}),
              shortest_step(size, {}, {.in_flight_max = size.devices}));
  }
}

TEST(PipelineOptimum, FilledWaitsNearlyAlwaysMeetTheBest) {
  int32_t reached = 0, all = 0;
  for (const DevicesAndMicroBatches size : {DevicesAndMicroBatches{2, 2}, {2, 3}, {2, 4}, {3, 2}}) {
    for (const UnitCosts& unit :
         {UnitCosts{1, 1, 1}, UnitCosts{2, 1, 1}, UnitCosts{1, 2, 1}, UnitCosts{1, 1, 2}}) {
      const double best = shortest_step(size, unit, {.in_flight_max = size.micro_batches});
      EXPECT_GE(generated(ScheduleKind::kZbH1, size, unit), best);
      const double filled = generated(ScheduleKind::k1F1B, size, unit, WeightDefer::kUnbounded);
      EXPECT_GE(filled, best);
      ++all;
      reached += filled == best;
    }
  }
  EXPECT_EQ(all, 16);
  EXPECT_GE(reached, 14);
}

}  // namespace
}  // namespace jige::plan

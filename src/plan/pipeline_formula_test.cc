// Simulated steps against the formulas that the literature and the notes give for their length.
// Idle time is per device; f and b are the times of one forward stage and of its backward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/pipeline_lower.h"
#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

struct Size {
  int32_t devices;
  int32_t micro_batches;
  int32_t stages;  // forward stages of a device
};

std::vector<Size> sizes() {
  std::vector<Size> list;
  for (const int32_t p : {1, 2, 3, 4, 7}) {
    for (const int32_t factor : {1, 2, 3}) {
      for (const int32_t v : {1, 2, 3}) list.push_back({p, p * factor, v});
    }
  }
  list.push_back({4, 9, 2});
  list.push_back({3, 10, 4});
  return list;
}

// A forward stage is `blocks_per_stage` blocks of 1; its backward X + W costs 3 times as much, as
// backward passes that recompute do.
ScheduleRequest schedule_request(ScheduleKind kind, const Size& size,
                                 int32_t blocks_per_stage = 1) {
  ScheduleRequest r = natural_request(kind);
  r.devices = size.devices;
  r.micro_batches = size.micro_batches;
  r.forward_stages = r.backward_stages = size.stages;
  r.block_count = size.devices * size.stages * blocks_per_stage;
  return r;
}

constexpr UnitCosts kRecomputing{.forward = 1, .backward_input = 2, .backward_weight = 1};

double idle_of(const ScheduleRequest& request, const UnitCosts& unit) {
  const PipelineSchedule schedule = generate(request);
  const double step = step_seconds(schedule, unit_costs(request.block_count, unit));
  const double work = request.micro_batches * request.block_count / request.devices *
                      (unit.forward + unit.recompute + unit.backward_input + unit.backward_weight);
  return step - work;
}

TEST(PipelineFormula, GPipeAnd1F1BWaitForOneWholeTurn) {
  for (const Size& size : sizes()) {
    for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
      // V blocks in the one stage of a device stand for its V chunks.
      ScheduleRequest r =
          schedule_request(kind, {size.devices, size.micro_batches, 1}, size.stages);
      EXPECT_EQ(idle_of(r, kRecomputing), size.stages * (size.devices - 1) * (1 + 3))
          << request_name(r);
    }
  }
}

TEST(PipelineFormula, StagesDivideTheWait) {
  for (const Size& size : sizes()) {
    for (const ScheduleKind kind :
         {ScheduleKind::kInterleaved, ScheduleKind::kBreadthFirst, ScheduleKind::kMobius}) {
      if (kind == ScheduleKind::kInterleaved && size.micro_batches % size.devices != 0) continue;
      const ScheduleRequest r = schedule_request(kind, size);
      EXPECT_EQ(idle_of(r, kRecomputing), (size.devices - 1) * (1 + 3)) << request_name(r);
    }
  }
}

TEST(PipelineFormula, DecoupledPassesWaitForBackwardAlone) {
  for (const Size& size : sizes()) {
    const ScheduleRequest r = schedule_request(ScheduleKind::kSPipe, size);
    EXPECT_EQ(idle_of(r, kRecomputing), (size.devices - 1) * 3) << request_name(r);
  }
}

TEST(PipelineFormula, SPipeWaitsForTheLongerOfAStageEachWay) {
  for (const Size& size : sizes()) {
    for (const int32_t ratio : {1, 2, 3, 4}) {
      ScheduleRequest r = schedule_request(ScheduleKind::kSPipe, size, ratio);
      r.backward_stages = size.stages * ratio;
      // A forward stage is `ratio` blocks, a backward stage one.
      const double forward = ratio, backward = 3;
      EXPECT_EQ(idle_of(r, kRecomputing), (size.devices - 1) * std::max(forward, backward))
          << request_name(r);
    }
  }
}

TEST(PipelineFormula, SPipeFallsApartBelowAsManyMicroBatchesAsDevices) {
  // Idle goes from 3 to 17; so it is refused. Here the order is lowered without asking.
  ScheduleRequest r = schedule_request(ScheduleKind::kSPipe, {4, 2, 2}, 3);
  r.backward_stages = 6;
  const Result<PipelineSchedule> refused = generate_pipeline(r);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("2 are fewer than 4"), std::string::npos);
  ScheduleRequest enough = r;
  enough.micro_batches = 4;
  Result<PipelineOrder> order = pipeline_stages(enough);
  ASSERT_TRUE(order);
  order->devices = looped_orders(*order, {4, 2});
  PipelineSchedule schedule = generate(enough);
  schedule.micro_batch_count = 2;
  lower_pipeline(*order, 2, schedule);
  EXPECT_TRUE(verify_pipeline(schedule));
  // A forward stage of three blocks costs 1, its backward pass 3, as 6 backward stages see it.
  const UnitCosts unit{.forward = 1.0 / 3, .backward_input = 2.0 / 3, .backward_weight = 1.0 / 3};
  const double work = 2 * 2 * (1 + 3);
  EXPECT_NEAR(step_seconds(schedule, unit_costs(24, unit)) - work, 17, 1e-9);
  EXPECT_NEAR(idle_of(enough, unit), 3, 1e-9);
}

TEST(PipelineFormula, TheTableAtFourAndThirtyTwoDevices) {
  struct Row {
    ScheduleKind kind;
    int32_t blocks_per_stage;
    int32_t backward_ratio;
    double percent_at_4;
    double percent_at_32;
  };
  const Row rows[] = {{ScheduleKind::kGPipe, 2, 1, 27.3, 32.6},
                      {ScheduleKind::k1F1B, 2, 1, 27.3, 32.6},
                      {ScheduleKind::kInterleaved, 1, 1, 15.8, 19.5},
                      {ScheduleKind::kBreadthFirst, 1, 1, 15.8, 19.5},
                      {ScheduleKind::kMobius, 1, 1, 15.8, 19.5},
                      {ScheduleKind::kSPipe, 1, 1, 12.3, 15.4},
                      {ScheduleKind::kSPipe, 3, 3, 4.5, 5.7}};
  for (const Row& row : rows) {
    for (const bool large : {false, true}) {
      const Size size{large ? 32 : 4, large ? 64 : 8, has_stage_choice(row.kind) ? 2 : 1};
      ScheduleRequest r = schedule_request(row.kind, size, row.blocks_per_stage);
      r.backward_stages = size.stages * row.backward_ratio;
      const PipelineSchedule schedule = generate(r);
      const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
      ASSERT_TRUE(graph);
      const PipelineTimes times =
          time_tasks(schedule, *graph, unit_costs(r.block_count, kRecomputing));
      const double bubble = bubble_fraction(split_device_time(schedule, *graph, times));
      EXPECT_NEAR(100 * bubble, large ? row.percent_at_32 : row.percent_at_4, 0.05)
          << request_name(r);
    }
  }
}

TEST(PipelineFormula, MobiusAgainstSPipeInTheNotes) {
  for (const auto& [size, ratio] : {std::pair{Size{4, 8, 2}, 1.134}, {Size{32, 64, 2}, 1.171}}) {
    const ScheduleRequest mobius = schedule_request(ScheduleKind::kMobius, size, 3);
    ScheduleRequest spipe = schedule_request(ScheduleKind::kSPipe, size, 3);
    spipe.backward_stages = 6;
    const PipelineCosts costs = unit_costs(mobius.block_count, kRecomputing);
    EXPECT_NEAR(step_seconds(generate(mobius), costs) / step_seconds(generate(spipe), costs), ratio,
                0.0005);
  }
}

TEST(PipelineFormula, ZbH1LeavesAThirdOfTheWait) {
  for (const UnitCosts unit : {UnitCosts{1, 1, 1}, UnitCosts{2, 2, 2}, UnitCosts{2, 3, 2},
                               UnitCosts{1, 1.5, 0.5}, UnitCosts{2, 2, 1}}) {
    for (const Size& size : sizes()) {
      const ScheduleRequest r =
          schedule_request(ScheduleKind::kZbH1, {size.devices, size.micro_batches, 1});
      EXPECT_EQ(idle_of(r, unit),
                (size.devices - 1) * (unit.forward + unit.backward_input - unit.backward_weight))
          << request_name(r);
    }
  }
  // A third of 1F1B's, where all three cost the same.
  EXPECT_EQ(idle_of(schedule_request(ScheduleKind::kZbH1, {8, 16, 1}), {}) * 3,
            idle_of(schedule_request(ScheduleKind::k1F1B, {8, 16, 1}), {}));
}

TEST(PipelineFormula, ZbVMeetsItsLowerBoundOnNearlyAllSizes) {
  int32_t met = 0, all = 0;
  for (int32_t p = 2; p <= 8; ++p) {
    for (int32_t m = p; m <= 3 * p; ++m) {
      const ScheduleRequest r = schedule_request(ScheduleKind::kZbV, {p, m, 2});
      // No device is without work but for the first F of the last device: P-1 forwards.
      const double over = idle_of(r, {}) - (p - 1);
      EXPECT_GE(over, 0) << request_name(r);
      EXPECT_LE(over, 2) << request_name(r);
      ++all;
      met += over == 0;
    }
  }
  EXPECT_EQ(all, 77);
  EXPECT_GE(met, 74);
}

TEST(PipelineFormula, OutOfOrderBackwardAsInTheNotes) {
  // p, L, m with F = X = W = 1 a layer: GPipe, with fast-forward, with modulo allocation too.
  struct Case {
    int32_t p, layers, m;
  };
  for (const Case& c : {Case{4, 8, 4}, {4, 8, 8}, {4, 16, 8}, {8, 16, 8}}) {
    const int32_t per_device = c.layers / c.p;
    ScheduleRequest r = schedule_request(ScheduleKind::kGPipe, {c.p, c.m, 1}, per_device);
    const double f = per_device, t = 3 * f;
    EXPECT_EQ(idle_of(r, {}), (c.p - 1) * t);
    r.fast_forward = true;
    EXPECT_EQ(idle_of(r, {}), (c.p - 1) * 2 * f);
    for (const WeightDefer defer : {WeightDefer::kOne, WeightDefer::kUnbounded}) {
      r.defer = defer;
      EXPECT_EQ(idle_of(r, {}), (c.p - 1) * 2 * f) << request_name(r);
    }
    ScheduleRequest modulo = schedule_request(ScheduleKind::kBreadthFirst, {c.p, c.m, per_device});
    modulo.fast_forward = true;
    EXPECT_EQ(idle_of(modulo, {}), (c.p - 1) * 2 * f / per_device);
    // W in the waits of 1F1B: the bubble of ZB-H1, without its bound on memory.
    ScheduleRequest filled = schedule_request(ScheduleKind::k1F1B, {c.p, c.m, 1}, per_device);
    filled.defer = WeightDefer::kUnbounded;
    EXPECT_EQ(idle_of(filled, {}), (c.p - 1) * f) << request_name(filled);
  }
}

TEST(PipelineFormula, ALinkBetweenDevicesCostsModuloMore) {
  const auto step = [](ScheduleRequest r) {
    PipelineCosts costs = unit_costs(8);
    costs.rates.link_latency_s = 0.5;
    return step_seconds(generate(r), costs);
  };
  ScheduleRequest r = schedule_request(ScheduleKind::kGPipe, {4, 4, 1}, 2);
  EXPECT_EQ(step(r), 45);
  r.fast_forward = true;
  EXPECT_EQ(step(r), 39);
  ScheduleRequest modulo = schedule_request(ScheduleKind::kBreadthFirst, {4, 4, 2});
  modulo.fast_forward = true;
  EXPECT_EQ(step(modulo), 35);
}

// X before F before W at the grain of layers, four devices of two layers each.
double greedy_makespan(int32_t m, double link, int32_t in_flight_max) {
  PipelineOrder order;
  for (int32_t k = 0; k < 8; ++k) order.forward.push_back({{k, k + 1}, k / 2});
  order.backward = order.forward;
  StageTimes times = uniform_times(order, 1);
  times.link = link;
  const std::optional<GreedyOrders> found =
      greedy_orders(order, {4, m}, times, {.in_flight_max = in_flight_max});
  if (!found) return -1;
  order.devices = found->devices;
  // Replayed: ends of F and X by (layer, micro-batch), devices in turn until nothing moves.
  std::vector<std::vector<double>> f(8, std::vector<double>(static_cast<size_t>(m), -1)), x = f;
  std::vector<size_t> position(4, 0);
  std::vector<double> free_at(4, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t d = 0; d < 4; ++d) {
      while (position[d] < order.devices[d].size()) {
        const OrderOp& op = order.devices[d][position[d]];
        const auto k = static_cast<size_t>(op.stage), b = static_cast<size_t>(op.micro_batch);
        double ready = 0;
        const auto need = [&](double end, bool hop) {
          ready = end < 0 ? INFINITY : std::max(ready, end + (hop ? link : 0));
        };
        if (op.kind == TaskKind::kForward && k > 0) need(f[k - 1][b], k % 2 == 0);
        if (op.kind == TaskKind::kBackwardInput) {
          need(f[k][b], false);
          if (k < 7 && ready < INFINITY) need(x[k + 1][b], k % 2 == 1);
        }
        if (op.kind == TaskKind::kBackwardWeight) need(x[k][b], false);
        if (ready == INFINITY) break;
        free_at[d] = std::max(free_at[d], ready) + 1;
        if (op.kind == TaskKind::kForward) f[k][b] = free_at[d];
        if (op.kind == TaskKind::kBackwardInput) x[k][b] = free_at[d];
        ++position[d];
        moved = true;
      }
    }
  }
  for (size_t d = 0; d < 4; ++d) EXPECT_EQ(position[d], order.devices[d].size());
  return *std::max_element(free_at.begin(), free_at.end());
}

TEST(PipelineFormula, GreedyAsInTheNotes) {
  EXPECT_EQ(greedy_makespan(4, 0, 1000), 30);
  EXPECT_EQ(greedy_makespan(8, 0, 1000), 54);
  EXPECT_EQ(greedy_makespan(4, 0.5, 1000), 33);
  // At most P micro-batches in flight: greedy rules do not reach ZB's 54.
  EXPECT_EQ(greedy_makespan(8, 0, 8), 58);
  // With room for one layer of a device's two it stands still, and says so.
  EXPECT_EQ(greedy_makespan(8, 0, 1), -1);
}

TEST(PipelineFormula, RecomputeBesideItsXStartsBeforeTheGradientArrives) {
  // Apart, R needs no gradient, so the wait is that of a backward pass without it at most.
  for (const Size& size : sizes()) {
    ScheduleRequest r = schedule_request(ScheduleKind::kBreadthFirst, size);
    r.recompute = true;
    const double idle = idle_of(r, {.recompute = 1});
    EXPECT_GE(idle, 0);
    EXPECT_LE(idle, (size.devices - 1) * (1 + 2)) << request_name(r);
  }
}

}  // namespace
}  // namespace jige::plan

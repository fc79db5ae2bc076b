// Plans for devices that are unequal in time and memory, against all ways to cut the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "plan/pipeline_planner.h"
#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

// An embedding with many parameters and little work, layers that differ a little, a heavy head.
PipelineCosts uneven_costs(Rng& rng, int32_t blocks) {
  PipelineCosts costs;
  const auto between = [&](double least, double most) {
    return least + (most - least) * rng.uniform();
  };
  for (int32_t b = 0; b < blocks; ++b) {
    const bool first = b == 0, last = b + 1 == blocks;
    const double seconds = first ? 0.1 : last ? between(1, 2.5) : between(0.9, 1.1);
    const int64_t parameters = first || last ? 3000 : 1000;
    costs.blocks.push_back({.forward_s = seconds,
                            .recompute_s = seconds,
                            .backward_input_s = first ? 0 : seconds,
                            .backward_weight_s = seconds,
                            .parameters = parameters,
                            .parameter_bytes = 2 * parameters,
                            .gradient_bytes = 4 * parameters,
                            .input_bytes = first ? 0 : 100,
                            .saved_bytes = 900,
                            .pending_bytes = 50});
  }
  costs.rates = {.offload_bytes_per_s = 40000,
                 .link_bytes_per_s = 4000,
                 .host_parameters_per_s = 8000,
                 .device_parameters_per_s = 20000};
  costs.workspace_bytes = 500;
  return costs;
}

// Kinds and places that leave nothing to choose but cuts, and when W runs.
TrainPlanRequest random_request(Rng& rng) {
  TrainPlanRequest request;
  request.devices = static_cast<int32_t>(2 + rng.below(2));
  request.costs = uneven_costs(rng, static_cast<int32_t>(6 + rng.below(4)));
  request.micro_batches = {static_cast<int32_t>(request.devices + rng.below(3))};
  request.kinds = {rng.below(2) == 0 ? ScheduleKind::k1F1B : ScheduleKind::kGPipe};
  request.optimizers = {rng.below(2) == 0 ? OptimizerMode::kDevice : OptimizerMode::kSync};
  request.recompute = {rng.below(2) == 0};
  request.host_parameters = {false};
  for (int32_t d = 0; d < request.devices; ++d) {
    request.costs.device_paces.push_back(1 + 2 * rng.uniform());
  }
  return request;
}

void visit_cuts(int32_t blocks, int32_t stages, std::vector<int32_t>& cuts,
                const std::function<void()>& visit) {
  if (std::ssize(cuts) == stages) return visit();
  const int32_t last = blocks - (stages - static_cast<int32_t>(cuts.size()));
  for (int32_t cut = cuts.back() + 1; cut <= last; ++cut) {
    cuts.push_back(cut);
    visit_cuts(blocks, stages, cuts, visit);
    cuts.pop_back();
  }
}

bool is_within(const TrainPrediction& prediction, const MemoryBudget& budget) {
  for (size_t d = 0; d < prediction.bytes_of_devices.size(); ++d) {
    if (prediction.bytes_of_devices[d] > budget.of(d)) return false;
  }
  return true;
}

// The shortest step of all cuts within the budget; infinity where none is.
double best_of_all(const TrainPlanRequest& request) {
  const Result<std::vector<ScheduleRequest>> candidates = train_candidates(request);
  EXPECT_TRUE(candidates);
  double best = INFINITY;
  std::vector<int32_t> cuts = {0};
  visit_cuts(static_cast<int32_t>(request.costs.blocks.size()), request.devices, cuts, [&] {
    for (ScheduleRequest candidate : *candidates) {
      candidate.forward_cuts = cuts;
      if (candidate.defer == WeightDefer::kUnbounded) {
        candidate.times =
            stage_times(*pipeline_stages(candidate), request.costs, candidate.recompute);
      }
      const Result<TrainPrediction> prediction = predict_candidate(request, candidate);
      if (prediction && is_within(*prediction, request.budget)) {
        best = std::min(best, prediction->step_s);
      }
    }
  });
  return best;
}

// What even cuts ask of each device, more or less.
std::vector<int64_t> random_budgets(Rng& rng, const TrainPlanRequest& request) {
  ScheduleRequest even = train_candidates(request)->front();
  even.forward_cuts.clear();
  std::vector<int64_t> budgets;
  const Result<TrainPrediction> prediction = predict_candidate(request, even);
  for (const int64_t bytes : prediction->bytes_of_devices) {
    budgets.push_back(static_cast<int64_t>(static_cast<double>(bytes) * (0.7 + rng.uniform())));
  }
  return budgets;
}

TEST(PlannerOfUnequalDevices, ComesNearTheBestOfAllCuts) {
  Rng rng(derive_key(5, "unequal"));
  int possible = 0, found = 0, best = 0;
  double worst = 1;
  for (int round = 0; round < 40; ++round) {
    TrainPlanRequest request = random_request(rng);
    request.budget.own_bytes = random_budgets(rng, request);
    const double shortest = best_of_all(request);
    const Result<TrainPlan> plan = plan_train(request);
    if (shortest == INFINITY) {
      EXPECT_FALSE(plan);
      continue;
    }
    ++possible;
    if (!plan) continue;
    ++found;
    EXPECT_TRUE(is_within(plan->prediction, request.budget));
    EXPECT_TRUE(verify_pipeline(plan->schedule));
    EXPECT_GE(plan->prediction.step_s, shortest * (1 - 1e-9));
    best += plan->prediction.step_s <= shortest * (1 + 1e-9);
    worst = std::max(worst, plan->prediction.step_s / shortest);
  }
  EXPECT_GT(possible, 26);
  EXPECT_EQ(found, possible);
  EXPECT_GE(best, possible * 9 / 10);
  EXPECT_LE(worst, 1.1);
}

}  // namespace
}  // namespace jige::plan

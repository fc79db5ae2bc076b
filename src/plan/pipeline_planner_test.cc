#include "plan/pipeline_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "plan/pipeline_partition.h"
#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

// An embedding with many parameters and little work, layers, a head with much of both.
PipelineCosts model_costs(int32_t layers) {
  PipelineCosts costs;
  const BlockCost layer{.forward_s = 1,
                        .recompute_s = 1,
                        .backward_input_s = 1,
                        .backward_weight_s = 1,
                        .parameters = 1000,
                        .parameter_bytes = 2000,
                        .gradient_bytes = 2000,
                        .input_bytes = 100,
                        .saved_bytes = 900,
                        .pending_bytes = 50};
  BlockCost embedding = layer;
  embedding.forward_s = embedding.recompute_s = 0.1;
  embedding.backward_input_s = 0;
  embedding.backward_weight_s = 0.1;
  embedding.parameters = 3000;
  embedding.parameter_bytes = embedding.gradient_bytes = 6000;
  embedding.input_bytes = 0;
  BlockCost head = embedding;
  head.forward_s = head.recompute_s = head.backward_input_s = head.backward_weight_s = 1.7;
  head.input_bytes = 100;
  costs.blocks = {embedding};
  costs.blocks.insert(costs.blocks.end(), static_cast<size_t>(layers), layer);
  costs.blocks.push_back(head);
  costs.rates = {.fetch_bytes_per_s = 4000,
                 .offload_bytes_per_s = 4000,
                 .link_bytes_per_s = 4000,
                 .host_parameters_per_s = 800,
                 .device_parameters_per_s = 20000};
  return costs;
}

TrainPlanRequest small_request() {
  TrainPlanRequest request;
  request.costs = model_costs(6);
  request.devices = 2;
  request.micro_batches = {4};
  request.stages_max = 3;
  return request;
}

// Every candidate's predictions, none skipped.
std::vector<TrainPrediction> predict_all(const TrainPlanRequest& request) {
  std::vector<TrainPrediction> predictions;
  const Result<std::vector<ScheduleRequest>> candidates = train_candidates(request);
  EXPECT_TRUE(candidates);
  for (const ScheduleRequest& candidate : *candidates) {
    Result<TrainPrediction> prediction = predict_candidate(request, candidate);
    EXPECT_TRUE(prediction);
    predictions.push_back(std::move(*prediction));
  }
  return predictions;
}

int64_t least_device_bytes(const std::vector<TrainPrediction>& predictions) {
  int64_t least = INT64_MAX;
  for (const TrainPrediction& prediction : predictions) {
    least = std::min(least, prediction.device_bytes);
  }
  return least;
}

double fastest_within(const std::vector<TrainPrediction>& predictions, const MemoryBudget& budget) {
  double seconds = INFINITY;
  for (const TrainPrediction& prediction : predictions) {
    if (prediction.device_bytes > budget.device_bytes) continue;
    if (prediction.host_bytes > budget.host_bytes) continue;
    seconds = std::min(seconds, prediction.seconds_per_micro_batch);
  }
  return seconds;
}

TEST(Planner, ChoosesTheBestOfAllCandidatesUnderEveryBudget) {
  TrainPlanRequest request = small_request();
  request.micro_batches = {2, 3};
  const std::vector<TrainPrediction> all = predict_all(request);
  double slowest = 0;
  for (const double factor : {1.0, 1.4, 3.0, 1000.0}) {
    request.budget.device_bytes =
        static_cast<int64_t>(static_cast<double>(least_device_bytes(all)) * factor);
    const Result<TrainPlan> plan = plan_train(request);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->prediction.seconds_per_micro_batch, fastest_within(all, request.budget));
    EXPECT_LE(plan->prediction.device_bytes, request.budget.device_bytes);
    EXPECT_TRUE(verify_pipeline(plan->schedule));
    EXPECT_FALSE(plan->binding.empty());
    // More memory never makes a plan slower.
    if (slowest > 0) {
      EXPECT_LE(plan->prediction.seconds_per_micro_batch, slowest);
    }
    slowest = plan->prediction.seconds_per_micro_batch;
  }
}

TEST(Planner, TellsHowFarItIs) {
  TrainPlanRequest request = small_request();
  request.stages_max = 2;
  request.micro_batches = {2};
  request.budget.device_bytes = 1;
  std::vector<int64_t> parts;
  int64_t whole = 0;
  const PlanListener listener = [&](int64_t done, int64_t total) {
    parts.push_back(done);
    whole = total;
  };
  ASSERT_FALSE(plan_train(request, listener));
  // Where nothing fits, times and memory of every candidate are looked at.
  ASSERT_EQ(std::ssize(parts), 2 * std::ssize(*train_candidates(request)));
  EXPECT_EQ(whole, std::ssize(parts));
  EXPECT_EQ(parts.back(), whole);
  EXPECT_TRUE(std::ranges::is_sorted(parts));
  parts.clear();
  ASSERT_TRUE(plan_each_kind(request, listener));
  ASSERT_FALSE(parts.empty());
  EXPECT_LE(parts.back(), whole);  // the last kinds may have no candidates
  EXPECT_TRUE(std::ranges::is_sorted(parts));
}

TEST(Planner, AByteLessThanNeededIsRefusedAndTheMessageSaysHowMuchToRaise) {
  TrainPlanRequest request = small_request();
  request.stages_max = 2;
  request.micro_batches = {2};
  request.budget.device_bytes = least_device_bytes(predict_all(request));
  EXPECT_TRUE(plan_train(request));
  --request.budget.device_bytes;
  const Result<TrainPlan> refused = plan_train(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find(fmt::format("raise the device budget by 1 bytes, to {}",
                                                     request.budget.device_bytes + 1)),
            std::string::npos)
      << refused.error().message;
}

TEST(Planner, TheHostBudgetCountsToTheByteToo) {
  TrainPlanRequest request = small_request();
  request.stages_max = 2;
  request.clip = ClipMode::kNone;  // which keeps no images
  request.host_parameters = {true};
  const Result<TrainPlan> free = plan_train(request);
  ASSERT_TRUE(free) << free.error().message;
  // Everything on the host: parameters, gradients and 12 bytes of state for each of them.
  const int64_t parameters = 2 * 3000 + 6 * 1000;
  EXPECT_EQ(free->prediction.host_bytes, parameters * (2 + 2 + 12));
  request.budget.host_bytes = free->prediction.host_bytes;
  EXPECT_TRUE(plan_train(request));
  --request.budget.host_bytes;
  const Result<TrainPlan> refused = plan_train(request);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("raise the host budget by 1 bytes"), std::string::npos)
      << refused.error().message;
}

// Devices that are this machine's processors share its memory with the host.
TEST(Planner, WhatAllShareCountsToTheByteToo) {
  TrainPlanRequest request = small_request();
  request.stages_max = 2;
  request.micro_batches = {2};
  int64_t least = INT64_MAX;
  for (const TrainPrediction& prediction : predict_all(request)) {
    EXPECT_LE(prediction.total_bytes,
              prediction.host_bytes + request.devices * prediction.device_bytes);
    EXPECT_GE(prediction.total_bytes, prediction.host_bytes + prediction.device_bytes);
    least = std::min(least, prediction.total_bytes);
  }
  request.budget.total_bytes = least;
  const Result<TrainPlan> plan = plan_train(request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->prediction.total_bytes, least);
  --request.budget.total_bytes;
  const Result<TrainPlan> refused = plan_train(request);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("raise the total budget by 1 bytes"), std::string::npos)
      << refused.error().message;
}

TEST(Planner, EveryPlanCanTakeAStepBackUnlessToldOtherwise) {
  TrainPlanRequest request = small_request();
  const auto candidates = train_candidates(request);
  ASSERT_TRUE(candidates);
  bool speculates = false;
  for (const ScheduleRequest& candidate : *candidates) {
    const bool async = candidate.optimizer == OptimizerMode::kAsync;
    EXPECT_EQ(candidate.clip, async ? ClipMode::kSpeculate : ClipMode::kExact);
    speculates = speculates || async;
  }
  EXPECT_TRUE(speculates);
}

TEST(Planner, OffloadsWhenTheStateDoesNotFitAndSaysWhatMemoryWouldBuy) {
  TrainPlanRequest request = small_request();
  const Result<TrainPlan> roomy = plan_train(request);
  ASSERT_TRUE(roomy);
  EXPECT_FALSE(roomy->choice.host_parameters);
  EXPECT_EQ(roomy->binding.find("memory"), std::string::npos) << roomy->binding;
  // A quarter of the state of the model, on each of two devices.
  request.budget.device_bytes = (2 * 3000 + 6 * 1000) * 16 / 4;
  const Result<TrainPlan> tight = plan_train(request);
  ASSERT_TRUE(tight) << tight.error().message;
  EXPECT_NE(tight->choice.optimizer, OptimizerMode::kDevice);
  EXPECT_GT(tight->prediction.step_s, roomy->prediction.step_s);
  EXPECT_TRUE(tight->binding.starts_with("memory: ")) << tight->binding;
  EXPECT_NE(tight->binding.find("raise the device budget by"), std::string::npos);
}

TEST(Planner, BalancesStagesByCostNotByCount) {
  TrainPlanRequest request = small_request();
  request.kinds = {ScheduleKind::k1F1B};
  request.recompute = {false};
  const Result<TrainPlan> plan = plan_train(request);
  ASSERT_TRUE(plan);
  std::vector<double> work;
  for (const BlockCost& block : request.costs.blocks) {
    work.push_back(block.forward_s + block.backward_input_s + block.backward_weight_s);
  }
  const Result<Partition> even = balance_stages(work, 2);
  EXPECT_EQ(plan->choice.forward_cuts, even->cuts);
  EXPECT_EQ(plan->choice.forward_cuts, (std::vector<int32_t>{0, 5}));  // not 4: the head is heavy
}

TEST(Planner, StagesEachWayAreChosenApart) {
  // Backward passes cost three times as much: three backward stages for a forward stage.
  TrainPlanRequest request;
  request.devices = 2;
  request.micro_batches = {4};
  request.costs = unit_costs(12, {.forward = 1, .backward_input = 2, .backward_weight = 1});
  request.kinds = {ScheduleKind::kSPipe};
  request.stages_max = 6;
  const Result<TrainPlan> plan = plan_train(request);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GT(plan->choice.backward_stages, plan->choice.forward_stages);
}

TEST(Planner, ShowsEveryKindOrWhyItDoesNotRun) {
  TrainPlanRequest request = small_request();
  request.micro_batches = {3};
  const Result<std::vector<KindOutcome>> outcomes = plan_each_kind(request);
  ASSERT_TRUE(outcomes);
  ASSERT_EQ(outcomes->size(), static_cast<size_t>(kScheduleKindCount));
  const Result<TrainPlan> best = plan_train(request);
  double fastest = INFINITY;
  for (const KindOutcome& outcome : *outcomes) {
    EXPECT_EQ(outcome.best.has_value(), outcome.refusal.empty());
    if (outcome.best) fastest = std::min(fastest, outcome.prediction.seconds_per_micro_batch);
    if (outcome.kind == ScheduleKind::kInterleaved) {
      EXPECT_NE(outcome.refusal.find("no multiple of 2 devices"), std::string::npos)
          << outcome.refusal;
    }
    if (outcome.kind == ScheduleKind::kZeroOffload) {
      EXPECT_FALSE(outcome.best);
    }
  }
  EXPECT_EQ(fastest, best->prediction.seconds_per_micro_batch);
}

TEST(Planner, RefusesWhatMakesNoSense) {
  TrainPlanRequest request = small_request();
  request.devices = 9;  // more than blocks
  EXPECT_EQ(plan_train(request).error().code, Code::kInvalidArgument);
  request.devices = 0;
  EXPECT_EQ(plan_train(request).error().code, Code::kInvalidArgument);
  request = small_request();
  request.micro_batches.clear();
  EXPECT_EQ(plan_train(request).error().code, Code::kInvalidArgument);
  request = small_request();
  request.costs.blocks[2].forward_s = -1;
  EXPECT_NE(plan_train(request).error().message.find("block 2: forward_s is -1"),
            std::string::npos);
  request = small_request();
  request.costs.rates.fetch_bytes_per_s = 0;
  EXPECT_NE(plan_train(request).error().message.find("fetch_bytes_per_s"), std::string::npos);
}

TEST(Planner, SaysWhyNothingIsPossible) {
  const auto why = [](const TrainPlanRequest& request) {
    const auto plan = plan_train(request);
    EXPECT_FALSE(plan);
    return plan ? std::string() : plan.error().message;
  };
  TrainPlanRequest request = small_request();
  request.devices = 100;
  EXPECT_NE(why(request).find("100 stages (100 devices with 1 each) need as many blocks"),
            std::string::npos)
      << why(request);
  request = small_request();
  request.micro_batches = {1 << 20};
  EXPECT_NE(why(request).find("tasks; take fewer of either"), std::string::npos) << why(request);
  request = small_request();
  request.kinds = {ScheduleKind::kBreadthFirst};
  request.host_parameters = {true};
  EXPECT_NE(why(request).find("is mobius; ask for that"), std::string::npos) << why(request);
}

TEST(PipelineCosts, SurviveJson) {
  PipelineCosts costs = model_costs(3);
  costs.staging_bytes = 4096;
  const Result<Json> json = parse_json(dump_json(costs_to_json(costs)), "costs");
  ASSERT_TRUE(json);
  const Result<PipelineCosts> back = costs_from_json(*json, "costs");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(dump_json(costs_to_json(*back)), dump_json(*json));
  EXPECT_EQ(back->staging_bytes, 4096);
  const Result<Json> repeated =
      parse_json(R"({"blocks": [{"forward_s": 2, "count": 3}], "rates": {}})", "costs");
  const Result<PipelineCosts> three = costs_from_json(*repeated, "costs");
  ASSERT_TRUE(three);
  EXPECT_EQ(three->blocks.size(), 3u);
  EXPECT_TRUE(std::isinf(three->rates.fetch_bytes_per_s));
  const auto refused = [](const char* text) {
    const Result<Json> parsed = parse_json(text, "costs");
    return costs_from_json(*parsed, "costs").error().message;
  };
  EXPECT_NE(refused(R"({"blocks": []})").find("must be a list of block costs"), std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{"count": 0}]})").find("count is 0"), std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{}, {"count": 9223372036854775807}]})").find("1 to 1024 blocks"),
            std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{"saved_bytes": -4}]})").find("saved_bytes is -4"),
            std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{}], "staging_bytes": -1})").find("staging_bytes is -1"),
            std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{"forward_s": 1e300}]})").find("forward_s is 1e+300"),
            std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{}], "rates": {"link_bytes_per_s": 1e-300}})")
                .find("link_bytes_per_s is 1e-300"),
            std::string::npos);
  EXPECT_NE(refused(R"({"blocks": [{}], "rates": {"link_latency_s": -1}})").find("link_latency_s"),
            std::string::npos);
}

TEST(PipelineCosts, DamagedFilesAreRefusedOrPlanned) {
  const std::string text = dump_json(costs_to_json(model_costs(2)));
  int planned = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(600); ++seed) {
    const Result<Json> json = parse_json(Mutator(seed).mutate(text), "costs");
    if (!json) continue;
    const Result<PipelineCosts> costs = costs_from_json(*json, "costs.json");
    if (!costs) {
      ASSERT_EQ(costs.error().message.find("costs.json"), 0u) << seed;
      continue;
    }
    if (costs->blocks.size() > 8) continue;
    TrainPlanRequest request = small_request();
    request.costs = *costs;
    request.micro_batches = {2};
    request.stages_max = 2;
    planned += plan_train(request).has_value();
  }
  EXPECT_GT(planned, 10);
}

// What is misspelt, or no object, would else be free.
TEST(PipelineCosts, NamesThatAreNotKnownAreRefused) {
  for (const auto& [text, said] :
       {std::pair(R"({"blocks": [{}], "rates": [1, 2]})", "rates: must be an object"),
        std::pair(R"({"blocks": [{}], "rates": {"fetch_gb_per_s": 1}})",
                  "\"fetch_gb_per_s\" is not"),
        std::pair(R"({"blocks": [{"forwards_s": 1}]})", "blocks[0]: field \"forwards_s\" is not"),
        std::pair(R"({"blocks": [{}], "rate": {}})", "\"rate\" is not known")}) {
    const Result<Json> parsed = parse_json(text, "costs");
    const Result<PipelineCosts> costs = costs_from_json(*parsed, "costs");
    ASSERT_FALSE(costs) << text;
    EXPECT_NE(costs.error().message.find(said), std::string::npos) << costs.error().message;
  }
  EXPECT_TRUE(costs_from_json(*parse_json(R"({"blocks": [{}], "rates": null})", "costs"), "costs"));
}

}  // namespace
}  // namespace jige::plan

#include "train/measured_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "plan/pipeline_graph.h"
#include "plan/pipeline_simulate.h"
#include "train/pipeline_costs.h"
#include "train/pipeline_plan.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

constexpr int64_t kMeasuredTokens = 64;

std::unique_ptr<const model::Architecture> model_of(int64_t layers, bool tied = false) {
  formats::ModelConfig config = tiny_config();
  config.layer_count = layers;
  config.tied_embeddings = tied;
  return *model::Architecture::create(config);
}

plan::PipelineCosts counted_costs(const model::Architecture& architecture) {
  return pipeline_costs(architecture, {.position_count = 32},
                        {.micro_batch_tokens = kMeasuredTokens,
                         .micro_batches = 2,
                         .rates = {.fetch_bytes_per_s = 1e9,
                                   .offload_bytes_per_s = 1e9,
                                   .link_bytes_per_s = 1e9,
                                   .host_parameters_per_s = 1e9,
                                   .device_parameters_per_s = 1e9}});
}

// Times that no count would give: layers 3, 5, 7 and 9 times what was counted, ends of their own.
void set_true_times(plan::PipelineCosts& costs) {
  for (size_t b = 0; b < costs.blocks.size(); ++b) {
    plan::BlockCost& block = costs.blocks[b];
    if (b == 0 || b + 1 == costs.blocks.size()) {
      block.forward_s = b == 0 ? 0.001 : 0.02;
      block.recompute_s = b == 0 ? 0.002 : 0.03;
      block.backward_input_s = b == 0 ? 0 : 0.04;
      block.backward_weight_s = b == 0 ? 0.005 : 0.05;
      continue;
    }
    block.forward_s *= 3;
    block.recompute_s *= 5;
    block.backward_input_s *= 7;
    block.backward_weight_s *= 9;
  }
  costs.rates = {.fetch_bytes_per_s = 2e8,
                 .offload_bytes_per_s = 3e8,
                 .link_bytes_per_s = 4e8,
                 .host_parameters_per_s = 5e7,
                 .device_parameters_per_s = 5e7};
}

// The spans that tasks of `schedule` have if they take what `costs` (of the whole model) say.
std::vector<TaskSpan> spans_of(const plan::PipelineSchedule& schedule, plan::PipelineCosts costs) {
  const plan::BlockCost head = costs.blocks.back();
  costs.blocks.resize(static_cast<size_t>(schedule.block_count));
  costs.blocks.back() = head;
  const auto graph = plan::PipelineGraph::create(schedule);
  const plan::PipelineTimes times = plan::time_tasks(schedule, *graph, costs);
  std::vector<TaskSpan> spans;
  for (size_t i = 0; i < times.start.size(); ++i) {
    spans.push_back({.start_ns = std::llround(times.start[i] * 1e9),
                     .end_ns = std::llround(times.end[i] * 1e9)});
  }
  return spans;
}

TEST(MeasuredCosts, AreThoseThatTasksTook) {
  for (const int32_t devices : {1, 2, 3, 4}) {
    for (const bool tied : {false, true}) {
      const auto architecture = model_of(10, tied);
      const plan::PipelineCosts counted = counted_costs(*architecture);
      plan::PipelineCosts wanted = counted;
      set_true_times(wanted);
      const auto schedule = measuring_schedule(counted, devices);
      ASSERT_TRUE(schedule) << schedule.error().message;
      EXPECT_EQ(schedule->device_count, devices);
      const std::vector<std::vector<TaskSpan>> steps(2, spans_of(*schedule, wanted));
      const plan::PipelineCosts found = costs_from_spans(counted, *schedule, steps);
      ASSERT_EQ(found.blocks.size(), wanted.blocks.size());
      for (size_t b = 0; b < found.blocks.size(); ++b) {
        const plan::BlockCost &is = found.blocks[b], &should = wanted.blocks[b];
        EXPECT_NEAR(is.forward_s, should.forward_s, 1e-8) << b;
        EXPECT_NEAR(is.recompute_s, should.recompute_s, 1e-8) << b;
        EXPECT_NEAR(is.backward_input_s, should.backward_input_s, 1e-8) << b;
        EXPECT_NEAR(is.backward_weight_s, should.backward_weight_s, 1e-8) << b;
        EXPECT_EQ(is.parameter_bytes, counted.blocks[b].parameter_bytes);
        EXPECT_EQ(is.saved_bytes, counted.blocks[b].saved_bytes);
      }
      EXPECT_NEAR(found.rates.fetch_bytes_per_s / 2e8, 1, 1e-3);
      EXPECT_NEAR(found.rates.offload_bytes_per_s / 3e8, 1, 1e-3);
      EXPECT_NEAR(found.rates.host_parameters_per_s / 5e7, 1, 1e-3);
      EXPECT_EQ(found.rates.device_parameters_per_s, found.rates.host_parameters_per_s);
      // One device sends nothing: what was assumed stays.
      EXPECT_NEAR(found.rates.link_bytes_per_s / (devices == 1 ? 1e9 : 4e8), 1, 1e-3);
    }
  }
}

TEST(MeasuredCosts, SmallModelsAreMeasuredOnFewerBlocks) {
  for (const int32_t devices : {1, 2, 3, 8}) {
    for (const int64_t layers : {1, 2, 3}) {
      const plan::PipelineCosts counted = counted_costs(*model_of(layers));
      const auto schedule = measuring_schedule(counted, devices);
      ASSERT_TRUE(schedule) << schedule.error().message;
      EXPECT_GE(schedule->block_count, 3);
      EXPECT_LE(schedule->block_count, layers + 2);
    }
  }
}

TEST(MeasuredCosts, TellHowFarTheTimingIsAndStopWhenTold) {
  const auto architecture = model_of(4);
  std::vector<std::pair<int64_t, int64_t>> told;
  MeasureOptions options{.devices = 2,
                         .micro_batch_tokens = kMeasuredTokens,
                         .context = 32,
                         .steps = 1,
                         .progress = [&told](int64_t done, int64_t total) {
                           told.emplace_back(done, total);
                           return true;
                         }};
  ASSERT_TRUE(measure_costs(*architecture, counted_costs(*architecture), options));
  EXPECT_EQ(told, (std::vector<std::pair<int64_t, int64_t>>{{0, 2}, {1, 2}}));
  options.progress = [](int64_t done, int64_t) { return done == 0; };
  const auto stopped = measure_costs(*architecture, counted_costs(*architecture), options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kCancelled);
}

TEST(MeasuredCosts, OfARealRunArePositiveAndPlannable) {
  const auto architecture = model_of(4);
  const plan::PipelineCosts counted = counted_costs(*architecture);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const auto found = measure_costs(*architecture, counted,
                                     {.devices = 2,
                                      .micro_batch_tokens = kMeasuredTokens,
                                      .context = 32,
                                      .compute = compute,
                                      .steps = 1});
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(plan::check_costs(*found, 6));
    for (const plan::BlockCost& block : found->blocks) {
      EXPECT_GT(block.forward_s, 0);
      EXPECT_GT(block.backward_weight_s, 0);
    }
    EXPECT_TRUE(std::isfinite(found->rates.fetch_bytes_per_s));
    EXPECT_NE(found->rates.fetch_bytes_per_s, counted.rates.fetch_bytes_per_s);
    EXPECT_NE(found->rates.host_parameters_per_s, counted.rates.host_parameters_per_s);
  }
}

// A GPU that takes longer is told from the others by what its layers took; others are as planned.
TEST(MeasuredCosts, GiveEachGpuItsPace) {
  const auto architecture = model_of(10);
  const plan::PipelineCosts counted = counted_costs(*architecture);
  for (const auto& [gpus, paces] : {std::pair(2, std::vector<double>{1, 3, 1, 3}),
                                    std::pair(3, std::vector<double>{1, 1, 0.5, 1, 1, 0.5})}) {
    const auto devices = static_cast<int32_t>(paces.size());
    plan::PipelineCosts wanted = counted;
    set_true_times(wanted);
    wanted.device_paces = paces;
    const auto schedule = measuring_schedule(counted, devices);
    ASSERT_TRUE(schedule) << schedule.error().message;
    ASSERT_EQ(schedule->device_count, devices);
    const std::vector<std::vector<TaskSpan>> steps(2, spans_of(*schedule, wanted));
    const plan::PipelineCosts found = costs_from_spans(
        counted, *schedule, steps, {.devices = devices, .gpu_count = static_cast<size_t>(gpus)});
    ASSERT_EQ(found.device_paces.size(), paces.size());
    // What a block takes on a device is what it took, whatever it takes of others.
    for (int32_t d = 0; d < devices; ++d) {
      for (size_t b = 0; b < found.blocks.size(); ++b) {
        EXPECT_NEAR(found.blocks[b].forward_s * found.pace(d) /
                        (wanted.blocks[b].forward_s * wanted.pace(d)),
                    1, 1e-3)
            << gpus << " GPUs, device " << d << ", block " << b;
      }
    }
  }
}

TEST(MeasuredCosts, TakeSmallDifferencesOfGpusForChance) {
  const auto architecture = model_of(10);
  const plan::PipelineCosts counted = counted_costs(*architecture);
  plan::PipelineCosts wanted = counted;
  set_true_times(wanted);
  wanted.device_paces = {1, 1.08};
  const auto schedule = measuring_schedule(counted, 2);
  const std::vector<std::vector<TaskSpan>> steps(2, spans_of(*schedule, wanted));
  EXPECT_TRUE(costs_from_spans(counted, *schedule, steps, {.devices = 2, .gpu_count = 2})
                  .device_paces.empty());
  wanted.device_paces = {1, 1.2};
  const std::vector<std::vector<TaskSpan>> slower(2, spans_of(*schedule, wanted));
  EXPECT_FALSE(costs_from_spans(counted, *schedule, slower, {.devices = 2, .gpu_count = 2})
                   .device_paces.empty());
  // Logical devices of one processor, or of one GPU, have none.
  EXPECT_TRUE(costs_from_spans(counted, *schedule, slower, {.devices = 2}).device_paces.empty());
}

// A plan carries the costs it was made from, so a run of another shape is told apart from it.
TEST(MeasuredCosts, OfAnotherModelAreRefusedByTheirBytes) {
  const auto architecture = model_of(4);
  const model::WeightsOptions weights{.position_count = 32};
  const PipelineDemand demand{.architecture = *architecture,
                              .weights = weights,
                              .micro_batch_tokens = kMeasuredTokens,
                              .micro_batches = 2};
  auto made = plan_pipeline({.devices = 2, .times = TimesSource::kAssumed}, demand);
  ASSERT_TRUE(made) << made.error().message;
  PipelineOptions options{.devices = 2, .schedule = made->schedule, .times = TimesSource::kGiven};
  options.costs = made->costs;
  options.costs->blocks[2].forward_s = 123;
  options.source = "plan.json";
  const auto same = plan_pipeline(options, demand);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->costs.blocks[2].forward_s, 123);
  EXPECT_GT(same->step_s, 123);
  options.costs->blocks[2].parameters += 16;
  const auto other = plan_pipeline(options, demand);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("block 2 has"), std::string::npos) << other.error().message;
  options.costs = made->costs;
  options.costs->blocks.pop_back();
  const auto shorter = plan_pipeline(options, demand);
  ASSERT_FALSE(shorter);
  EXPECT_EQ(shorter.error().code, Code::kInvalidArgument);
  EXPECT_NE(shorter.error().message.find("costs of 5 blocks"), std::string::npos)
      << shorter.error().message;
}

}  // namespace
}  // namespace jige::train

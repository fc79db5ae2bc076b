#include "train/pipeline_record.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "plan/pipeline_generate.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

PipelineRecord example(size_t steps) {
  PipelineRecord record;
  record.schedule = *plan::generate_pipeline({.kind = plan::ScheduleKind::kMobius,
                                              .devices = 2,
                                              .micro_batches = 2,
                                              .block_count = 4,
                                              .forward_stages = 2,
                                              .backward_stages = 2,
                                              .host_parameters = true,
                                              .recompute = true,
                                              .optimizer = plan::OptimizerMode::kSync});
  record.costs.blocks.assign(4, {.forward_s = 1e-3,
                                 .recompute_s = 1e-3,
                                 .backward_input_s = 1e-3,
                                 .backward_weight_s = 1e-3,
                                 .parameters = 100,
                                 .parameter_bytes = 400,
                                 .gradient_bytes = 400,
                                 .input_bytes = 64});
  record.costs.rates.fetch_bytes_per_s = 1e6;
  record.memory = {.device_budget_bytes = {1000, 1000},
                   .device_planned_bytes = {900, 800},
                   .device_peak_bytes = {899, 799},
                   .host_planned_bytes = 5000,
                   .host_peak_bytes = 4999};
  std::vector<TaskSpan> spans;
  for (size_t i = 0; i < record.schedule.tasks.size(); ++i) {
    spans.push_back(
        {.start_ns = static_cast<int64_t>(i) * 10, .end_ns = static_cast<int64_t>(i) * 10 + 15});
  }
  for (size_t i = 0; i < steps; ++i) record.add_step(static_cast<int64_t>(i) + 1, spans);
  return record;
}

TEST(PipelineRecord, OlderOnesHaveOneBudgetForAllDevices) {
  Json json = pipeline_record_json(example(1));
  json["memory"]["device_budget_bytes"] = 1234;
  const auto back = pipeline_record_from_json(json, "pipeline.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->memory.device_budget_bytes, (std::vector<int64_t>{1234, 1234}));
  json["costs"]["device_paces"] = {1, 2, 3};
  const auto refused = pipeline_record_from_json(json, "pipeline.json");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("device_paces has 3 of them for 2 devices"),
            std::string::npos)
      << refused.error().message;
}

TEST(PipelineRecord, ComesBackAsItWas) {
  const TestFolder folder;
  const PipelineRecord record = example(2);
  const std::string path = folder.file("pipeline.json");
  ASSERT_TRUE(write_pipeline_record(path, record));
  const auto back = read_pipeline_record(path);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_TRUE(back->schedule == record.schedule);
  EXPECT_EQ(dump_json(pipeline_record_json(*back)), dump_json(pipeline_record_json(record)));
  ASSERT_EQ(back->steps.size(), 2u);
  EXPECT_EQ(back->steps[1].step, 2);
  EXPECT_EQ(back->steps[1].spans[3].start_ns, 30);
  EXPECT_EQ(back->memory.device_peak_bytes, record.memory.device_peak_bytes);
  const Json json = pipeline_record_json(record);
  const auto graph = plan::PipelineGraph::create(record.schedule);
  EXPECT_EQ(json["predicted_step_s"].get<double>(),
            plan::time_tasks(record.schedule, *graph, record.costs).step_s);
}

TEST(PipelineRecord, KeepsTheLastSteps) {
  const PipelineRecord record = example(10);
  ASSERT_EQ(record.steps.size(), 3u);
  EXPECT_EQ(record.steps.front().step, 8);
  EXPECT_EQ(record.steps.back().step, 10);
}

TEST(PipelineRecord, WhatOnlyWaitsHasNoLength) {
  const PipelineRecord record = example(1);
  const plan::PipelineTimes times = measured_times(record.schedule, record.steps[0].spans);
  int waits = 0;
  for (size_t i = 0; i < record.schedule.tasks.size(); ++i) {
    const plan::TaskKind kind = record.schedule.tasks[i].kind;
    const bool wait = kind == plan::TaskKind::kRelease || kind == plan::TaskKind::kBarrier ||
                      plan::is_receive(kind);
    waits += wait;
    EXPECT_NEAR(times.end[i] - times.start[i], wait ? 0 : 15e-9, 1e-15);
  }
  EXPECT_GT(waits, 0);
  EXPECT_EQ(times.step_s, times.end.back());
}

TEST(PipelineRecord, NamesTheFieldThatIsWrong) {
  const Json good = pipeline_record_json(example(1));
  ASSERT_TRUE(pipeline_record_from_json(good, "r"));
  const auto refused = [&](const std::function<void(Json&)>& spoil, Code code,
                           const std::string& part) {
    Json json = good;
    spoil(json);
    const auto result = pipeline_record_from_json(json, "r");
    ASSERT_FALSE(result) << part;
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  };
  refused([](Json& j) { j["version"] = 2; }, Code::kUnsupported, "version 2");
  refused([](Json& j) { j.erase("costs"); }, Code::kNotFound, "costs");
  refused([](Json& j) { j["steps"] = 3; }, Code::kCorrupt, "steps");
  refused([](Json& j) { j["steps"][0]["spans_ns"].erase(0); }, Code::kCorrupt, "one a task");
  refused([](Json& j) { j["steps"][0]["spans_ns"][2] = {5, 4}; }, Code::kCorrupt, "spans_ns[2]");
  refused([](Json& j) { j["steps"][0]["spans_ns"][2] = {-5, 4}; }, Code::kCorrupt, "spans_ns[2]");
  refused([](Json& j) { j["steps"][0] = 1; }, Code::kCorrupt, "steps[0]");
  refused([](Json& j) { j["memory"]["device_peak_bytes"].erase(0); }, Code::kCorrupt, "2 devices");
  refused([](Json& j) { j["memory"]["host_peak_bytes"] = -1; }, Code::kCorrupt, "host_peak_bytes");
  refused([](Json& j) { j["costs"]["blocks"].erase(0); }, Code::kInvalidArgument, "costs");
  refused([](Json& j) { j["schedule"]["tasks"].erase(5); }, Code::kCorrupt, "schedule");
  refused(
      [](Json& j) {
        j["schedule"]["micro_batches"] = 1 << 20;
        j["schedule"]["blocks"] = 1024;
        j["costs"]["blocks"] = {{{"count", 1024}}};
      },
      Code::kCorrupt, "schedule");
  refused([](Json& j) { j = 3; }, Code::kCorrupt, "object");
}

TEST(PipelineRecord, HasBytesThatCanBeCounted) {
  PipelineRecord record;
  record.schedule = *plan::generate_pipeline(
      {.kind = plan::ScheduleKind::kGPipe, .micro_batches = 1400, .block_count = 1024});
  const auto bytes_of_all = [&](int64_t bytes) {
    record.costs.blocks.assign(
        1024, {.input_bytes = bytes, .saved_bytes = bytes, .pending_bytes = bytes});
  };
  bytes_of_all(int64_t{1} << 38);
  record.memory = {.device_planned_bytes = {0}, .device_peak_bytes = {0}};
  ASSERT_TRUE(pipeline_record_from_json(pipeline_record_json(record), "r"));
  bytes_of_all(int64_t{1} << 40);
  const auto result = pipeline_record_from_json(pipeline_record_json(record), "r");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kInvalidArgument);
  EXPECT_NE(result.error().message.find("r: costs: the buffers of a step have"), std::string::npos);
}

TEST(PipelineRecord, SurvivesAnyDamage) {
  const std::string good = dump_json(pipeline_record_json(example(1)));
  Rng rng(11);
  for (uint64_t round = 0; round < fuzz_rounds(300); ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) text[rng.below(text.size())] = "0,{}[]\"-a9"[rng.below(10)];
    const auto json = parse_json(text, "damaged");
    if (json) static_cast<void>(pipeline_record_from_json(*json, "damaged"));
  }
}

}  // namespace
}  // namespace jige::train

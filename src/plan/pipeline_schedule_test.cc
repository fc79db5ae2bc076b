#include "plan/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "plan/pipeline_schedule_json.h"
#include "plan/pipeline_svg.h"
#include "plan/pipeline_test_support.h"

namespace jige::plan {
namespace {

TEST(PipelineSchedule, SurvivesJson) {
  const std::vector<ScheduleRequest> requests = all_requests(2, 2);
  for (size_t i = 0; i < requests.size(); i += 11) {
    const PipelineSchedule schedule = generate(requests[i]);
    const Result<Json> json = parse_json(dump_json(schedule_to_json(schedule)), "plan.json");
    ASSERT_TRUE(json);
    const Result<PipelineSchedule> back = schedule_from_json(*json, "plan.json");
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, schedule);
  }
}

TEST(PipelineSchedule, NamesWhatIsWrongInJson) {
  const PipelineSchedule schedule = generate({.kind = ScheduleKind::kGPipe, .block_count = 1});
  const auto message = [&](auto change) -> std::string {
    Json json = schedule_to_json(schedule);
    change(json);
    const Result<PipelineSchedule> read = schedule_from_json(json, "p");
    return read ? "" : read.error().message;
  };
  const auto expect = [&](auto change, std::string_view part) {
    EXPECT_NE(message(change).find(part), std::string::npos) << message(change) << " / " << part;
  };
  expect([](Json& j) { j["version"] = 2; }, "reads jige.pipeline-schedule version 1");
  expect([](Json& j) { j["devices"] = 0; }, "\"devices\" is 0");
  expect([](Json& j) { j["tasks"][0]["kind"] = "G"; }, "tasks[0]: field \"kind\" is \"G\"");
  expect([](Json& j) { j["tasks"][0]["device"] = 1; }, "\"device\" is 1");
  expect([](Json& j) { j["tasks"][0].erase("device"); }, "every task but a barrier has a device");
  expect([](Json& j) { j["tasks"][0]["blocks"] = {0, 2}; }, "do not fit a model of 1 blocks");
  expect([](Json& j) { j["tasks"][0]["after"] = {99}; }, "names task 99");
  expect([](Json& j) { j["tasks"][0]["micro_batch"] = 1; }, "\"micro_batch\" is 1");
  expect([](Json& j) { j["optimizer"] = "later"; }, "\"optimizer\" is \"later\"");
  expect([](Json& j) { j["parameters"] = "disk"; }, "must be host or device");
  expect([](Json& j) { j.erase("tasks"); }, "\"tasks\" must be a list");
  EXPECT_EQ(message([](Json&) {}), "");
}

TEST(PipelineSchedule, WhateverJsonSaysIsReadVerifiedAndTimedOrRefused) {
  Rng rng(derive_key(1, "json"));
  const std::vector<ScheduleRequest> requests = all_requests(2, 2);
  int read = 0;
  for (uint64_t round = 0; round < fuzz_rounds(200); ++round) {
    std::string text = dump_json(schedule_to_json(generate(requests[rng.below(requests.size())])));
    for (uint64_t k = 1 + rng.below(3); k-- > 0;) {
      // Digits and signs change most: they keep the text JSON.
      const size_t at = rng.below(text.size());
      if (text[at] >= '0' && text[at] <= '9') text[at] = "0123456789-."[rng.below(12)];
    }
    const Result<Json> json = parse_json(text, "p");
    if (!json) continue;
    const Result<PipelineSchedule> schedule = schedule_from_json(*json, "p");
    if (!schedule) continue;
    ++read;
    EXPECT_FALSE(to_text(*schedule).empty());
    if (verify_pipeline(*schedule)) {
      step_seconds(*schedule, unit_costs(schedule->block_count));
    }
  }
  EXPECT_GT(read, 50);
}

TEST(PipelineSchedule, TextShowsQueuesInOrder) {
  const std::string text = to_text(
      generate({.kind = ScheduleKind::kGPipe, .devices = 2, .micro_batches = 1, .block_count = 2}));
  const std::string more = to_text(
      generate({.kind = ScheduleKind::kGPipe, .devices = 1, .micro_batches = 2, .block_count = 1}));
  EXPECT_TRUE(more.starts_with("gpipe: 1 device, 2 micro-batches, 1 block;")) << more;
  size_t at = 0;
  for (const char* part :
       {"gpipe: 2 devices, 1 micro-batch, 2 blocks; parameters on the device",
        "device 0, compute\n", "F block 0, micro-batch 0\n", "X block 0, micro-batch 0  after",
        "device 0, send\n", "send-activation boundary 1, micro-batch 0, to device 1",
        "device 0, receive from device 1\n", "device 1, compute\n"}) {
    const size_t found = text.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << text;
    at = found;
  }
}

TEST(PipelineGenerate, RefusesWhatContradictsItselfAndSaysWhatToChange) {
  const auto expect = [](ScheduleRequest r, std::string_view part) {
    const Result<PipelineSchedule> schedule = generate_pipeline(r);
    ASSERT_FALSE(schedule) << request_name(r);
    EXPECT_EQ(schedule.error().code, Code::kInvalidArgument);
    EXPECT_NE(schedule.error().message.find(part), std::string::npos) << schedule.error().message;
  };
  using enum ScheduleKind;
  expect({.kind = k1F1B, .devices = 3, .micro_batches = 3, .block_count = 2},
         "need as many blocks, the model has 2");
  expect({.kind = k1F1B, .devices = 0}, "must be at least 1");
  expect({.kind = k1F1B, .block_count = 4, .forward_stages = 2, .backward_stages = 2},
         "has 1 stage(s) a device, not 2");
  expect({.kind = kInterleaved,
          .devices = 2,
          .micro_batches = 3,
          .block_count = 8,
          .forward_stages = 2,
          .backward_stages = 2},
         "no multiple of 2 devices");
  expect({.kind = kBreadthFirst,
          .devices = 4,
          .micro_batches = 2,
          .block_count = 8,
          .forward_stages = 2,
          .backward_stages = 2},
         "2 are fewer than 4");
  expect({.kind = kMobius, .block_count = 2}, "with parameters on the device it is breadth-first");
  expect({.kind = kSPipe, .block_count = 2}, "needs parameters on the host and recompute");
  expect({.kind = kGPipe, .block_count = 2, .host_parameters = true},
         "need their optimizer there: take sync or async");
  expect({.kind = kZeroOffload, .block_count = 2}, "keeps the optimizer on the host");
  expect({.kind = kZeroOffload,
          .devices = 2,
          .micro_batches = 2,
          .block_count = 2,
          .optimizer = OptimizerMode::kSync},
         "runs on 1 device, not 2");
  expect({.kind = kMobius,
          .block_count = 2,
          .host_parameters = true,
          .resident_stages = 0,
          .optimizer = OptimizerMode::kSync},
         "mobius: at least 1 stage must fit a device at once, not 0");
  expect({.kind = kGPipe,
          .block_count = 2,
          .host_parameters = true,
          .resident_stages = 1,
          .optimizer = OptimizerMode::kSync},
         "gpipe: at least 2 stages, one at work");
  expect({.kind = kGPipe, .block_count = 2, .lockstep = true}, "no checkpoints that a pass could");
  expect({.kind = kGPipe, .block_count = 3, .forward_cuts = {1}}, "must ascend from 0");
  expect({.kind = kGPipe, .micro_batches = 2'000'000, .block_count = 1}, "tasks; take fewer");
  expect({.kind = kGPipe, .micro_batches = 90'000, .block_count = 100}, "take fewer micro-batches");
}

TEST(PipelineSimulate, SaysWhatDevicesWaitFor) {
  ScheduleRequest r = natural_request(ScheduleKind::kMobius);
  r.devices = 2;
  r.micro_batches = 2;
  r.forward_stages = r.backward_stages = 1;
  r.block_count = 2;
  const PipelineSchedule schedule = generate(r);
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  ASSERT_TRUE(graph);
  PipelineCosts costs;
  costs.blocks.assign(2, {.forward_s = 1,
                          .backward_input_s = 1,
                          .backward_weight_s = 1,
                          .parameters = 12,
                          .parameter_bytes = 24,
                          .gradient_bytes = 24});
  costs.rates = {.fetch_bytes_per_s = 8, .offload_bytes_per_s = 12, .host_parameters_per_s = 3};
  const PipelineTimes times = time_tasks(schedule, *graph, costs);
  // Fetch 3; F to 5 and 6 on the two devices; X and W on device 1 to 9 (first) and 11... and on
  // device 0 from the first gradient on; then the gradient 2 and the optimizer 4.
  const std::vector<DeviceTime> devices = split_device_time(schedule, *graph, times);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(times.step_s, 3 + 1 + 2 + 4 + 2 + 2 + 4);
  for (const DeviceTime& device : devices) {
    EXPECT_EQ(device.busy_s, 6);
    EXPECT_EQ(device.busy_s + device.idle_s(), times.step_s);
    EXPECT_EQ(device.optimizer_s, 4);
    EXPECT_EQ(device.transfer_s, 3 + 2);
  }
  EXPECT_EQ(devices[0].turn_s, 3);      // from its last F to the first gradient
  EXPECT_EQ(devices[1].ramp_s, 1 + 2);  // the first F before it, the last X and W behind it
  EXPECT_EQ(tail_seconds(schedule, times), 6);
  EXPECT_DOUBLE_EQ(bubble_fraction(devices), 1 - 6.0 / times.step_s);
}

TEST(PipelineSimulate, PartsAddUpWhateverTheTimesAre) {
  Rng rng(derive_key(3, "times"));
  for (const ScheduleRequest& request : all_requests(3, 3)) {
    const PipelineSchedule schedule = generate(request);
    const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
    PipelineCosts costs = unit_costs(request.block_count);
    for (BlockCost& block : costs.blocks) block.forward_s = static_cast<double>(rng.below(4));
    costs.rates = {.fetch_bytes_per_s = 4,
                   .offload_bytes_per_s = 8,
                   .link_bytes_per_s = 16,
                   .host_parameters_per_s = 2};
    const PipelineTimes times = time_tasks(schedule, *graph, costs);
    for (const DeviceTime& device : split_device_time(schedule, *graph, times)) {
      EXPECT_NEAR(device.busy_s + device.idle_s(), times.step_s, 1e-9) << request_name(request);
    }
  }
}

TEST(PipelineSvg, DrawsABarForEveryTaskThatTakesTime) {
  const PipelineSchedule schedule =
      generate({.kind = ScheduleKind::k1F1B, .devices = 2, .micro_batches = 3, .block_count = 2});
  const Result<PipelineGraph> graph = PipelineGraph::create(schedule);
  const PipelineCosts costs = unit_costs(2);
  const PipelineTimes times = time_tasks(schedule, *graph, costs);
  const std::string svg = timeline_svg(schedule, *graph, times, {.title = "a < b & c"});
  size_t bars = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) {
    ++bars;
  }
  EXPECT_EQ(bars, 2u * 3 * 3);  // F, X and W of each device and micro-batch
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("device 1 compute"), std::string::npos);
  EXPECT_EQ(svg.find("device 1 send"), std::string::npos);  // takes no time
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace jige::plan

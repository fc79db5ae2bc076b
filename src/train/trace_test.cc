#include "train/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "plan/pipeline_generate.h"
#include "plan/pipeline_graph.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

int number(const Json& event, const char* field) { return event[field].get<int>(); }

plan::PipelineSchedule spipe() {
  return *plan::generate_pipeline({.kind = plan::ScheduleKind::kSPipe,
                                   .devices = 2,
                                   .micro_batches = 2,
                                   .block_count = 8,
                                   .forward_stages = 2,
                                   .backward_stages = 4,
                                   .host_parameters = true,
                                   .recompute = true,
                                   .optimizer = plan::OptimizerMode::kAsync});
}

// Task i runs from i to i + 2 microseconds.
std::vector<TaskSpan> spans_in_order(const plan::PipelineSchedule& schedule) {
  std::vector<TaskSpan> spans;
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    const auto start = static_cast<int64_t>(i) * 1000;
    spans.push_back({.start_ns = start, .end_ns = start + 2000});
  }
  return spans;
}

Json events_of(const std::string& path) {
  const auto text = read_file(path);
  EXPECT_TRUE(text) << text.error().message;
  const auto json = parse_json(*text, path);
  EXPECT_TRUE(json) << json.error().message;
  return (*json)["traceEvents"];
}

TEST(Trace, HoldsEveryTaskOfEveryStepInItsRow) {
  const TestFolder folder;
  const std::string path = folder.file("trace.json");
  const plan::PipelineSchedule schedule = spipe();
  const auto spans = spans_in_order(schedule);
  auto trace = TraceWriter::create(path);
  ASSERT_TRUE(trace);
  ASSERT_TRUE(trace->add_step(7, schedule, spans));
  ASSERT_TRUE(trace->add_step(8, schedule, spans));
  EXPECT_FALSE(read_file(path));  // nothing before it is whole
  ASSERT_TRUE(trace->finish());
  ASSERT_TRUE(trace->finish());
  const Json events = events_of(path);

  std::set<std::pair<int, int>> rows;
  std::set<int> processes;
  std::vector<Json> tasks;
  for (const Json& event : events) {
    if (event["ph"] == "X") {
      tasks.push_back(event);
    } else if (event["name"] == "process_name") {
      const int pid = number(event, "pid");
      EXPECT_TRUE(processes.insert(pid).second);
      EXPECT_EQ(event["args"]["name"].get<std::string>(),
                pid == 0 ? "host" : fmt::format("device {}", pid - 1));
    } else {
      EXPECT_EQ(event["name"], "thread_name");
      EXPECT_TRUE(rows.emplace(number(event, "pid"), number(event, "tid")).second);
    }
  }
  EXPECT_EQ(processes, (std::set<int>{0, 1, 2}));
  const auto graph = plan::PipelineGraph::create(schedule);
  EXPECT_EQ(rows.size(), graph->queues().size());
  ASSERT_EQ(tasks.size(), 2 * spans.size());
  // The second step follows where the first ended.
  const double step_us = static_cast<double>(spans.size()) + 1;
  std::map<std::pair<int, int>, size_t> queue_of_row;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const size_t t = i % spans.size();
    const plan::PipelineTask& task = schedule.tasks[t];
    const Json& event = tasks[i];
    const bool second = i >= spans.size();
    EXPECT_EQ(number(event["args"], "step"), second ? 8 : 7);
    EXPECT_NEAR(event["ts"].get<double>(), static_cast<double>(t) + (second ? step_us : 0), 1e-6);
    EXPECT_NEAR(event["dur"].get<double>(), 2, 1e-6);
    EXPECT_EQ(number(event, "pid"), task.device + 1);
    EXPECT_EQ(event["cat"].get<std::string>(), std::string(plan::kind_name(task.kind)));
    EXPECT_EQ(event["args"].contains("micro_batch"), task.micro_batch >= 0);
    if (task.blocks.size() > 0) {
      EXPECT_EQ(number(event["args"], "first_block"), task.blocks.begin);
      EXPECT_EQ(number(event["args"], "last_block"), task.blocks.end - 1);
    }
    // One row is one queue.
    const size_t queue = graph->queue_index(static_cast<int32_t>(t));
    const std::pair row(number(event, "pid"), number(event, "tid"));
    const auto [found, fresh] = queue_of_row.emplace(row, queue);
    EXPECT_TRUE(fresh || found->second == queue) << i;
  }
}

TEST(Trace, EndsAtItsLimits) {
  const TestFolder folder;
  const plan::PipelineSchedule schedule = spipe();
  const auto spans = spans_in_order(schedule);
  auto steps = TraceWriter::create(folder.file("steps.json"), {.steps = 2});
  auto events = TraceWriter::create(folder.file("events.json"),
                                    {.events = static_cast<int64_t>(2 * spans.size())});
  ASSERT_TRUE(steps && events);
  for (int64_t step = 1; step <= 5; ++step) {
    ASSERT_TRUE(steps->add_step(step, schedule, spans));
    ASSERT_TRUE(events->add_step(step, schedule, spans));
    EXPECT_EQ(steps->complete(), step >= 2);
    // Names of places are events too, so the second step no longer fits.
    EXPECT_EQ(events->complete(), step >= 2);
  }
  EXPECT_EQ(steps->step_count(), 2);
  EXPECT_EQ(events->step_count(), 1);
  const auto count = [&](const char* name) {
    int64_t found = 0;
    for (const Json& event : events_of(folder.file(name))) found += event["ph"] == "X";
    return found;
  };
  EXPECT_EQ(count("steps.json"), static_cast<int64_t>(2 * spans.size()));
  EXPECT_EQ(count("events.json"), static_cast<int64_t>(spans.size()));
}

TEST(Trace, WithoutAStepIsStillATrace) {
  const TestFolder folder;
  auto trace = TraceWriter::create(folder.file("none.json"));
  ASSERT_TRUE(trace);
  ASSERT_TRUE(trace->finish());
  EXPECT_TRUE(events_of(folder.file("none.json")).empty());
}

TEST(Trace, LeavesNothingWhenItIsAbandonedAndRefusesOtherSpans) {
  const TestFolder folder;
  const plan::PipelineSchedule schedule = spipe();
  auto spans = spans_in_order(schedule);
  {
    auto trace = TraceWriter::create(folder.file("half.json"));
    ASSERT_TRUE(trace);
    ASSERT_TRUE(trace->add_step(1, schedule, spans));
    spans.pop_back();
    const Status refused = trace->add_step(2, schedule, spans);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_FALSE(TraceWriter::create(folder.file("no/such/folder.json")));
}

}  // namespace
}  // namespace jige::train

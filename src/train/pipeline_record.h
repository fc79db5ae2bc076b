// What a run by a schedule leaves for `jige report`: RUN/pipeline.json.
//
//   {"format": "jige.pipeline-record", "version": 1,
//    "schedule": {…}, "costs": {…},              as in plan/pipeline_schedule_json.h,
//    docs/formats.md "predicted_step_s": 1.2,                    from schedule and costs, for other
//    readers "steps": [{"step": 100, "spans_ns": [[start, end], …]}, …],    a pair a task, the last
//    steps "memory": {"device_budget_bytes": [..], "host_budget_bytes": 0,   0: no limit
//               "device_planned_bytes": [..], "device_peak_bytes": [..],
//               "host_planned_bytes": 0, "host_peak_bytes": 0}}
//
// Invariants: what read_pipeline_record() returns has a sound schedule (verify_pipeline) with costs
// for its blocks, one span a task in every step, and a value for each device.
// Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "plan/pipeline_costs.h"
#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulate.h"
#include "train/queue_runner.h"

namespace jige::train {

struct MeasuredStep {
  int64_t step = 0;
  std::vector<TaskSpan> spans;  // by task
};

struct PipelineMemoryRecord {
  std::vector<int64_t> device_budget_bytes;  // by device; 0, or none at all: no limit
  int64_t host_budget_bytes = 0;
  std::vector<int64_t> device_planned_bytes;  // by device: the most that can be
  std::vector<int64_t> device_peak_bytes;     // by device: what its arena counted
  int64_t host_planned_bytes = 0;
  int64_t host_peak_bytes = 0;
};

struct PipelineRecord {
  plan::PipelineSchedule schedule;
  plan::PipelineCosts costs;
  std::vector<MeasuredStep> steps;  // ascending; the last few of the run
  PipelineMemoryRecord memory;

  // Keeps a step and at most `kept` in all, the latest.
  void add_step(int64_t step, std::span<const TaskSpan> spans, size_t kept = 3);
};

// Measured times in the form of predicted ones. What only waits (releases, receives, barriers) is
// given no length, as in a prediction.
plan::PipelineTimes measured_times(const plan::PipelineSchedule& schedule,
                                   std::span<const TaskSpan> spans);

Json pipeline_record_json(const PipelineRecord& record);
// `where` names the source in errors. Fails with kNotFound, kInvalidArgument or kCorrupt, naming
// the field, with kUnsupported on another format or version.
Result<PipelineRecord> pipeline_record_from_json(const Json& json, std::string_view where);

// To and from a file. Fail as write_file_atomic and read_file do, and as above.
Status write_pipeline_record(const std::string& path, const PipelineRecord& record);
Result<PipelineRecord> read_pipeline_record(const std::string& path);

}  // namespace jige::train

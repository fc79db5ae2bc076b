// The part of `jige report` that shows a step by a schedule: predicted beside measured.
//
// Timelines, where the devices' time went, memory over time against the budget, and the facts in a
// table. Predicted times come from the costs that the run was planned with; measured ones are those
// of one step, the one of median length among the recorded.
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_simulate.h"
#include "train/pipeline_record.h"

namespace jige::cli {

// A record with everything that is derived from it.
struct PipelineView {
  const train::PipelineRecord* record = nullptr;
  plan::PipelineTimes predicted;
  std::vector<plan::DeviceTime> predicted_split;
  // Of a measured step; empty without one.
  int64_t step = 0;
  plan::PipelineTimes measured;
  std::vector<plan::DeviceTime> measured_split;
  // If every task took its measured time and started as soon as it could.
  double replayed_s = 0;

  bool has_measured() const { return !measured.end.empty(); }
};

// The record must outlive the view. Fails as plan::PipelineGraph::create.
Result<PipelineView> view_pipeline(const train::PipelineRecord& record);

// What a device did between its tasks' causes: starting tasks, threads that woke up late. The
// rest of the step beyond what split_device_time() explains.
double unexplained_s(const plan::DeviceTime& device, double step_s);

// Rows for the page's table: what, value.
std::vector<std::pair<std::string, std::string>> pipeline_facts(const PipelineView& view);

// SVG documents.
std::string timelines_svg(const PipelineView& view, bool measured);
std::string split_svg(const PipelineView& view);
// Of the devices: bytes in use over a step, and the budget.
std::string memory_svg(const PipelineView& view);

}  // namespace jige::cli

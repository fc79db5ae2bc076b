// The timeline of a step as an SVG picture: a row for each queue of each device, a bar for each
// task, coloured by kind, with its micro-batch where there is room; no script, no font files.
//
//   write_file_atomic("step.svg", timeline_svg(schedule, graph, times, {.subtitle = "simulated"}));
//
// Rows whose tasks take no time are left out, as are such tasks.
// Threads: pure functions.
#pragma once

#include <string>

#include "plan/pipeline_graph.h"
#include "plan/pipeline_schedule.h"
#include "plan/pipeline_simulate.h"

namespace jige::plan {

struct TimelineOptions {
  std::string title;     // without one, the name of the schedule
  std::string subtitle;  // where the times come from
  double width = 1200;   // pixels; at least 400
};

std::string timeline_svg(const PipelineSchedule& schedule, const PipelineGraph& graph,
                         const PipelineTimes& times, const TimelineOptions& options);

}  // namespace jige::plan

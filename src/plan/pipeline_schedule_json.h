// Schedules as JSON, to be kept beside a plan and read back by another program.
//
//   {"format": "jige.pipeline-schedule", "version": 1, "name": "spipe", "devices": 4,
//    "micro_batches": 8, "blocks": 26, "parameters": "host", "recompute": true,
//    "optimizer": "async", "clip": "none", "tied": false,
//    "tasks": [{"kind": "F", "device": 0, "blocks": [0, 2], "micro_batch": 0, "peer": 1,
//               "after": [3, 7]}, …]}
//
// Absent: tied false, micro_batch -1, peer -1, after []. Reading checks types and ranges, so that
// whatever it returns can be described, verified and simulated; it does not verify the schedule.
// Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/json.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

Json schedule_to_json(const PipelineSchedule& schedule);

// `where` names the source in errors. Fails with kNotFound, kInvalidArgument or kCorrupt, naming
// the field, and with kUnsupported on another format or version.
Result<PipelineSchedule> schedule_from_json(const Json& json, std::string_view where);

}  // namespace jige::plan

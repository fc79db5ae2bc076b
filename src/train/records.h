// The records of the step log (step_log.h) as JSON.
//
// Threads: pure functions.
#pragma once

#include "base/json.h"
#include "train/report.h"
#include "train/run_setup.h"

namespace jige::train {

Json start_record(const RunSetup& setup, int thread_count);
Json step_record(const StepInfo& info);
Json eval_record(const EvalInfo& info);
Json checkpoint_record(const CheckpointInfo& info);
Json end_record(const TrainResult& result);
// Whether a record is that of the end of a run whose results are written.
bool ends_run(const Json& record);

// The result as one object, for --json.
Json result_json(const TrainResult& result);
// The plan as one object.
Json plan_json(const TrainPlan& plan);

}  // namespace jige::train

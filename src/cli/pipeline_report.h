// What the planner predicts, for people and as JSON. Everything here is simulated, and says so.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "plan/pipeline_planner.h"

namespace jige::cli {

// "12.3 ms", "1.25 s".
std::string seconds_text(double seconds);

// The fields of a choice, and of its predictions.
Json choice_json(const plan::ScheduleRequest& choice);
Json prediction_json(const plan::TrainPrediction& prediction);

// The choice and its predictions in lines, with what each GPU has of it where devices are parts of
// `gpus` in turns; `binding` last.
std::string plan_text(const plan::TrainPlan& plan, const plan::MemoryBudget& budget,
                      const std::vector<int>& gpus = {});

// What each GPU has of a plan: {"gpu": 1, "share": "blocks 7-12", "planned_bytes": …,
// "budget_bytes": …, "busy_s": …}. REQUIRES: a multiple of them are devices.
Json gpu_shares_json(const plan::TrainPlan& plan, const plan::MemoryBudget& budget,
                     const std::vector<int>& gpus);

// The timeline of a schedule as SVG, from simulated times. Fails as write_file_atomic.
Status write_timeline(const std::string& path, const plan::PipelineSchedule& schedule,
                      const plan::PipelineCosts& costs, const std::string& subtitle);

}  // namespace jige::cli

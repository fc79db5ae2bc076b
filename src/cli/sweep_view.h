// What `jige sweep` says besides its trials' own progress.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "base/json.h"
#include "train/sweep.h"

namespace jige::cli {

// Before the first trial: how many there are, their steps, and what of them is shared.
std::string sweep_plan_text(const train::SweepRecord& record);
Json sweep_plan_json(const train::SweepRecord& record);

// "trial 3 of 6, lr=2e-3 decay-share=0.1: 400 steps of 2000; about 12:30 left".
std::string trial_text(const train::SweepPlace& place, const train::SweepRecord& record);
// The same, ahead of the records of the trial's log.
Json trial_json(const train::SweepPlace& place, const train::SweepRecord& record);

// Which trials go on from a rung.
std::string rung_text(const train::RungResult& rung, const train::SweepRecord& record);
Json rung_json(const train::RungResult& rung, const train::SweepRecord& record);

// All trials, the best first.
std::string sweep_table(const train::SweepRecord& record);

}  // namespace jige::cli

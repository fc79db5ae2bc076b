// Where the stages of a candidate are cut, and where again if a device has too little memory for
// it.
//
// Devices may be unequal, in how long their passes take (PipelineCosts::device_paces) and in what
// they have (MemoryBudget::own_bytes). A cut evens out what the stages of each device take there.
// What a device needs is known behind the whole schedule alone, so cuts that ask too much of one
// are made again with less for its stages, until all fit: layers by rate, bounded by memory.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_order.h"
#include "plan/pipeline_planner.h"

namespace jige::plan {

// What a cut evens out: time, or bytes by what devices have.
enum class Balance : uint8_t { kForward, kBackward, kBoth, kBytes };

// First blocks of these stages, of which the devices count alone. `bytes_max`: what each may have
// at most of block_bytes(); empty: no limit. Fails as balance_stages.
Result<std::vector<int32_t>> cut_stages(const TrainPlanRequest& request,
                                        const ScheduleRequest& candidate, Balance balance,
                                        std::span<const PipelineStage> stages,
                                        std::span<const int64_t> bytes_max = {});

// What a block takes of its device's memory, about: parameters, gradient, state, and activations of
// one micro-batch.
std::vector<int64_t> block_bytes(const PipelineCosts& costs, const ScheduleRequest& candidate);

// What a W that looks for a wait reckons with, of a candidate with new cuts.
void renew_times(const PipelineCosts& costs, ScheduleRequest& candidate);

struct FittedCandidate {
  ScheduleRequest request;
  TrainPrediction prediction;
};
// The candidate with cuts that leave every device within its budget; nothing where none are found,
// where another budget is passed, or where a micro-batch would take `seconds_max` or more.
// REQUIRES: the candidate's prediction.
std::optional<FittedCandidate> fit_to_devices(const TrainPlanRequest& request,
                                              ScheduleRequest candidate, TrainPrediction prediction,
                                              double seconds_max);

// A candidate within all budgets, with one cut or stage after the other moved by a block as long as
// that makes it faster: even work is not the least time where devices are unequal, since some fill
// a pipeline faster than others. Not the best of all cuts in each case; how near it comes is tested
// against all of them (plan/pipeline_unequal_test.cc).
FittedCandidate move_cuts(const TrainPlanRequest& request, FittedCandidate candidate);

}  // namespace jige::plan

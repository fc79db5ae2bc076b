// What of this process a step profile is of, and a plan that rests on one.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "cli/device_flags.h"
#include "model/inference.h"
#include "sim/profiled_subject.h"

namespace jige::cli {

// Of a model that is loaded on these devices; `name`: where it came from.
sim::ProfiledSubject profiled_subject(const ComputeDevices& devices,
                                      const model::InferenceModel& model, std::string name);
// Of a model that is not loaded yet: its shape alone.
sim::ProfiledModel profiled_shape(const formats::ModelConfig& config);

}  // namespace jige::cli

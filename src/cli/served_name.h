// What a server calls its model, and the numbers that it is run with.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "model/memory_plan.h"

namespace jige::cli {

// The name of a folder; of the run for RUN/model and RUN/adapter.
std::string folder_name(const std::string& folder);

// "bf16", "bf16-q8" or "bf16-q8-kvq8": what a fingerprint says of the numbers a model is run with.
std::string served_numbers(const model::InferenceSizes& sizes);

}  // namespace jige::cli

// What a server says of the adapters beside its model.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "model/inference.h"

namespace jige::cli {

// A line for each adapter, and one for rooms, of those under `root`, that more may be loaded into.
std::string adapters_text(model::InferenceModel& model,
                          const std::vector<model::AdapterSource>& adapters,
                          const std::string& root, const model::InferenceMemory& memory);

Json adapters_json(const model::InferenceModel& model,
                   const std::vector<model::AdapterSource>& adapters,
                   const model::InferenceMemory& memory);
// Null where there are none.
Json rooms_json(model::InferenceModel& model, const std::string& root,
                const model::InferenceMemory& memory);

}  // namespace jige::cli

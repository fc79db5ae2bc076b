// Fields of config.json that published folders of some families spell in their own way, and
// transformers by the usual names (attribute_map).
//
// Internal to the model_config*.cc files. Threads: free functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace jige::formats {

// The same with such fields under their usual names. Fails with kCorrupt where both are there and
// differ.
Result<Json> with_usual_names(Json config, std::string_view where);

}  // namespace jige::formats

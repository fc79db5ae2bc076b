// Whether readers of GGUF files compute what a model does.
//
// Internal to the gguf_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

// Fails with kUnsupported, naming the field of config.json, where they would compute something
// else; warns where they do so in long texts alone.
Status check_gguf_expressible(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats

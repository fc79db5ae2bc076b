// Ids of special tokens in config.json: bos_token_id, eos_token_id and pad_token_id.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

// Sets bos_id, eos_ids and pad_id. REQUIRES: family and vocab_size are set.
Status parse_token_ids(const Json& config, ModelConfig& out, std::string_view where);

}  // namespace jige::formats

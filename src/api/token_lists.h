// Prompts and inputs as requests give them: a text, a list of texts, a list of token ids, or a list
// of such lists.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "api/field_reader.h"

namespace jige::api {

// Whether a value is a list of token ids, rather than one of several prompts.
bool is_id_list(const Json& value);

// Fails with 400 on what is no id below `vocab_size`. REQUIRES: is_id_list(list).
ApiResult<std::vector<int32_t>> read_id_list(const Json& list, int32_t vocab_size,
                                             std::string_view param);

}  // namespace jige::api

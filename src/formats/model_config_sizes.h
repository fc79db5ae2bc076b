// Sizes of a config.json that have other names in some families, or may be left out.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// A size by the name that the family has for it, or by the one that most have, as transformers
// reads both. Fails with kCorrupt where they contradict each other.
Result<int64_t> get_own_or_common(const Json& config, std::string_view own, std::string_view common,
                                  std::string_view where);

// F, in some families four times the width where it is left out. REQUIRES: hidden_size is set.
Result<int64_t> parse_ffn_size(const Json& config, const ModelConfig& out, std::string_view where);

Result<int64_t> parse_context(const Json& config, Family family, std::string_view where);

// The width by the heads. Fails with kCorrupt where they do not divide it.
Result<int64_t> divided_head_dim(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats

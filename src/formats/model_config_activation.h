// Activations without gate, by the names that config.json has for them.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// That of a field, of families that have a choice. Fails with kUnsupported naming the known ones.
Result<ActivationKind> parse_plain_activation(const Json& config, const char* field,
                                              const ModelConfig& out, std::string_view where);
std::string_view plain_activation_name(ActivationKind activation);

}  // namespace jige::formats

// Which models can be trained with their sequences divided among ranks (context_exchange.h): those
// in whose layers attention alone, of heads with keys and values of their own, reads other tokens.
//
// Threads: pure function.
#pragma once

#include <string_view>

#include "base/result.h"
#include "formats/model_config.h"

namespace jige::model {

// Fails with kUnsupported, naming what the model has; `flag` asks for it.
Status check_context_support(const formats::ModelConfig& config, std::string_view flag);

}  // namespace jige::model

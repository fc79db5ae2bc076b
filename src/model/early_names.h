// The names that layers of the families before Llama have in files.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "formats/model_config.h"
#include "model/layer_names.h"

namespace jige::model {

// Those of the layer of this number; nothing of other families.
std::optional<LayerNames> early_layer_names(const formats::ModelConfig& config,
                                            const std::string& number);

}  // namespace jige::model

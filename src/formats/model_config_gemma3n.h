// What config.json says of Gemma 3n: AltUp's streams, the rank of what stands beside attention
// (LAuReL), the share of a gate's columns that counts, embeddings for every layer and layers that
// share keys and values.
//
// Internal to the model_config*.cc files. Threads: free functions.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "formats/model_config.h"

namespace jige::formats {

// intermediate_size, a number or a list of the same number for each layer. Fails with kUnsupported
// where layers differ.
Result<int64_t> parse_gemma3n_ffn_size(const Json& config, std::string_view where);
// All but what is said of each layer. Fails with kUnsupported on what Jige lacks.
Status parse_gemma3n(const Json& config, ModelConfig& out, std::string_view where);
// activation_sparsity_pattern. REQUIRES: the number of layers is checked.
Status parse_ffn_sparsity(const Json& config, ModelConfig& out, std::string_view where);
// Fails as check_model_config does.
Status check_gemma3n(const ModelConfig& config, std::string_view where);
void emit_gemma3n(const ModelConfig& config, Json& out);

}  // namespace jige::formats

// A model's shape as keys of a GGUF file, and the rotary factors that only a tensor can say.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf_writer.h"
#include "formats/model_config.h"

namespace jige::formats {

// The architecture that files have for a family: "qwen3"; Mistral is llama there.
std::string_view gguf_architecture(Family family);

// Adds general.architecture and the architecture's own keys. Fails with kUnsupported, naming the
// field, where `config` has something that GGUF readers would not compute; `where` names its file.
Status add_gguf_config(const ModelConfig& config, std::string_view where, GgufKeys& keys);

// What llama3 scaling divides each rotary frequency by, the highest first; empty for other kinds.
std::vector<float> gguf_rope_factors(const ModelConfig& config);

}  // namespace jige::formats

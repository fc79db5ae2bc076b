// A model's shape as keys of a GGUF file, and the rotary factors that only a tensor can say.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf_writer.h"
#include "formats/model_config.h"

namespace jige::formats {

// The architecture that files have for a family: "qwen3"; Mistral is llama there. Empty where its
// models are not written.
std::string_view gguf_architecture(const ModelConfig& config);

// Adds general.architecture and the architecture's own keys. Fails with kUnsupported, naming the
// field, where `config` has something that GGUF readers would not compute; `where` names its file.
Status add_gguf_config(const ModelConfig& config, std::string_view where, GgufKeys& keys);

// Numbers that rotary frequencies are divided by, the highest first, and the tensor that has them.
struct GgufFactors {
  std::string name;
  std::vector<float> values;
};

// Those of llama3 scaling or of LongRoPE; none of other kinds.
std::vector<GgufFactors> gguf_rope_factors(const ModelConfig& config);
// REQUIRES: llama3 scaling.
std::vector<float> gguf_llama3_factors(const ModelConfig& config);

}  // namespace jige::formats

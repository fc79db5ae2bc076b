// The rotary positions of a GGUF file's model.
//
// Internal to the gguf_config*.cc files. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace jige::formats {

// Sets `rope`, of the keys that begin so and of the tensor rope_freqs.weight, for heads of the
// family, width and latents that `out` has; takes a sliding_rope that is the same away. Fails with
// kUnsupported naming a scaling that Jige does not compute, with kCorrupt where keys are missing.
Status read_gguf_rope(const GgufFile& file, const std::string& prefix, ModelConfig& out);

// The rope_parameters of models with LongRoPE, of the tensors of its factors, for heads of so many
// columns that turn and a longest context; without those tensors plain positions. Fails with
// kUnsupported naming another scaling, with kCorrupt where a tensor does not fit.
Result<Json> read_gguf_longrope(const GgufFile& file, const std::string& prefix, int64_t turned,
                                int64_t context);

// What rope_freqs.weight divides the frequency of each pair of columns by; empty where there is no
// such tensor. Fails with kCorrupt where it does not have one for each.
Result<std::vector<float>> gguf_rope_divisors(const GgufFile& file, int64_t head_dim);

}  // namespace jige::formats

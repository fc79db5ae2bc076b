// The shape of a model, from the key/values and the table of a GGUF file.
//
// Architectures are those of gguf_params.cc. Keys of some become a ModelConfig here (llama, which
// is Mistral where a sliding window is set, and others with layers like its), those of further ones
// the fields of a config.json first (gguf_config_fields.h). What the keys do not say follows from
// the tensors: the vocabulary and ties from token_embd.weight and output.weight, biases from
// whether they are there, llama3's scaling of rotary frequencies from rope_freqs.weight. Threads:
// pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/model_config.h"

namespace jige::formats {

// Fails with kUnsupported naming an architecture, key or value that Jige does not compute, and with
// kCorrupt where keys are missing or contradict each other or the tensors. Token ids stay empty:
// they are the tokenizer's (gguf_tokenizer.h).
Result<ModelConfig> read_gguf_config(const GgufFile& file);

// Layers that the keys count, those that predict further tokens included; 0 where they do not say.
int64_t gguf_block_count(const GgufFile& file);

// What files of these architectures do not say, as their readers have it: the layers of smollm3
// that turn nothing, whether a layer of gemma2 or gemma3 has the window, every `period`th having
// none, what their scores are divided by the root of, and whether the weights of chosen experts add
// up to one. REQUIRES: a config of gemma2 or gemma3.
int64_t gguf_gemma_period(Family family);
inline constexpr double kGgufGemma3SlidingTheta = 10000.0;
// What the frequencies of columns that stand still are divided by.
inline constexpr float kGgufStandingStill = 1e30f;
// Of models with latents a key is so much of mscale_all_dim.
inline constexpr double kGgufLatentMultiplier = 0.1;
ActivationKind gguf_gpt_neox_activation(int64_t layer_count);
inline constexpr double kGgufMiniCpm3Embedding = 12;  // and what minicpm3 is scaled by
inline constexpr double kGgufMiniCpm3Depth = 1.4;
inline constexpr int64_t kGgufMiniCpm3Base = 256;
std::vector<uint8_t> gguf_unturned_layers(int64_t layer_count);
std::vector<uint8_t> gguf_sliding_layers(int64_t layer_count, int64_t period);
double gguf_gemma_score_dim(const ModelConfig& config);
bool gguf_experts_normalised(Family family);

// The yarn scaling that files can say, by the factor and the original context of another one: all
// else is as its readers have it.
RopeConfig gguf_yarn(const RopeConfig& rope);

// What llama3 scaling divides the rotary frequency of this wavelength by. REQUIRES: of that kind.
double llama3_divisor(double wavelength, const RopeConfig& rope);

// Whether it holds factors of LongRoPE: rope_factors_long.weight and rope_factors_short.weight.
bool is_gguf_longrope_tensor(std::string_view name);

// The llama3 scaling whose frequencies are divided by these factors, the highest frequency first;
// its low and high factors are 1 and 4, as in every model of that kind. Nullopt where there is
// none. REQUIRES: factors is not empty.
std::optional<RopeConfig> find_llama3_scaling(std::span<const float> factors, double theta);

}  // namespace jige::formats

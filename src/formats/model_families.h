// The table of model families: names in config.json, what all models of a family have, what
// transformers takes for fields that are left out, and fields that differ in spelling.
//
// Internal to the model_config*.cc and gguf_config*.cc files.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// What of a head's queries and keys is normalised before it turns.
enum class HeadNorms { kNone, kEach, kEachApart, kWhole };

// Which linear layers have biases, and the fields of config.json that say so.
enum class BiasRule {
  kNone,
  kEverywhere,
  kQkv,              // on queries, keys and values
  kAttention,        // attention_bias: on the four projections of attention
  kAttentionAndMlp,  // the same, and mlp_bias
  kOutputApart,      // attention_bias without the output, attention_out_bias on it, and mlp_bias
  kQkvBias,          // qkv_bias: on queries, keys and values
  kUseBias,          // use_bias: everywhere
  kUseQkvBias,       // use_qkv_bias: on queries, keys and values
  kAttentionByMlp    // attention_bias: on the four projections of attention; on the MLP always
};

// Which layers may have the sliding window.
enum class WindowRule { kNone, kAllLayers, kSomeLayers };

// When sliding_window counts: unless it is null, where it is given, where use_sliding_window says
// so, or both of the last.
enum class WindowUse { kUnlessNull, kIfGiven, kIfSwitchedOn, kIfGivenAndSwitchedOn };

// Whether layers have the family's ResidualForm: all of them, or as use_parallel_residual says.
enum class ResidualUse { kAlways, kUnlessSwitchedOff, kIfSwitchedOn };

struct FamilyInfo {
  Family family;
  std::string_view model_type;    // "llama"
  std::string_view causal_class;  // "LlamaForCausalLM"
  std::string_view base_class;    // "LlamaModel"

  // What all its models have.
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  bool norm_adds_one = false;
  bool norm_bias = true;
  HeadNorms head_norms = HeadNorms::kNone;
  std::string_view head_norms_field = "";  // models have them where it says so; empty: always
  ResidualForm residual = ResidualForm::kSequential;
  ResidualUse residual_use = ResidualUse::kAlways;
  ActivationKind activation = ActivationKind::kSwiGlu;
  bool chooses_activation = false;  // any of kPlainActivations, that above where it is left out
  BiasRule biases = BiasRule::kNone;
  WindowRule windows = WindowRule::kNone;
  WindowUse window_use = WindowUse::kUnlessNull;
  int64_t full_period = 0;     // without layer_types each so manieth layer has no window; 0: none
  bool two_ropes = false;      // layers with the window turn by other angles
  bool turns_parts = false;    // turned_field counts
  double turned_factor = 1.0;  // where it is left out
  bool turns_neighbours = false;
  bool fused_projections = false;
  bool qkv_by_head = false;
  bool head_bias = false;
  bool attention_sinks = false;
  // Embeddings times the root of the width, scores by query_pre_attn_scalar, and fields of soft
  // caps.
  bool gemma_scales = false;

  // How config.json spells two of its fields; rope_parameters have them as here.
  std::string_view theta_field = "rope_theta";
  std::string_view turned_field = "partial_rotary_factor";

  // What transformers takes for fields that are left out.
  double norm_eps = 1e-6;
  int64_t kv_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;  // 0: hidden_size by heads
  int64_t window = 4096;
  double theta = 1e4;
  bool attention_bias = false;
  bool tied = false;
  double score_cap = 0;  // attn_logit_softcapping
  double logits_cap = 0;
  int64_t bos = 1, eos = 2, pad = -1;  // -1: none
};

inline constexpr FamilyInfo kFamilies[] = {
    {.family = Family::kLlama,
     .model_type = "llama",
     .causal_class = "LlamaForCausalLM",
     .base_class = "LlamaModel",
     .biases = BiasRule::kAttentionAndMlp},
    {.family = Family::kMistral,
     .model_type = "mistral",
     .causal_class = "MistralForCausalLM",
     .base_class = "MistralModel",
     .windows = WindowRule::kAllLayers,
     .kv_heads = 8},
    {.family = Family::kQwen2,
     .model_type = "qwen2",
     .causal_class = "Qwen2ForCausalLM",
     .base_class = "Qwen2Model",
     .biases = BiasRule::kQkv,
     .windows = WindowRule::kSomeLayers,
     .window_use = WindowUse::kIfSwitchedOn,
     .kv_heads = 32,
     .bos = -1,
     .eos = -1},
    {.family = Family::kQwen3,
     .model_type = "qwen3",
     .causal_class = "Qwen3ForCausalLM",
     .base_class = "Qwen3Model",
     .head_norms = HeadNorms::kEach,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kSomeLayers,
     .window_use = WindowUse::kIfSwitchedOn,
     .kv_heads = 32,
     .head_dim = 128,
     .bos = -1,
     .eos = -1},
    {.family = Family::kGpt2,
     .model_type = "gpt2",
     .causal_class = "GPT2LMHeadModel",
     .base_class = "GPT2Model",
     .norm = NormKind::kLayer,
     .activation = ActivationKind::kGeluTanh,
     .chooses_activation = true,
     .biases = BiasRule::kEverywhere,
     .norm_eps = 1e-5,
     .tied = true,
     .bos = 50256,
     .eos = 50256},
    {.family = Family::kPhi3,
     .model_type = "phi3",
     .causal_class = "Phi3ForCausalLM",
     .base_class = "Phi3Model",
     .windows = WindowRule::kAllLayers,
     .window_use = WindowUse::kIfGiven,
     .turns_parts = true,
     .fused_projections = true,
     .norm_eps = 1e-5,
     .eos = 32000,
     .pad = 32000},
    {.family = Family::kGemma2,
     .model_type = "gemma2",
     .causal_class = "Gemma2ForCausalLM",
     .base_class = "Gemma2Model",
     .norm_place = NormPlace::kAround,
     .norm_adds_one = true,
     .activation = ActivationKind::kGeGlu,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kSomeLayers,
     .full_period = 2,
     .gemma_scales = true,
     .kv_heads = 4,
     .head_dim = 256,
     .tied = true,
     .score_cap = 50,
     .logits_cap = 30,
     .bos = 2,
     .eos = 1,
     .pad = 0},
    {.family = Family::kGemma3,
     .model_type = "gemma3_text",
     .causal_class = "Gemma3ForCausalLM",
     .base_class = "Gemma3TextModel",
     .norm_place = NormPlace::kAround,
     .norm_adds_one = true,
     .head_norms = HeadNorms::kEach,
     .activation = ActivationKind::kGeGlu,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kSomeLayers,
     .full_period = 6,
     .two_ropes = true,
     .gemma_scales = true,
     .kv_heads = 4,
     .head_dim = 256,
     .theta = 1e6,
     .tied = true,
     .bos = 2,
     .eos = 1,
     .pad = 0},
    {.family = Family::kOlmo2,
     .model_type = "olmo2",
     .causal_class = "Olmo2ForCausalLM",
     .base_class = "Olmo2Model",
     .norm_place = NormPlace::kAfter,
     .head_norms = HeadNorms::kWhole,
     .biases = BiasRule::kAttention,
     .norm_eps = 1e-5,
     .bos = -1,
     .eos = 50279,
     .pad = 1},
    {.family = Family::kOlmo3,
     .model_type = "olmo3",
     .causal_class = "Olmo3ForCausalLM",
     .base_class = "Olmo3Model",
     .norm_place = NormPlace::kAfter,
     .head_norms = HeadNorms::kWhole,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kSomeLayers,
     .full_period = 4,
     .two_ropes = true,
     .norm_eps = 1e-5,
     .theta = 5e5,
     .bos = -1,
     .eos = 50279,
     .pad = 1},
    {.family = Family::kGranite,
     .model_type = "granite",
     .causal_class = "GraniteForCausalLM",
     .base_class = "GraniteModel",
     .biases = BiasRule::kAttentionAndMlp},
    {.family = Family::kSmolLm3,
     .model_type = "smollm3",
     .causal_class = "SmolLM3ForCausalLM",
     .base_class = "SmolLM3Model",
     .biases = BiasRule::kAttentionAndMlp,
     .windows = WindowRule::kSomeLayers,
     .window_use = WindowUse::kIfGivenAndSwitchedOn,
     .kv_heads = 4,
     .theta = 2e6,
     .tied = true,
     .bos = 128000,
     .eos = 128001,
     .pad = 128004},
    {.family = Family::kStarCoder2,
     .model_type = "starcoder2",
     .causal_class = "Starcoder2ForCausalLM",
     .base_class = "Starcoder2Model",
     .norm = NormKind::kLayer,
     .activation = ActivationKind::kGeluTanh,
     .biases = BiasRule::kUseBias,
     .windows = WindowRule::kAllLayers,
     .window_use = WindowUse::kIfGiven,
     .norm_eps = 1e-5,
     .kv_heads = 2,
     .attention_bias = true,
     .tied = true,
     .bos = 50256,
     .eos = 50256},
    {.family = Family::kStableLm,
     .model_type = "stablelm",
     .causal_class = "StableLmForCausalLM",
     .base_class = "StableLmModel",
     .norm = NormKind::kLayer,
     .head_norms = HeadNorms::kEachApart,
     .head_norms_field = "qk_layernorm",
     .residual = ResidualForm::kParallelOneNorm,
     .residual_use = ResidualUse::kIfSwitchedOn,
     .biases = BiasRule::kUseQkvBias,
     .turns_parts = true,
     .turned_factor = 0.25,
     .norm_eps = 1e-5,
     .kv_heads = 32,
     .bos = 0,
     .eos = 0},
    {.family = Family::kSeedOss,
     .model_type = "seed_oss",
     .causal_class = "SeedOssForCausalLM",
     .base_class = "SeedOssModel",
     .biases = BiasRule::kOutputApart,
     .kv_heads = 8,
     .head_dim = 128,
     .attention_bias = true,
     .bos = 0,
     .pad = 1},
    {.family = Family::kMixtral,
     .model_type = "mixtral",
     .causal_class = "MixtralForCausalLM",
     .base_class = "MixtralModel",
     .windows = WindowRule::kAllLayers,
     .window_use = WindowUse::kIfGiven,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .theta = 1e6},
    {.family = Family::kQwen2Moe,
     .model_type = "qwen2_moe",
     .causal_class = "Qwen2MoeForCausalLM",
     .base_class = "Qwen2MoeModel",
     .biases = BiasRule::kQkvBias,
     .windows = WindowRule::kSomeLayers,
     .window_use = WindowUse::kIfSwitchedOn,
     .kv_heads = 16,
     .attention_bias = true,
     .bos = -1,
     .eos = -1},
    {.family = Family::kQwen3Moe,
     .model_type = "qwen3_moe",
     .causal_class = "Qwen3MoeForCausalLM",
     .base_class = "Qwen3MoeModel",
     .head_norms = HeadNorms::kEach,
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kAllLayers,
     .window_use = WindowUse::kIfSwitchedOn,
     .kv_heads = 4,
     .bos = -1,
     .eos = -1},
    {.family = Family::kOlmoe,
     .model_type = "olmoe",
     .causal_class = "OlmoeForCausalLM",
     .base_class = "OlmoeModel",
     .head_norms = HeadNorms::kWhole,
     .biases = BiasRule::kAttention,
     .norm_eps = 1e-5,
     .bos = -1,
     .eos = 50279,
     .pad = 1},
    {.family = Family::kGptOss,
     .model_type = "gpt_oss",
     .causal_class = "GptOssForCausalLM",
     .base_class = "GptOssModel",
     .biases = BiasRule::kAttention,
     .windows = WindowRule::kSomeLayers,
     .full_period = 2,
     .attention_sinks = true,
     .norm_eps = 1e-5,
     .kv_heads = 8,
     .head_dim = 64,
     .window = 128,
     .theta = 1.5e5,
     .attention_bias = true,
     .bos = -1,
     .eos = -1},
    {.family = Family::kGptNeoX,
     .model_type = "gpt_neox",
     .causal_class = "GPTNeoXForCausalLM",
     .base_class = "GPTNeoXModel",
     .norm = NormKind::kLayer,
     .residual = ResidualForm::kParallel,
     .residual_use = ResidualUse::kUnlessSwitchedOff,
     .activation = ActivationKind::kGeluErf,
     .chooses_activation = true,
     .biases = BiasRule::kAttentionByMlp,
     .turns_parts = true,
     .turned_factor = 0.25,
     .qkv_by_head = true,
     .theta_field = "rotary_emb_base",
     .turned_field = "rotary_pct",
     .norm_eps = 1e-5,
     .attention_bias = true,
     .bos = 0},
    {.family = Family::kPhi,
     .model_type = "phi",
     .causal_class = "PhiForCausalLM",
     .base_class = "PhiModel",
     .norm = NormKind::kLayer,
     .residual = ResidualForm::kParallelOneNorm,
     .activation = ActivationKind::kGeluTanh,
     .chooses_activation = true,
     .biases = BiasRule::kEverywhere,
     .turns_parts = true,
     .turned_factor = 0.5,
     .head_bias = true,
     .norm_eps = 1e-5},
    {.family = Family::kCohere,
     .model_type = "cohere",
     .causal_class = "CohereForCausalLM",
     .base_class = "CohereModel",
     .norm = NormKind::kLayer,
     .norm_bias = false,
     .head_norms = HeadNorms::kEachApart,
     .head_norms_field = "use_qk_norm",
     .residual = ResidualForm::kParallelOneNorm,
     .biases = BiasRule::kAttention,
     .turns_neighbours = true,
     .norm_eps = 1e-5,
     .theta = 5e5,
     .tied = true,
     .bos = 5,
     .eos = 255001,
     .pad = 0},
};

inline const FamilyInfo& family_info(Family family) {
  return kFamilies[static_cast<size_t>(family)];
}

// router_aux_loss_coef where it is left out.
inline double usual_balance_weight(Family family) {
  return family == Family::kOlmoe ? 0.01 : ExpertConfig().balance_weight;
}

inline bool is_qwen(Family family) { return family == Family::kQwen2 || family == Family::kQwen3; }

// Activations without gate, by their names. The first name of a kind is the one that is written.
struct PlainActivation {
  std::string_view name;
  ActivationKind kind;
};

inline constexpr PlainActivation kPlainActivations[] = {
    {"gelu_new", ActivationKind::kGeluTanh},
    {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
    {"gelu_python_tanh", ActivationKind::kGeluTanh},
    {"gelu_fast", ActivationKind::kGeluTanh},
    {"gelu", ActivationKind::kGeluErf},
    {"gelu_python", ActivationKind::kGeluErf},
    {"relu", ActivationKind::kRelu},
    {"silu", ActivationKind::kSilu},
    {"swish", ActivationKind::kSilu},
};

// How config.json of the family spells the size fields.
struct SizeFields {
  std::string_view hidden;
  std::string_view layers;
  std::string_view heads;
  std::string_view ffn;
  std::string_view context;
  std::string_view norm_eps;
};

inline constexpr SizeFields size_fields(Family family) {
  if (family == Family::kGpt2) {
    return {"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"};
  }
  SizeFields fields{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                    "intermediate_size", "max_position_embeddings", "rms_norm_eps"};
  if (family == Family::kStarCoder2) fields.norm_eps = "norm_epsilon";
  if (family == Family::kStableLm || family == Family::kGptNeoX || family == Family::kPhi ||
      family == Family::kCohere) {
    fields.norm_eps = "layer_norm_eps";
  }
  return fields;
}

// Sets what all models of the family have, and of what a switch turns on what it may have.
inline void set_family_features(ModelConfig& out) {
  const FamilyInfo& family = family_info(out.family);
  out.norm = family.norm;
  out.norm_place = family.norm_place;
  out.norm_adds_one = family.norm_adds_one;
  out.norm_bias = family.norm_bias;
  out.activation = family.activation;
  out.qk_norm = family.head_norms == HeadNorms::kEach;
  out.qk_norm_apart = family.head_norms == HeadNorms::kEachApart;
  out.qk_norm_whole = family.head_norms == HeadNorms::kWhole;
  out.residual = family.residual;
  out.fused_projections = family.fused_projections;
  out.qkv_by_head = family.qkv_by_head;
  out.turns_neighbours = family.turns_neighbours;
  out.head_bias = family.head_bias;
  out.attention_sinks = family.attention_sinks;
}

}  // namespace jige::formats

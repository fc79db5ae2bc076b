// The table of model families: names in config.json and fields that differ in spelling.
//
// Internal to the model_config*.cc files.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

struct FamilyInfo {
  Family family;
  std::string_view model_type;    // "llama"
  std::string_view causal_class;  // "LlamaForCausalLM"
  std::string_view base_class;    // "LlamaModel"
};

inline constexpr FamilyInfo kFamilies[] = {
    {Family::kLlama, "llama", "LlamaForCausalLM", "LlamaModel"},
    {Family::kMistral, "mistral", "MistralForCausalLM", "MistralModel"},
    {Family::kQwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2Model"},
    {Family::kQwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3Model"},
    {Family::kGpt2, "gpt2", "GPT2LMHeadModel", "GPT2Model"},
    {Family::kPhi3, "phi3", "Phi3ForCausalLM", "Phi3Model"},
    {Family::kGemma3, "gemma3_text", "Gemma3ForCausalLM", "Gemma3TextModel"},
    {Family::kOlmo2, "olmo2", "Olmo2ForCausalLM", "Olmo2Model"},
    {Family::kGranite, "granite", "GraniteForCausalLM", "GraniteModel"},
    {Family::kSmolLm3, "smollm3", "SmolLM3ForCausalLM", "SmolLM3Model"},
    {Family::kMixtral, "mixtral", "MixtralForCausalLM", "MixtralModel"},
    {Family::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3MoeModel"},
    {Family::kGptOss, "gpt_oss", "GptOssForCausalLM", "GptOssModel"},
};

inline const FamilyInfo& family_info(Family family) {
  return kFamilies[static_cast<size_t>(family)];
}

inline bool is_qwen(Family family) { return family == Family::kQwen2 || family == Family::kQwen3; }

// The activation_function of GPT-2. The first name of a kind is the one that is written.
struct Gpt2Activation {
  std::string_view name;
  ActivationKind kind;
};

inline constexpr Gpt2Activation kGpt2Activations[] = {
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
  return {"hidden_size",       "num_hidden_layers",       "num_attention_heads",
          "intermediate_size", "max_position_embeddings", "rms_norm_eps"};
}

}  // namespace jige::formats

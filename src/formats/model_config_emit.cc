// ModelConfig -> config.json, in the spelling that old (4.x) and new (5.x) transformers both read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "formats/model_config.h"
#include "formats/model_config_experts.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

std::string_view torch_name(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

Json id_or_null(int32_t id) { return id < 0 ? Json() : Json(id); }

Json eos_json(const std::vector<int32_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids[0];
  return ids;
}

void emit_rope(const RopeConfig& rope, Json& out) {
  out["rope_theta"] = rope.theta;
  out["rope_scaling"] = nullptr;
  if (rope.scaling == RopeScaling::kNone) return;
  Json scaling;
  scaling["rope_type"] = rope.scaling == RopeScaling::kLinear ? "linear" : "llama3";
  scaling["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::kLlama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = rope.original_context;
  }
  out["rope_scaling"] = std::move(scaling);
}

void emit_qwen_windows(const ModelConfig& config, Json& out) {
  std::vector<uint8_t> flags = config.layer_is_sliding;
  if (flags.empty()) {
    flags.assign(static_cast<size_t>(config.layer_count), config.sliding_window > 0);
  }
  const auto first = std::find(flags.begin(), flags.end(), uint8_t{1});
  out["use_sliding_window"] = config.sliding_window > 0;
  out["sliding_window"] = config.sliding_window > 0 ? Json(config.sliding_window) : Json();
  out["max_window_layers"] = first - flags.begin();
  Json types = Json::array();
  for (const uint8_t sliding : flags) {
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
}

void emit_gated_family(const ModelConfig& config, Json& out) {
  out["hidden_size"] = config.hidden_size;
  out["intermediate_size"] = config.ffn_size;
  out["num_hidden_layers"] = config.layer_count;
  out["num_attention_heads"] = config.head_count;
  out["num_key_value_heads"] = config.kv_head_count;
  out["head_dim"] = config.head_dim;
  out["hidden_act"] = "silu";
  out["max_position_embeddings"] = config.context_max;
  out["rms_norm_eps"] = config.norm_eps;
  emit_rope(config.rope, out);
  if (config.family == Family::kLlama || config.family == Family::kQwen3 ||
      config.family == Family::kQwen3Moe) {
    out["attention_bias"] = config.qkv_bias;
  }
  if (config.family == Family::kLlama) out["mlp_bias"] = config.mlp_bias;
  if (config.family == Family::kMistral || config.family == Family::kMixtral ||
      config.family == Family::kQwen3Moe) {
    out["sliding_window"] = config.sliding_window > 0 ? Json(config.sliding_window) : Json();
  }
  if (config.family == Family::kQwen3Moe) {
    out["use_sliding_window"] = config.sliding_window > 0;
  }
  if (has_experts(config.family)) emit_experts(config, out);
  if (config.family == Family::kQwen2 || config.family == Family::kQwen3) {
    emit_qwen_windows(config, out);
  }
  out["attention_dropout"] = 0.0;
}

std::string_view gpt2_activation_name(ActivationKind activation) {
  for (const Gpt2Activation& one : kGpt2Activations) {
    if (one.kind == activation) return one.name;
  }
  return "gelu_new";
}

void emit_gpt2(const ModelConfig& config, Json& out) {
  out["n_embd"] = config.hidden_size;
  out["n_layer"] = config.layer_count;
  out["n_head"] = config.head_count;
  out["n_positions"] = config.context_max;
  out["n_ctx"] = config.context_max;
  out["n_inner"] = config.ffn_size;
  out["activation_function"] = gpt2_activation_name(config.activation);
  out["layer_norm_epsilon"] = config.norm_eps;
  for (const char* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[field] = 0.0;
  out["scale_attn_weights"] = config.scores_by_head_dim;
  out["scale_attn_by_inverse_layer_idx"] = config.scores_by_layer;
}

}  // namespace

Json to_hf_config(const ModelConfig& config) {
  const FamilyInfo& info = family_info(config.family);
  Json out;
  out["architectures"] = Json::array({info.causal_class});
  out["model_type"] = info.model_type;
  out["vocab_size"] = config.vocab_size;
  if (config.family == Family::kGpt2) {
    emit_gpt2(config, out);
  } else {
    emit_gated_family(config, out);
  }
  out["initializer_range"] = 0.02;
  out["bos_token_id"] = id_or_null(config.bos_id);
  out["eos_token_id"] = eos_json(config.eos_ids);
  out["pad_token_id"] = id_or_null(config.pad_id);
  out["tie_word_embeddings"] = config.tied_embeddings;
  out["torch_dtype"] = torch_name(config.stored_dtype);
  out["use_cache"] = true;
  return out;
}

}  // namespace jige::formats

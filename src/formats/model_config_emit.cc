// ModelConfig -> config.json, in the spelling that old (4.x) and new (5.x) transformers both read.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "formats/model_config.h"
#include "formats/model_config_activation.h"
#include "formats/model_config_biases.h"
#include "formats/model_config_encoder.h"
#include "formats/model_config_experts.h"
#include "formats/model_config_falcon.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_gemma3n.h"
#include "formats/model_config_gemma4.h"
#include "formats/model_config_granite.h"
#include "formats/model_config_latent.h"
#include "formats/model_config_layers.h"
#include "formats/model_config_learned.h"
#include "formats/model_config_llama4.h"
#include "formats/model_config_minicpm.h"
#include "formats/model_config_parts.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_config_recurrent_only.h"
#include "formats/model_config_rope.h"
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

Json window_or_null(const ModelConfig& config) {
  return config.sliding_window > 0 ? Json(config.sliding_window) : Json();
}

std::vector<uint8_t> window_flags(const ModelConfig& config) {
  if (!config.layer_is_sliding.empty()) return config.layer_is_sliding;
  return std::vector<uint8_t>(static_cast<size_t>(config.layer_count), config.sliding_window > 0);
}

Json layer_types(const ModelConfig& config) {
  Json types = Json::array();
  for (const uint8_t sliding : window_flags(config)) {
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  return types;
}

void emit_qwen_windows(const ModelConfig& config, Json& out) {
  const std::vector<uint8_t> flags = window_flags(config);
  const auto first = std::find(flags.begin(), flags.end(), uint8_t{1});
  out["use_sliding_window"] = config.sliding_window > 0;
  out["sliding_window"] = window_or_null(config);
  out["max_window_layers"] = first - flags.begin();
  out["layer_types"] = layer_types(config);
}

Json cap_or_null(double cap) { return cap > 0 ? Json(cap) : Json(); }

void emit_gemma(const ModelConfig& config, Json& out) {
  out["sliding_window"] = window_or_null(config);
  out["layer_types"] = layer_types(config);
  out["query_pre_attn_scalar"] = number_or_whole(config.score_dim);
  out["attn_logit_softcapping"] = cap_or_null(config.score_cap);
  out["final_logit_softcapping"] = cap_or_null(config.logits_cap);
}

// Readers before layer_types know a pattern alone: all layers but each so manieth have the window.
void emit_gemma3_pattern(const ModelConfig& config, Json& out) {
  const std::vector<uint8_t> flags = window_flags(config);
  const auto full = std::find(flags.begin(), flags.end(), uint8_t{0});
  const auto period = full - flags.begin() + 1;
  bool regular = true;
  for (size_t i = 0; i < flags.size(); ++i) {
    regular = regular && flags[i] == ((static_cast<std::ptrdiff_t>(i) + 1) % period != 0);
  }
  if (regular) out["sliding_window_pattern"] = period;
}

void emit_granite_scales(const ModelConfig& config, Json& out) {
  out["embedding_multiplier"] = config.embedding_scale;
  out["attention_multiplier"] = config.score_scale;
  out["residual_multiplier"] = config.residual_scale;
  const bool multiplied = family_info(config.family).logits_multiplied;
  out["logits_scaling"] = multiplied ? config.logits_scale : config.logits_divisor;
}

void emit_smollm3(const ModelConfig& config, Json& out) {
  Json turned = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    const auto at = static_cast<size_t>(i);
    turned.push_back(config.layer_is_unturned.empty() || !config.layer_is_unturned[at] ? 1 : 0);
  }
  out["no_rope_layers"] = std::move(turned);
  out["use_sliding_window"] = config.sliding_window > 0;
  out["sliding_window"] = window_or_null(config);
  out["layer_types"] = layer_types(config);
}

// Families of whose windows nothing is to be said but how wide they are and which layers have them.
bool lists_windows(Family family) {
  switch (family) {
    case Family::kOlmo3:
    case Family::kCohere2:
    case Family::kCwm:
    case Family::kMinistral:
    case Family::kExaone4:
    case Family::kExaoneMoe:
    case Family::kMellum:
    case Family::kGraniteSwa:
    case Family::kGraniteMoeSwa:
    case Family::kGptOss:
    case Family::kDots1:
      return true;
    default:
      return false;
  }
}

void emit_windows(const ModelConfig& config, Json& out) {
  out["sliding_window"] = window_or_null(config);
  out["layer_types"] = layer_types(config);
}

// What families say alone whose queries, keys and values are one product by heads of keys.
void emit_head_fields(const ModelConfig& config, Json& out) {
  if (config.family == Family::kFalcon) emit_falcon(config, out);
  if (config.family != Family::kInternLm2) return;
  out["num_key_value_heads"] = config.kv_head_count;
  out["bias"] = false;
}

// What a family has that others have not.
void emit_family_fields(const ModelConfig& config, Json& out) {
  if (lists_windows(config.family)) return emit_windows(config, out);
  if (config.qkv_by_head) emit_head_fields(config, out);
  switch (config.family) {
    case Family::kMistral:
    case Family::kMinistral3:
    case Family::kPhi3:
    case Family::kMixtral:
    case Family::kStarCoder2:
      out["sliding_window"] = window_or_null(config);
      break;
    case Family::kQwen2Moe:
      out["layer_types"] = layer_types(config);
      [[fallthrough]];
    case Family::kQwen3Moe:
      out["use_sliding_window"] = config.sliding_window > 0;
      out["sliding_window"] = window_or_null(config);
      break;
    case Family::kQwen2:
    case Family::kQwen3:
      emit_qwen_windows(config, out);
      break;
    case Family::kVaultGemma:
    case Family::kGemma2:
      emit_gemma(config, out);
      break;
    case Family::kGemma3:
      emit_gemma(config, out);
      emit_gemma3_pattern(config, out);
      break;
    case Family::kGemma4:
      emit_windows(config, out);
      emit_gemma4(config, out);
      break;
    case Family::kGemma3n:
      emit_windows(config, out);
      emit_gemma3n(config, out);
      break;
    case Family::kMiniCpm:
    case Family::kMiniCpm3:
      emit_minicpm(config, out);
      break;
    case Family::kLlama4:
      emit_llama4_layers(config, out);
      break;
    case Family::kModernBert:
      out["layer_types"] = layer_types(config);
      emit_side_windows(config, out);
      break;
    case Family::kSmolLm3:
      emit_smollm3(config, out);
      break;
    case Family::kSeedOss:
      out["residual_dropout"] = 0.0;
      break;
    case Family::kGptNeoX:
      out["hidden_dropout"] = 0.0;
      break;
    case Family::kPhi:
      out["resid_pdrop"] = 0.0;
      out["embd_pdrop"] = 0.0;
      break;
    default:
      break;
  }
}

// What its row of the table says that a family has.
void emit_family_features(const ModelConfig& config, Json& out) {
  const FamilyInfo& family = family_info(config.family);
  if (may_be_recurrent(config.family)) emit_recurrent(config, out);
  if (family.single_parts) emit_single_parts(config, out);
  if (family.granite_scales) emit_granite_scales(config, out);
  if (family.unturned == UnturnedRule::kByTheta) emit_layer_thetas(config, out);
  if (family.logits_cap_field) out["final_logit_softcapping"] = cap_or_null(config.logits_cap);
  if (family.logit_scale) out["logit_scale"] = config.logits_scale;
  if (family.residual_use != ResidualUse::kAlways) {
    out["use_parallel_residual"] = config.residual != ResidualForm::kSequential;
  }
  if (!family.around_field.empty()) {
    out[std::string(family.around_field)] = config.norm_place == NormPlace::kAround;
  }
  if (!family.head_gate_field.empty()) {
    out[std::string(family.head_gate_field)] = config.head_gates;
  }
  if (!family.head_norms_field.empty()) {
    out[std::string(family.head_norms_field)] =
        config.qk_norm || config.qk_norm_apart || config.qk_norm_plain;
  }
  if (family.token_types) out["type_vocab_size"] = config.token_types;
  if (has_experts(config.family)) emit_experts(config, out);
}

void emit_rotary_family(const ModelConfig& config, Json& out) {
  const SizeFields fields = size_fields(config.family);
  out[std::string(fields.hidden)] = config.hidden_size;
  out[std::string(fields.ffn)] = config.ffn_size;
  out[std::string(fields.layers)] = config.layer_count;
  out[std::string(fields.heads)] = config.head_count;
  if (!covers_width(config.family)) {
    out["num_key_value_heads"] = config.kv_head_count;
    out["head_dim"] = config.head_dim;
  }
  if (family_info(config.family).latent_attention) emit_latent(config, out);
  if (config.activation == ActivationKind::kGeGlu) {
    // The first Gemma has it by the usual name too.
    if (config.family == Family::kGemma) out["hidden_act"] = "gelu_pytorch_tanh";
    out["hidden_activation"] = "gelu_pytorch_tanh";
  } else if (config.family == Family::kModernBert) {
    out["hidden_activation"] = usual_activation(config.activation);
  } else if (family_info(config.family).chooses_activation) {
    out[activation_field(config.family)] = plain_activation_name(config.activation);
  } else {
    out["hidden_act"] = usual_activation(config.activation);
  }
  out[std::string(fields.context)] = config.context_max;
  out[std::string(fields.norm_eps)] = config.norm_eps;
  if (family_info(config.family).unturned != UnturnedRule::kAll) emit_rope(config, out);
  emit_biases(config, out);
  emit_family_fields(config, out);
  emit_family_features(config, out);
  emit_looking_ahead(config, out);
  out["attention_dropout"] = 0.0;
}

}  // namespace

Json to_hf_config(const ModelConfig& config) {
  const FamilyInfo& info = family_info(config.family);
  Json out;
  out["architectures"] = Json::array({info.causal_class});
  out["model_type"] = info.model_type;
  out["vocab_size"] = config.vocab_size;
  if (info.position_table) {
    emit_position_table(config, out);
  } else if (info.recurrent_only) {
    emit_recurrent_only(config, out);
  } else if (info.learned_positions) {
    emit_encoder(config, out);
  } else {
    emit_rotary_family(config, out);
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

// config.json -> ModelConfig.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/file_content.h"
#include "base/json.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/model_config_activation.h"
#include "formats/model_config_biases.h"
#include "formats/model_config_encoder.h"
#include "formats/model_config_experts.h"
#include "formats/model_config_falcon.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_gemma3n.h"
#include "formats/model_config_gemma4.h"
#include "formats/model_config_gte.h"
#include "formats/model_config_latent.h"
#include "formats/model_config_layers.h"
#include "formats/model_config_learned.h"
#include "formats/model_config_lfm2.h"
#include "formats/model_config_minicpm.h"
#include "formats/model_config_parts.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_config_recurrent_only.h"
#include "formats/model_config_rope.h"
#include "formats/model_config_sizes.h"
#include "formats/model_config_text_part.h"
#include "formats/model_config_token_ids.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr double kGemmaScoreDimDefault = 256;
constexpr double kCohereLogitScaleDefault = 0.0625;

// The first entry of "architectures", or empty.
Result<std::string> first_architecture(const Json& config, std::string_view where) {
  const Json* list = find_field(config, "architectures");
  if (!list || (list->is_array() && list->empty())) return std::string();
  if (!list->is_array() || !list->front().is_string()) {
    return fail(Code::kCorrupt, "{}: field \"architectures\" must be a list of names", where);
  }
  return list->front().get<std::string>();
}

Result<Family> detect_family(const Json& config, std::string_view where) {
  JIGE_TRY(std::string type, get_string_or(config, "model_type", "", where));
  if (type == "kimi_k2") type = "deepseek_v3";  // which it is, in all but the name
  JIGE_TRY(const std::string name, first_architecture(config, where));
  if (type.empty() && name.empty()) {
    return fail(Code::kNotFound, "{}: fields \"model_type\" and \"architectures\" are missing",
                where);
  }
  const FamilyInfo* by_type = nullptr;
  const FamilyInfo* by_name = nullptr;
  std::string known;
  for (const FamilyInfo& info : kFamilies) {
    if (info.model_type == type) by_type = &info;
    if (info.causal_class == name || info.base_class == name) by_name = &info;
    if (!name.empty() && info.pair_class == name) by_name = &info;
    if (info.encoder && info.model_type == type && is_encoder_class(info, name)) by_name = &info;
    known += (known.empty() ? "" : ", ") + std::string(info.causal_class);
  }
  if ((!type.empty() && !by_type) || (!name.empty() && !by_name)) {
    return fail(
        Code::kUnsupported,
        "{}: architecture \"{}\" (model_type \"{}\") is not one that Jige knows; it knows {}",
        where, name, type, known);
  }
  if (by_type && by_type->llama_class && name.starts_with("Llama")) by_name = by_type;
  if (by_type && by_name && by_type != by_name) {
    return fail(Code::kCorrupt, "{}: model_type \"{}\" contradicts architecture \"{}\"", where,
                type, name);
  }
  return (by_type ? by_type : by_name)->family;
}

Result<DType> parse_stored_dtype(const Json& config, std::string_view where) {
  JIGE_TRY(std::string old_name, get_string_or(config, "torch_dtype", "", where));
  JIGE_TRY(std::string new_name, get_string_or(config, "dtype", "", where));
  if (!old_name.empty() && !new_name.empty() && old_name != new_name) {
    return fail(Code::kCorrupt, "{}: torch_dtype \"{}\" contradicts dtype \"{}\"", where, old_name,
                new_name);
  }
  std::string name = new_name.empty() ? old_name : new_name;
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.empty() || name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return fail(Code::kUnsupported,
              "{}: field \"{}\" is \"{}\"; supported are float32, bfloat16 and float16", where,
              new_name.empty() ? "torch_dtype" : "dtype", name);
}

// Null means as many as query heads.
Result<int64_t> parse_kv_head_count(const Json& config, const ModelConfig& out,
                                    std::string_view where) {
  if (out.family == Family::kFalcon) return parse_falcon_kv_heads(config, out, where);
  if (out.qkv_by_head && !family_info(out.family).shares_heads) return out.head_count;
  int64_t fallback = family_info(out.family).kv_heads;
  if (fallback == 0 || present(config, "num_key_value_heads")) fallback = out.head_count;
  return get_size_or(config, "num_key_value_heads", fallback, where);
}

Result<int64_t> parse_head_dim(const Json& config, const ModelConfig& out, std::string_view where) {
  if (find_field(config, "head_dim")) return get_int(config, "head_dim", where);
  const int64_t usual = family_info(out.family).head_dim;
  if (usual > 0) return usual;
  return divided_head_dim(out, where);
}

Status parse_activation(const Json& config, ModelConfig& out, std::string_view where) {
  if (family_info(out.family).chooses_activation) {
    JIGE_TRY(out.activation,
             parse_plain_activation(config, activation_field(out.family), out, where));
    return {};
  }
  const bool silu = out.activation == ActivationKind::kSwiGlu;
  const bool gemma = out.family == Family::kGemma;
  const bool new_field =
      out.family == Family::kModernBert || (out.activation == ActivationKind::kGeGlu && !gemma);
  const char* field = new_field ? "hidden_activation" : "hidden_act";
  const char* wanted = usual_activation(out.activation);
  JIGE_TRY(const std::string activation, get_string_or(config, field, wanted, where));
  if (activation == wanted || (silu && activation == "swish")) return {};
  if (out.family == Family::kNomicBert && activation == "swiglu") return {};  // as published
  // Folders of the first Gemma say so and mean the other, as transformers knows.
  if (gemma && activation == "gelu") return {};
  return fail(Code::kUnsupported, "{}: {} \"{}\" is not supported for {}; it must be {}", where,
              field, activation, family_name(out.family), wanted);
}

// Fields that would change what a family computes, where they are not absent, null or false, nor
// count nothing.
std::vector<const char*> variant_fields(Family family) {
  switch (family) {
    case Family::kOlmo:
    case Family::kOlmoe:
      return {"clip_qkv"};
    case Family::kHelium:
      return {"mlp_bias"};
    case Family::kIQuestCoder:
      return {"clip_qkv", "use_sliding_window"};
    case Family::kPhi:
      return {"qk_layernorm"};
    case Family::kInternLm2:
      return {"bias"};
    case Family::kMiniCpm:
      return {"attention_bias", "num_experts", "sparse_config"};
    case Family::kFalcon:
      return {"alibi", "apply_residual_connection_post_layernorm"};
    case Family::kHyV3:
      return {"mlp_bias"};
    case Family::kNomicBert:
      return {"causal",
              "prenorm",
              "parallel_block",
              "qkv_proj_bias",
              "mlp_fc1_bias",
              "mlp_fc2_bias",
              "use_rms_norm",
              "num_experts",
              "rotary_emb_interleaved",
              "rotary_emb_scale_base"};
    case Family::kGte:
      return {"logn_attention_scale"};
    case Family::kNemotronH:
      return {"attention_bias", "sliding_window", "moe_latent_size"};
    default:
      return {};
  }
}

Status refuse_variants(const Json& config, Family family, std::string_view where) {
  for (const char* field : variant_fields(family)) {
    const Json* value = find_field(config, field);
    if (!value || *value == false) continue;
    if (field == std::string_view("num_experts") && *value == 0) continue;
    return fail(Code::kUnsupported, "{}: field \"{}\" is {}, which Jige does not support", where,
                field, dump_json(*value).substr(0, 80));
  }
  return {};
}

// Null means none.
Result<double> parse_cap(const Json& config, const char* field, double usual,
                         std::string_view where) {
  if (present(config, field)) usual = 0;
  JIGE_TRY(const double cap, get_number_or(config, field, usual, where));
  if (cap > 0 || !find_field(config, field)) return cap;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must be positive or null", where, field,
              cap);
}

// What a family multiplies with, besides its weights, and the bounds it sets.
Status parse_scales(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  if (family.root_scale) {
    out.embedding_scale = std::sqrt(static_cast<double>(std::max<int64_t>(out.hidden_size, 1)));
  }
  if (family.gemma_scores) {
    JIGE_TRY(out.score_dim,
             get_number_or(config, "query_pre_attn_scalar", kGemmaScoreDimDefault, where));
    JIGE_TRY(out.score_cap, parse_cap(config, "attn_logit_softcapping", family.score_cap, where));
    JIGE_TRY(out.logits_cap,
             parse_cap(config, "final_logit_softcapping", family.logits_cap, where));
  }
  if (family.logits_cap_field) {
    JIGE_TRY(out.logits_cap,
             parse_cap(config, "final_logit_softcapping", family.logits_cap, where));
  }
  if (family.granite_scales) {
    JIGE_TRY(out.embedding_scale, get_number_or(config, "embedding_multiplier", 1.0, where));
    JIGE_TRY(out.residual_scale, get_number_or(config, "residual_multiplier", 1.0, where));
    const auto columns = static_cast<double>(std::max<int64_t>(out.head_dim, 1));
    const double usual = family.logits_multiplied ? 1.0 / std::sqrt(columns) : 1.0;
    JIGE_TRY(out.score_scale, get_number_or(config, "attention_multiplier", usual, where));
    double& logits = family.logits_multiplied ? out.logits_scale : out.logits_divisor;
    JIGE_TRY(logits, get_number_or(config, "logits_scaling", 1.0, where));
  }
  if (is_minicpm(out.family)) JIGE_DO(parse_minicpm_scales(config, out, where));
  if (family.logit_scale) {
    JIGE_TRY(out.logits_scale,
             get_number_or(config, "logit_scale", kCohereLogitScaleDefault, where));
  }
  return {};
}

// Which of the family's features a model has.
Status parse_switches(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  if (family.residual_use != ResidualUse::kAlways) {
    const bool usual = family.residual_use == ResidualUse::kUnlessSwitchedOff;
    JIGE_TRY(const bool on, get_bool_or(config, "use_parallel_residual", usual, where));
    if (!on) out.residual = ResidualForm::kSequential;
  }
  if (!family.around_field.empty()) {
    JIGE_TRY(const bool around, get_bool_or(config, family.around_field, true, where));
    if (!around) out.norm_place = NormPlace::kBefore;
  }
  if (out.family == Family::kGptJ) {  // whose usual number is that of the 6B alone
    JIGE_DO(get_int(config, kTurnedColumns, where));
  }
  if (out.family == Family::kInternLm2 && !find_field(config, "bias")) {  // its class has them then
    return fail(Code::kNotFound, "{}: field \"bias\" is missing", where);
  }
  if (!family.norm_bias_field.empty()) {
    JIGE_TRY(out.norm_bias, get_bool_or(config, family.norm_bias_field, out.norm_bias, where));
  }
  if (!family.head_gate_field.empty()) {
    JIGE_TRY(out.head_gates, get_bool_or(config, family.head_gate_field, true, where));
  }
  if (!family.head_norms_field.empty()) {
    JIGE_TRY(const bool on,
             get_bool_or(config, family.head_norms_field, family.head_norms_usual, where));
    out.qk_norm = out.qk_norm && on;
    out.qk_norm_apart = out.qk_norm_apart && on;
    out.qk_norm_plain = out.qk_norm_plain && on;
  }
  return {};
}

Status parse_rotary_family(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  const SizeFields fields = size_fields(out.family);
  JIGE_TRY(out.hidden_size, get_own_or_common(config, fields.hidden, "hidden_size", where));
  if (family.single_parts) {
    JIGE_DO(parse_single_parts(config, out, where));
  } else {
    JIGE_TRY(out.layer_count, get_own_or_common(config, fields.layers, "num_hidden_layers", where));
    if (family.unturned == UnturnedRule::kAll) leave_unturned(out);
  }
  JIGE_TRY(out.head_count, get_own_or_common(config, fields.heads, "num_attention_heads", where));
  JIGE_TRY(out.ffn_size, out.family == Family::kLfm2 ? parse_lfm2_ffn_size(config, where)
                         : family.altup              ? parse_gemma3n_ffn_size(config, where)
                                                     : parse_ffn_size(config, out, where));
  JIGE_TRY(out.context_max, parse_context(config, out.family, where));
  JIGE_TRY(out.norm_eps, get_number_or(config, fields.norm_eps, family.norm_eps, where));
  JIGE_TRY(out.kv_head_count, parse_kv_head_count(config, out, where));
  if (family.latent_attention) {
    JIGE_DO(parse_latent(config, out, where));
  } else {
    JIGE_TRY(out.head_dim, parse_head_dim(config, out, where));
  }
  JIGE_DO(parse_activation(config, out, where));
  const bool own_tied = family.short_conv_layers && find_field(config, "tie_embedding");
  const char* tied = own_tied ? "tie_embedding" : "tie_word_embeddings";
  JIGE_TRY(out.tied_embeddings, get_bool_or(config, tied, family.tied, where));
  if (family.encoder) out.tied_embeddings = true;  // there is no head
  JIGE_DO(parse_biases(config, out, where));
  JIGE_DO(refuse_variants(config, out.family, where));
  JIGE_DO(parse_switches(config, out, where));
  JIGE_DO(parse_scales(config, out, where));
  if (family.token_types) JIGE_DO(parse_token_types(config, out, where));
  if (out.family == Family::kNomicBert) JIGE_DO(parse_trained_context(config, out, where));
  if (out.family == Family::kGte) JIGE_DO(parse_gte(config, out, where));
  if (out.family == Family::kFalcon) JIGE_DO(parse_falcon(config, out, where));
  if (family.full_heads) JIGE_DO(parse_full_heads(config, out, where));
  if (family.altup) JIGE_DO(parse_gemma3n(config, out, where));
  return has_experts(out.family) ? parse_experts(config, out, where) : Status();
}

// Whether the matrices are stored in few bits, and how: MXFP4 is found in the files.
Result<bool> parse_quantisation(const Json& config, ModelConfig& out, std::string_view where) {
  // The name that compressed-tensors wrote in its first versions.
  const char* old_name = "compression_config";
  const Json* found = find_field(config, "quantization_config");
  if (!found) found = find_field(config, old_name);
  if (!found) return false;
  JIGE_TRY(const std::string method, get_string_or(*found, "quant_method", "absent", where));
  if (out.family == Family::kGptOss && method == "mxfp4") return true;
  // GPT-2's codes would have to be turned.
  if (out.family == Family::kGptOss || out.family == Family::kGpt2) {
    return fail(Code::kUnsupported,
                "{}: the weights are quantised (method \"{}\"), which Jige does not read of {}; "
                "take the unquantised model",
                where, method, family_name(out.family));
  }
  JIGE_TRY(out.quantised, parse_quantised_scheme(*found, where));
  return true;
}

}  // namespace

Result<ModelConfig> parse_model_config(const Json& whole, std::string_view where) {
  if (!whole.is_object()) return fail(Code::kCorrupt, "{}: must be a JSON object", where);
  JIGE_TRY(const Json config, text_part(whole, where));
  ModelConfig out;
  JIGE_TRY(out.family, detect_family(config, where));
  set_family_features(out);
  JIGE_TRY(const bool quantised, parse_quantisation(config, out, where));
  JIGE_TRY(out.vocab_size, get_int(config, "vocab_size", where));
  JIGE_TRY(out.stored_dtype, parse_stored_dtype(config, where));
  const bool stated = find_field(config, "dtype") || find_field(config, "torch_dtype");
  if (quantised && !stated) out.stored_dtype = DType::kBF16;
  JIGE_DO(family_info(out.family).position_table      ? parse_position_table(config, out, where)
          : family_info(out.family).recurrent_only    ? parse_recurrent_only(config, out, where)
          : family_info(out.family).learned_positions ? parse_encoder(config, out, where)
                                                      : parse_rotary_family(config, out, where));
  // Sizes first: what follows allocates by the number of layers.
  const auto checked = [&]() -> Status {
    Status status = check_model_config(out, where);
    if (!status) status.error().code = Code::kCorrupt;
    return status;
  };
  JIGE_DO(checked());
  if (out.position == PositionKind::kRotary) JIGE_DO(parse_rope(config, out, where));
  JIGE_DO(may_be_recurrent(out.family) ? parse_recurrent(config, out, where)
                                       : parse_layers(config, out, where));
  JIGE_DO(parse_looking_ahead(config, out, where));
  JIGE_DO(check_kind_ropes(out, where));
  if (family_info(out.family).full_heads) JIGE_DO(parse_layer_heads(config, out, where));
  if (family_info(out.family).altup) JIGE_DO(parse_ffn_sparsity(config, out, where));
  JIGE_DO(parse_token_ids(config, out, where));
  JIGE_DO(checked());
  return out;
}

Result<ModelConfig> load_model_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Result<ModelConfig> config = load_model_config_file(path);
  std::error_code error;
  if (!config && !std::filesystem::exists(path, error)) {
    return fail(Code::kNotFound, "{}: is not there; \"{}\" is no Hugging Face model folder", path,
                folder);
  }
  return as_file_content(std::move(config));
}

Result<ModelConfig> load_model_config_file(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kConfigBytesMax));
  JIGE_TRY(const Json json, parse_json_object(json_of_python(text), path));
  return parse_model_config(json, path);
}

}  // namespace jige::formats

#include "formats/model_config_gemma4.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "formats/model_config_expert_fields.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kFullHeadDimDefault = 512;
constexpr int64_t kLayerInputsDefault = 256;
constexpr int64_t kLayerVocabDefault = 262144;
constexpr int64_t kLayerInputColumnsMax = int64_t{1} << 20;  // of all layers
constexpr const char* kLayerInputs = "hidden_size_per_layer_input";
constexpr const char* kLayerVocab = "vocab_size_per_layer_input";
constexpr const char* kSharedLayers = "num_kv_shared_layers";
constexpr const char* kDoubleFfn = "use_double_wide_mlp";
constexpr const char* kShared = "attention_k_eq_v";
constexpr const char* kHeadDim = "global_head_dim";
constexpr const char* kKvHeads = "num_global_key_value_heads";
constexpr const char* kByLayer = "per_layer_config";
constexpr const char* kExperts = "enable_moe_block";
constexpr const char* kChosenExperts = "top_k_experts";

// Embeddings for every layer, and layers that share keys and values.
Status parse_layer_parts(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t size, get_int_or(config, kLayerInputs, kLayerInputsDefault, where));
  if (size != 0) {
    out.layer_inputs.size = size;
    JIGE_TRY(out.layer_inputs.vocab_size,
             get_int_or(config, kLayerVocab, kLayerVocabDefault, where));
  }
  JIGE_TRY(out.shared_kv_layers, get_int_or(config, kSharedLayers, 0, where));
  JIGE_TRY(out.shared_double_ffn, get_bool_or(config, kDoubleFfn, false, where));
  return {};
}

// The heads that per_layer_config gives a layer.
Result<FullHeadsConfig> heads_of(const Json& layer, const ModelConfig& out,
                                 std::string_view where) {
  if (!layer.is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must hold an object for each layer it names",
                where, kByLayer);
  }
  for (const auto& [name, value] : layer.items()) {
    if (name == "head_dim" || name == "num_key_value_heads") continue;
    return fail(Code::kUnsupported,
                "{}: field \"{}\" sets \"{}\", which Jige does not support; it may set head_dim "
                "and num_key_value_heads",
                where, kByLayer, name.substr(0, 80));
  }
  FullHeadsConfig heads = out.full_heads;
  JIGE_TRY(heads.head_dim, get_int_or(layer, "head_dim", out.head_dim, where));
  JIGE_TRY(heads.kv_head_count, get_int_or(layer, "num_key_value_heads", out.kv_head_count, where));
  return heads;
}

Result<int64_t> layer_number(const std::string& text, const ModelConfig& out,
                             std::string_view where) {
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error == std::errc() && end == text.data() + text.size() && layer >= 0 &&
      layer < out.layer_count) {
    return layer;
  }
  return fail(Code::kCorrupt, "{}: field \"{}\" names layer \"{}\" of {}", where, kByLayer,
              text.substr(0, 80), out.layer_count);
}

}  // namespace

Status parse_full_heads(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_DO(parse_layer_parts(config, out, where));
  FullHeadsConfig& full = out.full_heads;
  JIGE_TRY(full.keys_are_values, get_bool_or(config, kShared, false, where));
  JIGE_TRY(full.head_dim, get_size_or(config, kHeadDim, kFullHeadDimDefault, where));
  JIGE_TRY(full.kv_head_count, get_size_or(config, kKvHeads, out.kv_head_count, where));
  // Elsewhere the field does not count.
  if (!full.keys_are_values) full.kv_head_count = out.kv_head_count;
  return {};
}

Status parse_layer_heads(const Json& config, ModelConfig& out, std::string_view where) {
  const Json* layers = find_field(config, kByLayer);
  if (!layers) return {};
  if (!layers->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be an object or null", where, kByLayer);
  }
  const FullHeadsConfig usual{.head_dim = out.head_dim,
                              .kv_head_count = out.kv_head_count,
                              .keys_are_values = out.full_heads.keys_are_values};
  std::vector<FullHeadsConfig> heads(static_cast<size_t>(out.layer_count), usual);
  for (const auto& [name, layer] : layers->items()) {
    JIGE_TRY(const int64_t number, layer_number(name, out, where));
    JIGE_TRY(heads[static_cast<size_t>(number)], heads_of(layer, out, where));
  }
  std::optional<FullHeadsConfig> full;
  for (int64_t i = 0; i < out.layer_count; ++i) {
    const FullHeadsConfig& mine = heads[static_cast<size_t>(i)];
    const bool differs = has_window(out, i) ? mine != usual : full && mine != *full;
    if (differs) {
      return fail(Code::kUnsupported,
                  "{}: field \"{}\" gives layer {} other heads than layers of its kind have, which "
                  "Jige does not support",
                  where, kByLayer, i);
    }
    if (!has_window(out, i)) full = mine;
  }
  if (full) out.full_heads = *full;
  return {};
}

namespace {

Status check_layer_parts(const ModelConfig& config, std::string_view where) {
  const LayerInputConfig& inputs = config.layer_inputs;
  const bool altup = family_info(config.family).altup;
  const bool own = family_info(config.family).full_heads || altup;
  const int64_t shared = config.shared_kv_layers;
  if (!own) {
    if (inputs == LayerInputConfig() && shared == 0 && !config.shared_double_ffn) return {};
    return fail(Code::kInvalidArgument,
                "{}: {} models have no embeddings for every layer and share no keys", where,
                family_name(config.family));
  }
  if (inputs.size < 0 || inputs.size > kLayerInputColumnsMax / config.layer_count) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [0, {}]", where,
                kLayerInputs, inputs.size, kLayerInputColumnsMax / config.layer_count);
  }
  // In Gemma 3n tokens that the table does not have are its first.
  const int64_t vocab_min = altup ? 1 : config.vocab_size;
  if (inputs.size > 0 && (inputs.vocab_size < vocab_min || inputs.vocab_size > kVocabMax)) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where,
                kLayerVocab, inputs.vocab_size, vocab_min, kVocabMax);
  }
  if (shared < 0 || shared >= config.layer_count) {
    return fail(Code::kInvalidArgument,
                "{}: field \"{}\" is {} of {} layers; some must have keys of their own", where,
                kSharedLayers, shared, config.layer_count);
  }
  if (config.shared_double_ffn && config.ffn_size > kFfnMax / 2) {
    return fail(Code::kInvalidArgument, "{}: intermediate_size ({}) twice is over the limit of {}",
                where, config.ffn_size, kFfnMax);
  }
  for (int64_t layer = config.layer_count - shared; layer < config.layer_count; ++layer) {
    if (key_source(config, layer) >= 0) continue;
    return fail(Code::kInvalidArgument,
                "{}: field \"{}\" ({}) leaves layer {} no layer of its kind with keys to share",
                where, kSharedLayers, shared, layer);
  }
  return {};
}

}  // namespace

Status check_full_heads(const ModelConfig& config, std::string_view where) {
  JIGE_DO(check_layer_parts(config, where));
  const FullHeadsConfig& full = config.full_heads;
  if (!family_info(config.family).full_heads) {
    if (full == FullHeadsConfig()) return {};
    return fail(Code::kInvalidArgument, "{}: {} models have the same heads in every layer", where,
                family_name(config.family));
  }
  if (full.head_dim < 2 || full.head_dim > kHeadDimMax || full.head_dim % 2 != 0) {
    return fail(Code::kInvalidArgument,
                "{}: field \"{}\" is {}; it must be even, as columns turn in pairs, and in [2, {}]",
                where, kHeadDim, full.head_dim, kHeadDimMax);
  }
  if (config.head_count * full.head_dim > kAttentionWidthMax) {
    return fail(Code::kInvalidArgument,
                "{}: num_attention_heads ({}) times {} ({}) is over the limit of {}", where,
                config.head_count, kHeadDim, full.head_dim, kAttentionWidthMax);
  }
  if (full.kv_head_count < 1 || config.head_count % full.kv_head_count != 0) {
    return fail(Code::kInvalidArgument, "{}: {} ({}) does not divide num_attention_heads ({})",
                where, kKvHeads, full.kv_head_count, config.head_count);
  }
  if (full.kv_head_count != config.kv_head_count && !full.keys_are_values) {
    return fail(Code::kInvalidArgument,
                "{}: layers without window have {} key/value heads and others {}, which \"{}\" "
                "must allow",
                where, full.kv_head_count, config.kv_head_count, kShared);
  }
  return {};
}

Status parse_gemma4_experts(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const bool any, get_bool_or(config, kExperts, false, where));
  if (!any) return {};
  const ExpertFields fields = expert_fields(out);
  ExpertConfig& experts = out.experts;
  JIGE_TRY(experts.count, get_int(config, fields.count, where));
  JIGE_TRY(experts.chosen, get_int(config, kChosenExperts, where));
  JIGE_TRY(experts.ffn_size, get_int(config, fields.ffn, where));
  experts.normalised = experts.beside_mlp = true;
  if (experts.count >= 1 && experts.chosen >= 1 && experts.chosen <= experts.count) return {};
  return fail(Code::kCorrupt, "{}: fields \"{}\" ({}) and \"{}\" ({}) give no token its experts",
              where, fields.count, experts.count, kChosenExperts, experts.chosen);
}

void emit_gemma4_experts(const ModelConfig& config, Json& out) {
  const ExpertFields fields = expert_fields(config);
  const ExpertConfig& experts = config.experts;
  out[kExperts] = experts.count > 0;
  if (experts.count == 0) return;
  out[std::string(fields.count)] = experts.count;
  out[kChosenExperts] = experts.chosen;
  out[std::string(fields.ffn)] = experts.ffn_size;
}

void emit_gemma4(const ModelConfig& config, Json& out) {
  const FullHeadsConfig& full = config.full_heads;
  out[kHeadDim] = full.head_dim;
  out[kShared] = full.keys_are_values;
  out[kKvHeads] = full.keys_are_values ? Json(full.kv_head_count) : Json();
  const LayerInputConfig& inputs = config.layer_inputs;
  out[kLayerInputs] = inputs.size;
  out[kLayerVocab] = inputs.size > 0 ? inputs.vocab_size : config.vocab_size;
  out[kSharedLayers] = config.shared_kv_layers;
  out[kDoubleFfn] = config.shared_double_ffn;
}

}  // namespace jige::formats

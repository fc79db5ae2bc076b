#include "formats/model_config_learned.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/model_config_activation.h"
#include "formats/model_config_biases.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_sizes.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kScoresScaled = "scale_attn_weights";
constexpr const char* kScoresByLayer = "scale_attn_by_inverse_layer_idx";
constexpr const char* kCrossAttention = "add_cross_attention";
constexpr const char* kOneKeyHead = "multi_query";
constexpr const char* kAttentionKinds = "attention_types";  // names, and how often they follow
constexpr const char* kLayerKinds = "attention_layers";
constexpr const char* kLocalWindow = "window_size";
constexpr const char* kNormsBefore = "do_layer_norm_before";
constexpr const char* kNoLastNorm = "_remove_final_layer_norm";
constexpr const char* kTableWidth = "word_embed_proj_dim";

// Whether attention scores are divided, and by what.
Status parse_score_scale(const Json& config, ModelConfig& out, std::string_view where) {
  if (!family_info(out.family).chooses_score_scale) return {};
  JIGE_TRY(out.scores_by_head_dim, get_bool_or(config, kScoresScaled, true, where));
  if (out.family == Family::kGpt2) {
    JIGE_TRY(out.scores_by_layer, get_bool_or(config, kScoresByLayer, false, where));
  }
  JIGE_TRY(const bool cross_attention, get_bool_or(config, kCrossAttention, false, where));
  if (!cross_attention) return {};
  return fail(Code::kUnsupported, "{}: field \"{}\" is true, which Jige does not support", where,
              kCrossAttention);
}

Status parse_opt(const Json& config, ModelConfig& out, std::string_view where) {
  for (const auto& [field, usual] :
       {std::pair(kNormsBefore, true), std::pair(kNoLastNorm, false)}) {
    JIGE_TRY(const bool value, get_bool_or(config, field, usual, where));
    if (value == usual) continue;
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {}, which Jige does not support; of the published models only "
                "OPT 350M is so",
                where, field, value);
  }
  JIGE_TRY(const int64_t width, get_int_or(config, kTableWidth, out.hidden_size, where));
  if (width != out.hidden_size) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {}, which Jige does not support; it must be hidden_size ({})",
                where, kTableWidth, width, out.hidden_size);
  }
  JIGE_TRY(out.norm_weights,
           get_bool_or(config, family_info(out.family).norm_weights_field, true, where));
  out.norm_bias = out.norm_weights;
  return {};
}

// The kinds of layers by their names.
Status read_local_flags(const Json& names, std::vector<uint8_t>& flags, std::string_view where) {
  for (const Json& entry : names) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
    if (name != "global" && name != "local") {
      return fail(Code::kUnsupported,
                  "{}: layer type \"{}\" is not supported; supported are global and local", where,
                  name.substr(0, 80));
    }
    flags.push_back(name == "local");
  }
  return {};
}

tl::unexpected<Error> wrong_kinds(const ModelConfig& out, std::string_view where) {
  return fail(Code::kCorrupt,
              "{}: field \"{}\" must be a list of lists of names and how often they follow, for {} "
              "layers together",
              where, kAttentionKinds, out.layer_count);
}

// attention_types, [[["global", "local"], 12]], as flags.
Result<std::vector<uint8_t>> expanded_kinds(const Json& kinds, const ModelConfig& out,
                                            std::string_view where) {
  std::vector<uint8_t> flags;
  if (!kinds.is_array()) return wrong_kinds(out, where);
  for (const Json& kind : kinds) {
    if (!kind.is_array() || kind.size() != 2 || !kind[0].is_array() || kind[0].empty() ||
        !kind[1].is_number_integer()) {
      return wrong_kinds(out, where);
    }
    std::vector<uint8_t> some;
    JIGE_DO(read_local_flags(kind[0], some, where));
    const Json wrapped = {{kAttentionKinds, kind[1]}};
    JIGE_TRY(const int64_t times, get_int(wrapped, kAttentionKinds, where));
    const auto left = static_cast<size_t>(out.layer_count) - flags.size();
    if (times < 0 || static_cast<uint64_t>(times) > left / some.size()) {
      return wrong_kinds(out, where);
    }
    for (int64_t i = 0; i < times; ++i) flags.insert(flags.end(), some.begin(), some.end());
  }
  if (flags.size() != static_cast<size_t>(out.layer_count)) return wrong_kinds(out, where);
  return flags;
}

void emit_local_layers(const ModelConfig& config, Json& out) {
  Json names = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    names.push_back(has_window(config, i) ? "local" : "global");
  }
  out[kAttentionKinds] = Json::array({Json::array({names, 1})});
  out[kLayerKinds] = std::move(names);
  out[kLocalWindow] =
      config.sliding_window > 0 ? config.sliding_window : family_info(config.family).window;
}

}  // namespace

Status parse_position_table(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  const SizeFields fields = size_fields(out.family);
  JIGE_TRY(out.hidden_size, get_own_or_common(config, fields.hidden, "hidden_size", where));
  JIGE_TRY(out.layer_count, get_own_or_common(config, fields.layers, "num_hidden_layers", where));
  JIGE_TRY(out.head_count, get_own_or_common(config, fields.heads, "num_attention_heads", where));
  JIGE_TRY(out.context_max, parse_context(config, out.family, where));
  JIGE_TRY(out.ffn_size, parse_ffn_size(config, out, where));
  out.norm_eps = family.norm_eps;
  if (out.family != Family::kOpt) {  // whose models all have the same
    JIGE_TRY(out.norm_eps, get_number_or(config, fields.norm_eps, family.norm_eps, where));
  }
  out.kv_head_count = out.head_count;
  if (out.family == Family::kGptBigCode) {
    JIGE_TRY(const bool one, get_bool_or(config, kOneKeyHead, true, where));
    if (one) out.kv_head_count = 1;
  }
  JIGE_TRY(out.head_dim, divided_head_dim(out, where));
  JIGE_TRY(out.activation,
           parse_plain_activation(config, activation_field(out.family), out, where));
  JIGE_DO(parse_score_scale(config, out, where));
  if (out.family == Family::kOpt) JIGE_DO(parse_opt(config, out, where));
  JIGE_TRY(out.tied_embeddings, get_bool_or(config, "tie_word_embeddings", family.tied, where));
  out.position = PositionKind::kLearned;
  out.position_offset = family.position_offset;
  return parse_biases(config, out, where);
}

Status parse_local_layers(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(out.sliding_window,
           get_size_or(config, kLocalWindow, family_info(out.family).window, where));
  // As transformers does, which computes the second of the first.
  std::vector<uint8_t> flags;
  if (const Json* kinds = find_field(config, kAttentionKinds)) {
    JIGE_TRY(flags, expanded_kinds(*kinds, out, where));
  } else {
    for (int64_t i = 0; i < out.layer_count; ++i) flags.push_back(i % 2 == 1);
  }
  const auto local = std::count(flags.begin(), flags.end(), uint8_t{1});
  if (local == 0) out.sliding_window = 0;
  if (local > 0 && local < out.layer_count) out.layer_is_sliding = std::move(flags);
  return {};
}

void emit_position_table(const ModelConfig& config, Json& out) {
  const SizeFields fields = size_fields(config.family);
  out[std::string(fields.hidden)] = config.hidden_size;
  out[std::string(fields.layers)] = config.layer_count;
  out[std::string(fields.heads)] = config.head_count;
  out[std::string(fields.context)] = config.context_max;
  out[std::string(fields.ffn)] = config.ffn_size;
  out[activation_field(config.family)] = plain_activation_name(config.activation);
  emit_biases(config, out);
  if (family_info(config.family).chooses_score_scale) {
    out[kScoresScaled] = config.scores_by_head_dim;
    for (const char* field : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[field] = 0.0;
  }
  if (config.family != Family::kOpt) out[std::string(fields.norm_eps)] = config.norm_eps;
  switch (config.family) {
    case Family::kGpt2:
      out["n_ctx"] = config.context_max;
      out[kScoresByLayer] = config.scores_by_layer;
      return;
    case Family::kGptBigCode:
      out[kOneKeyHead] = config.kv_head_count == 1;
      return;
    case Family::kGptNeo:
      emit_local_layers(config, out);
      for (const char* field : {"resid_dropout", "embed_dropout", "attention_dropout"}) {
        out[field] = 0.0;
      }
      return;
    case Family::kOpt:
      out[std::string(family_info(config.family).norm_weights_field)] = config.norm_weights;
      out[kNormsBefore] = true;
      out[kNoLastNorm] = false;
      out[kTableWidth] = config.hidden_size;
      for (const char* field : {"dropout", "attention_dropout", "layerdrop"}) out[field] = 0.0;
      return;
    default:
      return;
  }
}

}  // namespace jige::formats

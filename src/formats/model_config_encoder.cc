#include "formats/model_config_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/model_config_activation.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// RoBERTa's first token has the row behind that of padding.
bool begins_behind_padding(Family family) { return family != Family::kBert; }

Status refuse_encoder_variants(const Json& config, std::string_view where) {
  JIGE_TRY(const std::string kind,
           get_string_or(config, "position_embedding_type", "absolute", where));
  if (kind != "absolute") {
    return fail(Code::kUnsupported,
                "{}: field \"position_embedding_type\" is \"{}\", which Jige does not support; it "
                "computes \"absolute\"",
                where, kind.substr(0, 80));
  }
  for (const char* field : {"is_decoder", "add_cross_attention"}) {
    JIGE_TRY(const bool on, get_bool_or(config, field, false, where));
    if (!on) continue;
    return fail(Code::kUnsupported, "{}: field \"{}\" is true, which Jige does not support", where,
                field);
  }
  return {};
}

}  // namespace

bool is_encoder_class(const FamilyInfo& family, std::string_view name) {
  const std::string_view base = family.base_class;
  return name.starts_with(base.substr(0, base.size() - std::string_view("Model").size()));
}

Status parse_encoder(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_DO(refuse_encoder_variants(config, where));
  JIGE_TRY(out.hidden_size, get_int(config, "hidden_size", where));
  JIGE_TRY(out.layer_count, get_int(config, "num_hidden_layers", where));
  JIGE_TRY(out.head_count, get_int(config, "num_attention_heads", where));
  JIGE_TRY(out.ffn_size, get_int(config, "intermediate_size", where));
  JIGE_TRY(out.norm_eps,
           get_number_or(config, "layer_norm_eps", family_info(out.family).norm_eps, where));
  JIGE_TRY(const int64_t rows, get_int(config, "max_position_embeddings", where));
  if (begins_behind_padding(out.family)) {
    JIGE_TRY(const int64_t padding,
             get_int_or(config, "pad_token_id", family_info(out.family).pad, where));
    if (padding < 0 || padding > kContextMax) {
      return fail(Code::kCorrupt, "{}: field \"pad_token_id\" is {}; it must lie in [0, {}]", where,
                  padding, kContextMax);
    }
    out.position_offset = padding + 1;
  }
  out.context_max = rows - out.position_offset;
  JIGE_TRY(out.token_types, get_size_or(config, "type_vocab_size", 2, where));
  out.kv_head_count = out.head_count;
  if (out.head_count > 0 && out.hidden_size % out.head_count == 0) {
    out.head_dim = out.hidden_size / out.head_count;
  } else {
    return fail(Code::kCorrupt, "{}: num_attention_heads ({}) does not divide hidden_size ({})",
                where, out.head_count, out.hidden_size);
  }
  JIGE_TRY(out.activation, parse_plain_activation(config, "hidden_act", out, where));
  out.qkv_bias = out.output_bias = out.mlp_bias = true;
  out.tied_embeddings = true;  // there is no head
  out.position = PositionKind::kLearned;
  out.looks_ahead = true;
  return {};
}

void emit_encoder(const ModelConfig& config, Json& out) {
  out["hidden_size"] = config.hidden_size;
  out["num_hidden_layers"] = config.layer_count;
  out["num_attention_heads"] = config.head_count;
  out["intermediate_size"] = config.ffn_size;
  out["layer_norm_eps"] = config.norm_eps;
  out["max_position_embeddings"] = config.context_max + config.position_offset;
  out["type_vocab_size"] = config.token_types;
  out["hidden_act"] = plain_activation_name(config.activation);
  for (const char* field : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) {
    out[field] = 0.0;
  }
}

Status check_encoder(const ModelConfig& config, std::string_view where) {
  const bool encoder = family_info(config.family).encoder;
  if (!encoder && config.position_offset == 0 && config.token_types == 0) return {};
  const bool offset = begins_behind_padding(config.family);
  if (encoder && config.looks_ahead && (config.position_offset > 0) == offset &&
      config.position_offset <= kContextMax + 1 && config.token_types >= 1 &&
      config.token_types <= kVocabMax &&
      (!offset || config.pad_id + 1 == config.position_offset || config.pad_id < 0)) {
    return {};
  }
  return fail(Code::kInvalidArgument,
              "{}: {} token types and positions from row {} on do not belong to a {} model", where,
              config.token_types, config.position_offset, family_name(config.family));
}

}  // namespace jige::formats

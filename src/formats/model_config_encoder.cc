#include "formats/model_config_encoder.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/model_config_activation.h"
#include "formats/model_config_deberta.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// RoBERTa's first token has the row behind that of padding.
bool begins_behind_padding(Family family) {
  return family == Family::kRoberta || family == Family::kXlmRoberta || family == Family::kMpNet;
}

// MPNet's row of padding is this one, whatever the id of padding is.
constexpr int64_t kMpNetPadding = 1;
// What transformers computes buckets of, however many config.json says.
constexpr int64_t kDistanceBuckets = 32;
constexpr const char* kBuckets = "relative_attention_num_buckets";

Status parse_distances(const Json& config, ModelConfig& out, std::string_view where) {
  if (!family_info(out.family).distance_scores) return {};
  JIGE_TRY(out.distance_buckets, get_int_or(config, kBuckets, kDistanceBuckets, where));
  if (out.distance_buckets == kDistanceBuckets) return {};
  return fail(Code::kUnsupported,
              "{}: field \"{}\" is {}, which Jige does not support; it computes {}", where,
              kBuckets, out.distance_buckets, kDistanceBuckets);
}

// DistilBERT's is the same in all models.
bool has_norm_eps(Family family) { return family != Family::kDistilBert; }

constexpr int64_t kTrainedPositions = 2048;  // of NomicBERT
constexpr const char* kAngles = "rope_parameters";
constexpr double kSideTheta = 1e4;
constexpr int64_t kSidesMin = 2;  // tokens of a window, one to each side

// The object that says how the heads of layers of a kind turn, or null.
Result<const Json*> angles_of(const Json& config, const char* kind, std::string_view where) {
  const Json* all = find_field(config, kAngles);
  if (all && !all->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be an object or null", where, kAngles);
  }
  const Json* object = all ? find_field(*all, kind) : nullptr;
  if (object && !object->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" of {} must be an object or null", where, kind,
                kAngles);
  }
  return object;
}

Status refuse_scaled_angles(const Json& object, std::string_view where) {
  JIGE_TRY(const std::string old_type, get_string_or(object, "type", "default", where));
  JIGE_TRY(const std::string type, get_string_or(object, "rope_type", old_type, where));
  if (type == "default") return {};
  return fail(Code::kUnsupported,
              "{}: rope type \"{}\" is not supported for this family; it computes default alone",
              where, type.substr(0, 80));
}

// Of layers of a kind: an object's, or that of a field at the top.
Result<double> angle_theta(const Json& config, const char* kind, const char* field, double usual,
                           std::string_view where) {
  JIGE_TRY(const Json* object, angles_of(config, kind, where));
  JIGE_TRY(const double top, get_number_or(config, field, usual, where));
  if (!object) return top;
  JIGE_DO(refuse_scaled_angles(*object, where));
  return get_number_or(*object, "rope_theta", top, where);
}

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
  const FamilyInfo& family = family_info(out.family);
  const SizeFields fields = size_fields(out.family);
  JIGE_TRY(out.hidden_size, get_int(config, fields.hidden, where));
  JIGE_TRY(out.layer_count, get_int(config, fields.layers, where));
  JIGE_TRY(out.head_count, get_int(config, fields.heads, where));
  JIGE_TRY(out.ffn_size, get_int(config, fields.ffn, where));
  out.norm_eps = family.norm_eps;
  if (has_norm_eps(out.family)) {
    JIGE_TRY(out.norm_eps, get_number_or(config, fields.norm_eps, family.norm_eps, where));
  }
  JIGE_TRY(const int64_t rows, get_int(config, fields.context, where));
  if (begins_behind_padding(out.family)) {
    JIGE_TRY(int64_t padding, get_int_or(config, "pad_token_id", family.pad, where));
    if (padding < 0 || padding > kContextMax) {
      return fail(Code::kCorrupt, "{}: field \"pad_token_id\" is {}; it must lie in [0, {}]", where,
                  padding, kContextMax);
    }
    if (out.family == Family::kMpNet) padding = kMpNetPadding;
    out.position_offset = padding + 1;
  }
  out.context_max = rows - out.position_offset;
  if (family.token_types) JIGE_DO(parse_token_types(config, out, where));
  JIGE_DO(parse_distances(config, out, where));
  out.kv_head_count = out.head_count;
  if (out.head_count > 0 && out.hidden_size % out.head_count == 0) {
    out.head_dim = out.hidden_size / out.head_count;
  } else {
    return fail(Code::kCorrupt, "{}: {} ({}) does not divide {} ({})", where, fields.heads,
                out.head_count, fields.hidden, out.hidden_size);
  }
  JIGE_TRY(out.activation,
           parse_plain_activation(config, activation_field(out.family), out, where));
  out.qkv_bias = out.output_bias = out.mlp_bias = true;
  out.tied_embeddings = true;  // there is no head
  out.position = PositionKind::kLearned;
  return family.distance_rows ? parse_deberta(config, out, where) : Status();
}

void emit_encoder(const ModelConfig& config, Json& out) {
  const SizeFields fields = size_fields(config.family);
  out[std::string(fields.hidden)] = config.hidden_size;
  out[std::string(fields.layers)] = config.layer_count;
  out[std::string(fields.heads)] = config.head_count;
  out[std::string(fields.ffn)] = config.ffn_size;
  if (has_norm_eps(config.family)) out[std::string(fields.norm_eps)] = config.norm_eps;
  out[std::string(fields.context)] = config.context_max + config.position_offset;
  if (config.distance_buckets > 0) out[kBuckets] = config.distance_buckets;
  if (family_info(config.family).token_types) out["type_vocab_size"] = config.token_types;
  if (config.distance_rows.side > 0) emit_deberta(config, out);
  out[activation_field(config.family)] = plain_activation_name(config.activation);
  if (config.family == Family::kDistilBert) {
    out["dropout"] = out["attention_dropout"] = 0.0;
    return;
  }
  for (const char* field : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) {
    out[field] = 0.0;
  }
}

Status parse_token_types(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  const int64_t usual = family.token_type_count;
  if (family.types_optional) {
    JIGE_TRY(out.token_types, get_int_or(config, "type_vocab_size", usual, where));
    if (out.token_types == 0) return {};
  }
  JIGE_TRY(out.token_types, get_size_or(config, "type_vocab_size", usual, where));
  return {};
}

Status parse_trained_context(const Json& config, ModelConfig& out, std::string_view where) {
  if (!find_field(config, "rotary_scaling_factor")) return {};
  JIGE_TRY(const int64_t trained,
           get_size_or(config, "max_trained_positions", kTrainedPositions, where));
  out.context_max = std::min(out.context_max, trained);
  return {};
}

Status parse_side_window(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t both,
           get_int_or(config, "local_attention", family_info(out.family).window, where));
  if (both < kSidesMin || both > kContextMax) {
    return fail(Code::kCorrupt, "{}: field \"local_attention\" is {}; it must lie in [{}, {}]",
                where, both, kSidesMin, kContextMax);
  }
  out.sliding_window = both / 2;
  return {};
}

Status parse_side_ropes(const Json& config, ModelConfig& out, std::string_view where) {
  if (const Json* scaling = find_field(config, "rope_scaling")) {
    JIGE_DO(refuse_scaled_angles(*scaling, where));
  }
  JIGE_TRY(out.rope.theta, angle_theta(config, "full_attention", "global_rope_theta",
                                       family_info(out.family).theta, where));
  // transformers before 5 took null for the theta of the others.
  const double usual = present(config, "local_rope_theta") ? out.rope.theta : kSideTheta;
  JIGE_TRY(const double theta,
           angle_theta(config, "sliding_attention", "local_rope_theta", usual, where));
  if (theta != out.rope.theta) out.sliding_rope = RopeConfig{.theta = theta};
  return {};
}

void emit_side_windows(const ModelConfig& config, Json& out) {
  out["norm_bias"] = config.norm_bias;
  if (config.sliding_window > 0) out["local_attention"] = 2 * (config.sliding_window - 1);
  const std::vector<uint8_t>& sliding = config.layer_is_sliding;
  // Readers before layer_types know a pattern alone: each so manieth layer, from the first on, has
  // no window.
  const auto second =
      sliding.empty() ? sliding.end() : std::find(sliding.begin() + 1, sliding.end(), uint8_t{0});
  const auto period = second - sliding.begin();
  bool regular = !sliding.empty() || config.sliding_window == 0;
  for (size_t i = 0; i < sliding.size(); ++i) {
    regular = regular && sliding[i] == (static_cast<std::ptrdiff_t>(i) % period != 0);
  }
  if (regular) out["global_attn_every_n_layers"] = sliding.empty() ? 1 : period;
}

void emit_side_ropes(const ModelConfig& config, Json& out) {
  const double theta = config.sliding_rope.value_or(config.rope).theta;
  out["global_rope_theta"] = config.rope.theta;
  out["local_rope_theta"] = theta;
  out[kAngles] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", config.rope.theta}}},
                  {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", theta}}}};
}

Status check_encoder(const ModelConfig& config, std::string_view where) {
  const FamilyInfo& family = family_info(config.family);
  if (!family.encoder && config.position_offset == family.position_offset &&
      config.token_types == 0 && config.distance_buckets == 0) {
    return {};
  }
  const bool offset = begins_behind_padding(config.family);
  const bool types = family.token_types;
  const bool types_fit =
      (config.token_types >= 1) == types || (family.types_optional && config.token_types == 0);
  const bool offset_fits = config.family == Family::kMpNet
                               ? config.position_offset == kMpNetPadding + 1
                               : config.pad_id + 1 == config.position_offset || config.pad_id < 0;
  if (family.encoder && config.looks_ahead && (config.position_offset > 0) == offset &&
      config.position_offset <= kContextMax + 1 && types_fit && config.token_types <= kVocabMax &&
      config.distance_buckets == (family.distance_scores ? kDistanceBuckets : 0) &&
      (!offset || offset_fits)) {
    return {};
  }
  return fail(Code::kInvalidArgument,
              "{}: {} token types and positions from row {} on do not belong to a {} model", where,
              config.token_types, config.position_offset, family_name(config.family));
}

}  // namespace jige::formats

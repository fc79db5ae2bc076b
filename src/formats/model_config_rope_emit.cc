// Rotary positions of a ModelConfig -> config.json, in spellings that old and new readers share.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "formats/model_config_encoder.h"
#include "formats/model_config_gte.h"
#include "formats/model_config_rope.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// Old readers take no more than these three fields, and the rest from the top.
void emit_longrope(const ModelConfig& config, Json& out) {
  const RopeConfig& rope = config.rope;
  out["original_max_position_embeddings"] = rope.original_context;
  Json scaling;
  scaling["type"] = "longrope";
  scaling["short_factor"] = rope.short_factors;
  scaling["long_factor"] = rope.long_factors;
  const double ratio =
      static_cast<double>(config.context_max) / static_cast<double>(rope.original_context);
  if (rope.attention_factor != default_attention_factor(ratio, rope.original_context)) {
    scaling["attention_factor"] = rope.attention_factor;
  }
  // Of Phi-3 they take it from the top alone.
  if (config.family != Family::kPhi3) {
    scaling["original_max_position_embeddings"] = rope.original_context;
  }
  out["rope_scaling"] = std::move(scaling);
}

Json yarn_json(const RopeConfig& rope) {
  Json scaling;
  scaling["rope_type"] = "yarn";
  scaling["factor"] = rope.factor;
  scaling["beta_fast"] = rope.beta_fast;
  scaling["beta_slow"] = rope.beta_slow;
  scaling["truncate"] = rope.truncate;
  scaling["original_max_position_embeddings"] = rope.original_context;
  if (rope.mscale > 0) scaling["mscale"] = rope.mscale;
  if (rope.mscale_all > 0) scaling["mscale_all_dim"] = rope.mscale_all;
  if (rope.attention_factor != inferred_attention_factor(rope)) {
    scaling["attention_factor"] = rope.attention_factor;
  }
  return scaling;
}

Json linear_or_llama3_json(const RopeConfig& rope) {
  Json scaling;
  scaling["rope_type"] = rope.scaling == RopeScaling::kLinear ? "linear" : "llama3";
  scaling["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::kLlama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = rope.original_context;
  }
  return scaling;
}

// Of all but longrope.
Json scaling_json(const RopeConfig& rope) {
  return rope.scaling == RopeScaling::kYarn ? yarn_json(rope) : linear_or_llama3_json(rope);
}

// One of the objects of a family whose folders have one for each kind of layer.
Json kind_json(const RopeConfig& rope) {
  Json object{{"rope_type", "default"}};
  if (rope.scaling == RopeScaling::kProportional) {
    object = {{"rope_type", "proportional"}, {"partial_rotary_factor", rope.turned_share}};
    if (rope.factor != 1.0) object["factor"] = rope.factor;
  } else if (rope.scaling != RopeScaling::kNone) {
    object = scaling_json(rope);
  }
  object["rope_theta"] = rope.theta;
  return object;
}

void emit_kind_ropes(const ModelConfig& config, Json& out) {
  out["rope_parameters"] = {
      {"full_attention", kind_json(config.rope)},
      {"sliding_attention", kind_json(config.sliding_rope.value_or(RopeConfig()))}};
}

// Old readers know the first two fields alone. New ones would take another theta than the full
// layers' for the others from these, so they are given both.
void emit_olmo3_rope(const ModelConfig& config, Json& out) {
  const RopeConfig& rope = config.rope;
  const bool scaled = rope.scaling != RopeScaling::kNone;
  Json full = scaled ? scaling_json(rope) : Json{{"rope_type", "default"}};
  if (scaled) out["rope_scaling"] = full;
  full["rope_theta"] = rope.theta;
  const double sliding_theta = config.sliding_rope.value_or(rope).theta;
  if (sliding_theta != rope.theta) out.erase("rope_theta");
  out["rope_parameters"] = {
      {"full_attention", std::move(full)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", sliding_theta}}}};
}

// Of Ministral 3 and Mistral 4, whose readers know the new spelling alone.
void emit_growing_rope(const ModelConfig& config, Json& out) {
  Json all = yarn_json(config.rope);
  all["rope_theta"] = config.rope.theta;
  all["llama_4_scaling_beta"] = config.rope.query_growth;
  if (config.latent.rank > 0) {
    all["partial_rotary_factor"] = partial_rotary_factor(config.rotary_dim, config.head_dim);
  }
  out["rope_parameters"] = std::move(all);
}

}  // namespace

void emit_rope(const ModelConfig& config, Json& out) {
  const RopeConfig& rope = config.rope;
  const FamilyInfo& family = family_info(config.family);
  if (config.family == Family::kMinistral3 || config.family == Family::kMistral4) {
    return emit_growing_rope(config, out);
  }
  if (config.family == Family::kGptJ) {  // which says nothing else of it
    out[kTurnedColumns] = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
    return;
  }
  if (config.family == Family::kModernBert) return emit_side_ropes(config, out);
  if (config.family == Family::kGte) return emit_gte(config, out);
  if (family.ropes_by_kind) return emit_kind_ropes(config, out);
  if (family.unturned == UnturnedRule::kIfNoTheta && !config.layer_is_unturned.empty()) {
    out["rope_theta"] = nullptr;
    out["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
    return;
  }
  out[std::string(family.theta_field)] = rope.theta;
  out["rope_scaling"] = nullptr;
  if (config.family == Family::kOlmo3) return emit_olmo3_rope(config, out);
  if (config.family == Family::kGemma3 || config.family == Family::kGemma3n) {
    out["rope_local_base_freq"] = config.sliding_rope.value_or(rope).theta;
  }
  const bool other_factor = family.turned_factor != 1.0;
  if ((config.rotary_dim > 0 && !family.latent_attention) || other_factor) {
    const int64_t columns = config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
    out[std::string(family.turned_field)] = partial_rotary_factor(columns, config.head_dim);
    if (family.counts_turned) out[kTurnedColumns] = columns;
  }
  if (rope.scaling == RopeScaling::kNone) {
    // Left out, it would be yarn or llama3.
    if (config.family == Family::kGptOss || config.family == Family::kApertus ||
        config.family == Family::kCwm) {
      out["rope_scaling"] = {{"rope_type", "default"}};
    }
    return;
  }
  if (rope.scaling == RopeScaling::kLongRope) return emit_longrope(config, out);
  out["rope_scaling"] = scaling_json(rope);
}

}  // namespace jige::formats

// Names, checks and counts of ModelConfig; reading and writing stand in
// model_config_{parse,emit}.cc.
#include "formats/model_config.h"

#include <algorithm>
#include <cmath>

#include "formats/model_config_biases.h"
#include "formats/model_config_deberta.h"
#include "formats/model_config_encoder.h"
#include "formats/model_config_experts.h"
#include "formats/model_config_falcon.h"
#include "formats/model_config_falcon_h1.h"
#include "formats/model_config_feature.h"
#include "formats/model_config_gemma3n.h"
#include "formats/model_config_gemma4.h"
#include "formats/model_config_latent.h"
#include "formats/model_config_llama4.h"
#include "formats/model_config_parts.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// Checks one configuration; each function covers one kind of contradiction.
class Checker {
 public:
  Checker(const ModelConfig& config, std::string_view where)
      : c_(config),
        family_(family_info(config.family)),
        fields_(size_fields(config.family)),
        where_(where) {}

  Status run() const {
    JIGE_DO(sizes());
    JIGE_DO(heads());
    JIGE_DO(check_full_heads(c_, where_));
    JIGE_DO(check_gemma3n(c_, where_));
    JIGE_DO(check_llama4_layers(c_, where_));
    JIGE_DO(check_latent(c_, where_));
    JIGE_DO(check_parts(c_, where_));
    JIGE_DO(check_recurrent(c_, where_));
    JIGE_DO(check_falcon_h1(c_, where_));
    JIGE_DO(check_experts(c_, where_));
    JIGE_DO(rope());
    JIGE_DO(windows());
    JIGE_DO(scales());
    JIGE_DO(token_ids());
    return family_features();
  }

 private:
  Status in_range(std::string_view field, int64_t value, int64_t low, int64_t high) const {
    if (value >= low && value <= high) return {};
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where_,
                field, value, low, high);
  }
  Status real_in_range(std::string_view field, double value, double low, double high) const {
    if (value >= low && value <= high) return {};  // false for NaN
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where_,
                field, value, low, high);
  }

  Status sizes() const {
    JIGE_DO(in_range("vocab_size", c_.vocab_size, 1, kVocabMax));
    JIGE_DO(in_range(fields_.hidden, c_.hidden_size, 1, kHiddenMax));
    JIGE_DO(in_range(fields_.layers, c_.layer_count, 1, kLayersMax));
    JIGE_DO(in_range(fields_.heads, c_.head_count, 1, kHeadsMax));
    JIGE_DO(in_range("num_key_value_heads", c_.kv_head_count, 1, kHeadsMax));
    JIGE_DO(in_range("head_dim", c_.head_dim, 1, kHeadDimMax));
    JIGE_DO(in_range(fields_.ffn, c_.ffn_size, 1, kFfnMax));
    JIGE_DO(in_range(fields_.context, c_.context_max, 1, kContextMax));
    return real_in_range(fields_.norm_eps, c_.norm_eps, 1e-30, 1.0);
  }

  Status heads() const {
    if (c_.head_count * c_.head_dim > kAttentionWidthMax) {
      return fail(Code::kInvalidArgument, "{}: {} ({}) times head_dim ({}) is over the limit of {}",
                  where_, fields_.heads, c_.head_count, c_.head_dim, kAttentionWidthMax);
    }
    if (c_.head_count % c_.kv_head_count != 0) {
      return fail(Code::kInvalidArgument, "{}: num_key_value_heads ({}) does not divide {} ({})",
                  where_, c_.kv_head_count, fields_.heads, c_.head_count);
    }
    return {};
  }

  Status rope() const {
    if (c_.position != PositionKind::kRotary) return {};
    JIGE_DO(real_in_range("rope_theta", c_.rope.theta, 1.0, 1e18));
    if (c_.sliding_rope) {
      JIGE_DO(real_in_range("rope_local_base_freq", c_.sliding_rope->theta, 1.0, 1e18));
      JIGE_DO(rope_scaling(*c_.sliding_rope));
    }
    if (family_.unturned != UnturnedRule::kAll && c_.head_dim % 2 != 0) {
      return fail(Code::kInvalidArgument,
                  "{}: rotary embeddings turn pairs, but head_dim ({}) is odd", where_,
                  c_.head_dim);
    }
    if (c_.rotary_dim < 0 || c_.rotary_dim % 2 != 0 || c_.rotary_dim > c_.head_dim) {
      return fail(Code::kInvalidArgument, "{}: {} makes {} of {} columns of a head turn, in pairs",
                  where_, family_.turned_field, c_.rotary_dim, c_.head_dim);
    }
    if (!c_.layer_is_unturned.empty() &&
        c_.layer_is_unturned.size() != static_cast<size_t>(c_.layer_count)) {
      return fail(Code::kInvalidArgument, "{}: no_rope_layers has {} entries for {} layers", where_,
                  c_.layer_is_unturned.size(), c_.layer_count);
    }
    return rope_scaling(c_.rope);
  }

  Status longrope(const RopeConfig& rope) const {
    const int64_t columns = c_.rotary_dim > 0 ? c_.rotary_dim : c_.head_dim;
    const auto count = static_cast<size_t>(columns / 2);
    if (rope.short_factors.size() != count || rope.long_factors.size() != count) {
      return fail(Code::kInvalidArgument,
                  "{}: short_factor and long_factor have {} and {} numbers for {} pairs of columns",
                  where_, rope.short_factors.size(), rope.long_factors.size(), count);
    }
    JIGE_DO(in_range("original_max_position_embeddings", rope.original_context, 2, kContextMax));
    return real_in_range("attention_factor", rope.attention_factor, 1e-3, 1e3);
  }

  Status yarn(const RopeConfig& rope) const {
    JIGE_DO(real_in_range("beta_fast", rope.beta_fast, 1e-3, 1e6));
    JIGE_DO(real_in_range("beta_slow", rope.beta_slow, 1e-3, rope.beta_fast));
    JIGE_DO(real_in_range("rope_theta", rope.theta, 1.0 + 1e-6, 1e18));  // its logarithm divides
    JIGE_DO(in_range("original_max_position_embeddings", rope.original_context, 1, kContextMax));
    JIGE_DO(real_in_range("mscale", rope.mscale, 0.0, 1e3));
    JIGE_DO(real_in_range("mscale_all_dim", rope.mscale_all, 0.0, 1e3));
    JIGE_DO(real_in_range("llama_4_scaling_beta", rope.query_growth, 0.0, 1e3));
    return real_in_range("attention_factor", rope.attention_factor, 1e-3, 1e3);
  }

  Status rope_scaling(const RopeConfig& rope) const {
    if (rope.scaling == RopeScaling::kNone) return {};
    if (rope.scaling == RopeScaling::kLongRope) return longrope(rope);
    JIGE_DO(real_in_range("factor", rope.factor, 1.0, 1e6));
    if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kNtk) return {};
    if (rope.scaling == RopeScaling::kProportional) {
      return real_in_range("partial_rotary_factor", rope.turned_share, 0.0, 1.0);
    }
    if (rope.scaling == RopeScaling::kYarn) return yarn(rope);
    JIGE_DO(real_in_range("low_freq_factor", rope.low_freq_factor, 1e-6, 1e6));
    JIGE_DO(real_in_range("high_freq_factor", rope.high_freq_factor, 1e-6, 1e6));
    JIGE_DO(in_range("original_max_position_embeddings", rope.original_context, 1, kContextMax));
    if (rope.high_freq_factor < rope.low_freq_factor) {
      return fail(Code::kInvalidArgument,
                  "{}: high_freq_factor ({}) must not be below low_freq_factor ({})", where_,
                  rope.high_freq_factor, rope.low_freq_factor);
    }
    return {};
  }

  Status windows() const {
    JIGE_DO(in_range("sliding_window", c_.sliding_window, 0, kContextMax));
    if (c_.layer_is_sliding.empty()) return {};
    if (c_.layer_is_sliding.size() != static_cast<size_t>(c_.layer_count)) {
      return fail(Code::kInvalidArgument, "{}: layer_types has {} entries for {} layers", where_,
                  c_.layer_is_sliding.size(), c_.layer_count);
    }
    if (c_.sliding_window == 0) {
      return fail(Code::kInvalidArgument, "{}: layer_types is given without a sliding_window",
                  where_);
    }
    return {};
  }

  Status scales() const {
    JIGE_DO(real_in_range("query_pre_attn_scalar", c_.score_dim, 0.0, 1e6));
    JIGE_DO(real_in_range("attention_multiplier", c_.score_scale, 0.0, 1e6));
    JIGE_DO(real_in_range("embedding_multiplier", c_.embedding_scale, 1e-6, 1e6));
    JIGE_DO(real_in_range("residual_multiplier", c_.residual_scale, 1e-6, 1e6));
    JIGE_DO(real_in_range("logit_scale", c_.logits_scale, 1e-6, 1e6));
    for (const auto& [field, cap] : {std::pair("attn_logit_softcapping", c_.score_cap),
                                     std::pair("final_logit_softcapping", c_.logits_cap)}) {
      if (cap != 0) JIGE_DO(real_in_range(field, cap, 1e-6, 1e6));
    }
    return real_in_range("logits_scaling", c_.logits_divisor, 1e-6, 1e6);
  }

  Status token_ids() const {
    const int64_t last = c_.vocab_size - 1;
    for (const int32_t id : c_.eos_ids) JIGE_DO(in_range("eos_token_id", id, 0, last));
    JIGE_DO(in_range("bos_token_id", c_.bos_id, -1, last));
    return in_range("pad_token_id", c_.pad_id, -1, last);
  }

  Status require(bool holds, std::string_view feature) const {
    return require_feature(holds, c_.family, feature, where_);
  }

  Status norm_features() const {
    const bool layer = family_.norm == NormKind::kLayer;
    JIGE_DO(require(c_.norm == family_.norm, layer ? "layer norms" : "RMS norms"));
    const bool bare = !family_.around_field.empty() && c_.norm_place == NormPlace::kBefore;
    JIGE_DO(require(bare || c_.norm_place == family_.norm_place,
                    family_.norm_place == NormPlace::kAround
                        ? "norms before and behind a layer's parts"
                    : family_.norm_place == NormPlace::kAfter ? "norms behind a layer's parts"
                    : family_.norm_place == NormPlace::kSum   ? "norms behind the sums of a layer"
                                                              : "norms before a layer's parts"));
    JIGE_DO(require(c_.recurrent_norms_before == family_.recurrent_norms_before,
                    family_.recurrent_norms_before ? "norms before recurrent layers' parts"
                                                   : "norms of all layers in one place"));
    JIGE_DO(require(c_.norm_adds_one == family_.norm_adds_one,
                    family_.norm_adds_one ? "norms that add one to their weight"
                                          : "norms that are their weight"));
    JIGE_DO(require(!family_.norm_bias_field.empty() || !family_.norm_weights_field.empty() ||
                        c_.norm_bias == family_.norm_bias,
                    family_.norm_bias ? "biases in layer norms" : "layer norms without biases"));
    const bool chooses = !family_.norm_weights_field.empty();
    JIGE_DO(
        require(chooses ? c_.norm_bias == c_.norm_weights : c_.norm_weights == family_.norm_weights,
                family_.norm_weights ? "norms with weights" : "norms without weights"));
    JIGE_DO(require(c_.bare_entry == family_.bare_entry,
                    family_.bare_entry ? "no norm before the first layer's attention"
                                       : "norms before the parts of every layer alike"));
    JIGE_DO(require(c_.embedding_norm == family_.embedding_norm,
                    family_.embedding_norm ? "a norm of embeddings" : "no norm of embeddings"));
    JIGE_DO(residual_features());
    const bool each = family_.head_norms == HeadNorms::kEach;
    const bool chosen = !family_.head_norms_field.empty();
    JIGE_DO(require(c_.qk_norm == each || (each && chosen),
                    each ? "query and key norms" : "no query or key norms"));
    JIGE_DO(require(c_.qk_norm_turned == family_.norms_turned,
                    family_.norms_turned ? "norms of heads behind their turning"
                                         : "no norms of heads behind their turning"));
    const bool apart = family_.head_norms == HeadNorms::kEachApart;
    JIGE_DO(require(c_.qk_norm_apart == apart || chosen,
                    "no norms of query and key heads with weights of their own"));
    const bool plain = family_.head_norms == HeadNorms::kEachPlain;
    JIGE_DO(require(c_.qk_norm_plain == plain || (plain && chosen),
                    "no norms of query and key heads without weights"));
    const bool whole = family_.head_norms == HeadNorms::kWhole;
    return require(c_.qk_norm_whole == whole,
                   whole ? "norms of all queries and of all keys" : "no norm of all queries");
  }

  Status residual_features() const {
    if (c_.family == Family::kFalcon) return check_falcon(c_, where_);
    if (c_.residual == family_.residual) return {};
    return require(
        family_.residual_use != ResidualUse::kAlways && c_.residual == ResidualForm::kSequential,
        family_.residual == ResidualForm::kSequential ? "attention and MLP one after the other"
        : family_.residual == ResidualForm::kParallel
            ? "attention and MLP side by side, with a norm each"
            : "attention and MLP side by side, behind one norm");
  }

  Status attention_features() const {
    const bool gemma = family_.gemma_scores;
    const bool learned = family_.position_table || family_.learned_positions;
    const bool neither = family_.distance_rows && c_.position == PositionKind::kNone;
    JIGE_DO(require(
        neither || c_.position == (learned ? PositionKind::kLearned : PositionKind::kRotary),
        learned ? "learned positions" : "rotary positions"));
    JIGE_DO(require(
        family_.chooses_score_scale || c_.scores_by_head_dim == family_.scores_by_head_dim,
        family_.scores_by_head_dim ? "attention scores divided by the root of the head dimension"
                                   : "attention scores as they are"));
    JIGE_DO(require(c_.family == Family::kGpt2 || !c_.scores_by_layer,
                    "attention scores divided by no number of a layer"));
    JIGE_DO(require((c_.score_dim > 0) == gemma,
                    gemma ? "a query_pre_attn_scalar" : "no query_pre_attn_scalar"));
    JIGE_DO(
        require(gemma || (c_.score_cap == 0 && (family_.logits_cap_field || c_.logits_cap == 0)),
                "no soft caps"));
    JIGE_DO(require(c_.value_norm == family_.value_norm,
                    family_.value_norm ? "norms of value heads" : "no norms of value heads"));
    JIGE_DO(require(c_.layer_scales == family_.layer_scales,
                    family_.layer_scales ? "a scale for each layer" : "no scales of layers"));
    const bool granite = family_.granite_scales;
    JIGE_DO(require((c_.score_scale > 0) == granite,
                    granite ? "an attention_multiplier" : "no attention_multiplier"));
    JIGE_DO(require(family_.chooses_fused || c_.fused_projections == family_.fused_projections,
                    family_.fused_projections ? "fused projections" : "no fused projections"));
    JIGE_DO(require(family_.chooses_neighbours || c_.turns_neighbours == family_.turns_neighbours,
                    family_.turns_neighbours ? "neighbouring columns that turn together"
                                             : "halves of heads that turn together"));
    JIGE_DO(require(c_.turns_backwards == family_.turns_backwards,
                    family_.turns_backwards ? "heads that turn by negative angles"
                                            : "heads that turn by positive angles"));
    JIGE_DO(require(c_.qkv_by_head == family_.qkv_by_head,
                    family_.qkv_by_head ? "queries, keys and values in one tensor, head by head"
                                        : "queries, keys and values one after the other"));
    const bool plain = c_.rope.theta == RopeConfig().theta && c_.rope.scaling == RopeScaling::kNone;
    JIGE_DO(require(c_.family != Family::kGptJ || plain, "rotary positions of theta 10000"));
    JIGE_DO(require(family_.turns_parts || family_.latent_attention || c_.rotary_dim == 0,
                    "heads that turn as a whole"));
    const bool longrope = c_.family == Family::kPhi3 || is_minicpm(c_.family);
    JIGE_DO(require(c_.family == Family::kGte || c_.rope.scaling != RopeScaling::kNtk, "no ntk"));
    JIGE_DO(require(longrope || c_.rope.scaling != RopeScaling::kLongRope, "no longrope"));
    const bool by_theta = family_.unturned == UnturnedRule::kByTheta;
    JIGE_DO(
        require(family_.two_ropes || by_theta || !c_.sliding_rope, "one kind of rotary positions"));
    const bool proportional =
        c_.rope.scaling == RopeScaling::kProportional ||
        (c_.sliding_rope && c_.sliding_rope->scaling == RopeScaling::kProportional);
    JIGE_DO(
        require(family_.proportional_rope || !proportional, "no proportional rotary positions"));
    JIGE_DO(require(c_.attention_sinks == family_.attention_sinks,
                    family_.attention_sinks ? "attention sinks" : "no attention sinks"));
    JIGE_DO(require(c_.attention_gate == family_.attention_gate,
                    family_.attention_gate ? "gates on attention" : "no gates on attention"));
    JIGE_DO(require(!family_.head_gate_field.empty() || !c_.head_gates, "no gates of heads"));
    return unturned_features();
  }

  Status unturned_features() const {
    switch (family_.unturned) {
      case UnturnedRule::kListed:
        return {};
      case UnturnedRule::kByTheta: {
        RopeConfig other = c_.sliding_rope.value_or(c_.rope);
        other.theta = c_.rope.theta;
        return require(other == c_.rope, "layers that differ in their theta alone");
      }
      case UnturnedRule::kNone:
        return require(c_.layer_is_unturned.empty(), "rotary positions in every layer");
      case UnturnedRule::kAll:
        return require(
            !c_.layer_is_unturned.empty() &&
                std::count(c_.layer_is_unturned.begin(), c_.layer_is_unturned.end(), 0) == 0,
            "no rotary positions");
      case UnturnedRule::kUnlessRope:
      case UnturnedRule::kIfNoTheta:
        return require(std::count(c_.layer_is_unturned.begin(), c_.layer_is_unturned.end(), 0) == 0,
                       "rotary positions in every layer or in none");
      case UnturnedRule::kWithoutWindow:
        break;
    }
    return require(c_.layer_is_unturned == layers_without_window(c_),
                   "rotary positions in the layers with the sliding window alone");
  }

  Status window_features() const {
    JIGE_DO(require(family_.windows != WindowRule::kNone || c_.sliding_window == 0,
                    "no sliding window"));
    JIGE_DO(require(family_.ahead != AheadRule::kNone || family_.encoder || !c_.looks_ahead,
                    "causal attention"));
    return require(family_.windows != WindowRule::kAllLayers || c_.layer_is_sliding.empty(),
                   "one sliding window for all layers");
  }

  Status activation_features() const {
    if (family_.chooses_activation) {
      return require(!has_gate(c_.activation), "an activation without gate");
    }
    const ActivationKind wanted = family_.activation;
    return require(c_.activation == wanted, wanted == ActivationKind::kSwiGlu ? "a gated SiLU"
                                            : has_gate(wanted)                ? "a gated GELU"
                                            : wanted == ActivationKind::kXielu
                                                ? "xIELU"
                                                : "a GELU without gate");
  }

  Status family_features() const {
    const bool gemma = family_.root_scale;
    JIGE_DO(norm_features());
    JIGE_DO(attention_features());
    JIGE_DO(window_features());
    JIGE_DO(activation_features());
    const bool scaled = family_.granite_scales || is_minicpm(c_.family);
    JIGE_DO(require(scaled || (c_.residual_scale == 1 && c_.logits_divisor == 1),
                    "no residual_multiplier and no logits_scaling"));
    const bool multiplied = family_.logits_multiplied;
    JIGE_DO(require(!multiplied || c_.logits_divisor == 1, "a logits_scaling that multiplies"));
    JIGE_DO(
        require(multiplied || family_.logit_scale || family_.falcon_scales || c_.logits_scale == 1,
                "no logit_scale"));
    const double root = std::sqrt(static_cast<double>(c_.hidden_size));
    JIGE_DO(require(
        scaled || family_.falcon_scales || c_.embedding_scale == (gemma ? root : 1.0),
        gemma ? "embeddings multiplied with the root of hidden_size" : "no embedding_multiplier"));
    JIGE_DO(check_bias_rule(c_, where_));
    JIGE_DO(check_encoder(c_, where_));
    JIGE_DO(check_deberta(c_, where_));
    const bool covers = family_.encoder ? !family_.shares_heads : covers_width(c_.family);
    if (!covers) return {};
    const bool grouped = c_.family != Family::kGptBigCode || c_.kv_head_count == 1;
    JIGE_DO(require(c_.kv_head_count == c_.head_count || (family_.shares_heads && grouped),
                    "as many key/value heads as heads"));
    return require(
        c_.head_count * c_.head_dim == c_.hidden_size,
        fmt::format("{} times head dimension equal to {}", fields_.heads, fields_.hidden));
  }

  const ModelConfig& c_;
  const FamilyInfo& family_;
  const SizeFields fields_;
  const std::string_view where_;
};

}  // namespace

std::string_view family_name(Family family) { return family_info(family).model_type; }

Result<Family> parse_family(std::string_view name) {
  std::string known;
  for (const FamilyInfo& info : kFamilies) {
    if (info.model_type == name) return info.family;
    known += (known.empty() ? "" : ", ") + std::string(info.model_type);
  }
  return fail(Code::kInvalidArgument, "\"{}\" is not a model family; known are {}", name, known);
}

bool has_attention_part(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at >= config.layer_parts.size() || config.layer_parts[at] != LayerParts::kFeedForward;
}

bool has_feed_forward(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at >= config.layer_parts.size() || config.layer_parts[at] != LayerParts::kAttention;
}

int64_t attention_part_count(const ModelConfig& config) {
  const auto& parts = config.layer_parts;
  return config.layer_count - std::count(parts.begin(), parts.end(), LayerParts::kFeedForward);
}

int64_t feed_forward_count(const ModelConfig& config) {
  const auto& parts = config.layer_parts;
  return config.layer_count - std::count(parts.begin(), parts.end(), LayerParts::kAttention);
}

bool is_encoder(Family family) { return family_info(family).encoder; }

bool has_layer_beyond(Family family) { return family_info(family).layer_beyond; }

Status check_model_config(const ModelConfig& config, std::string_view where) {
  return Checker(config, where).run();
}

Status check_context(const ModelConfig& config, int64_t context) {
  if (context <= config.context_max) return {};
  return fail(Code::kInvalidArgument,
              "--context is {}, but the model has max_position_embeddings {}; choose at most that",
              context, config.context_max);
}

ModelConfig first_layers(ModelConfig config, int64_t count) {
  const int64_t own = config.layer_count - config.shared_kv_layers;
  config.shared_kv_layers = std::max<int64_t>(count - own, 0);
  config.layer_count = count;
  for (auto* flags : {&config.layer_is_sliding, &config.layer_is_unturned, &config.layer_is_dense,
                      &config.layer_is_recurrent}) {
    if (!flags->empty()) flags->resize(static_cast<size_t>(count));
  }
  if (!config.layer_parts.empty()) config.layer_parts.resize(static_cast<size_t>(count));
  if (!config.ffn_sparsity.empty()) config.ffn_sparsity.resize(static_cast<size_t>(count));
  return config;
}

}  // namespace jige::formats

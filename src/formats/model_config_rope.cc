#include "formats/model_config_rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "formats/model_config_encoder.h"
#include "formats/model_config_gte.h"
#include "formats/model_config_hunyuan.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kOriginalContext = "original_max_position_embeddings";
constexpr const char* kParameters = "rope_parameters";
constexpr const char* kFullKind = "full_attention";
constexpr const char* kSlidingKind = "sliding_attention";
constexpr const char* kPartialFactor = "partial_rotary_factor";
constexpr int64_t kPhi3OriginalContext = 4096;
constexpr double kGemma3SlidingTheta = 1e4;
constexpr const char* kQueryGrowth = "llama_4_scaling_beta";
constexpr const char* kAlpha = "alpha";
constexpr double kAlphaMax = 1e6;
constexpr double kLongFactorMin = 1e-6;
constexpr double kLongFactorMax = 1e6;

// Families whose queries grow with the position (llama_4_scaling_beta).
bool queries_grow(Family family) {
  return family == Family::kMinistral3 || family == Family::kMistral4;
}

// Of Mistral 4 it says which part of a head qk_rope_head_dim is.
Status check_turned_part(const Json& object, const ModelConfig& out, std::string_view where) {
  if (!find_field(object, kPartialFactor)) return {};
  JIGE_TRY(const double factor, get_number(object, kPartialFactor, where));
  const double columns = factor * static_cast<double>(out.head_dim);
  if (std::abs(columns - static_cast<double>(out.rotary_dim)) < 0.5) return {};
  return fail(
      Code::kUnsupported,
      "{}: field \"{}\" is {} of the {} columns of a head, of which {} (qk_rope_head_dim) turn",
      where, kPartialFactor, factor, out.head_dim, out.rotary_dim);
}

// The classes of most families in transformers turn whole heads: they never look at
// partial_rotary_factor without scaling, and with it they fail.
Status check_partial_factor(const Json& object, const Json& config, const RopeConfig& rope,
                            std::string_view where) {
  JIGE_TRY(const double top, get_number_or(config, kPartialFactor, 1.0, where));
  JIGE_TRY(const double factor, get_number_or(object, kPartialFactor, top, where));
  if (factor == 1.0) return {};
  if (rope.scaling != RopeScaling::kNone) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {}; with scaled rotary embeddings it must be 1 or absent",
                where, kPartialFactor, factor);
  }
  log_warn("{}: field \"{}\" is {}; the family turns whole heads, so it is ignored", where,
           kPartialFactor, factor);
  return {};
}

Result<RopeScaling> scaling_of(const std::string& type, Family family, std::string_view where) {
  if (type == "default" && !queries_grow(family)) return RopeScaling::kNone;
  // Up to the context of the model nothing changes by it, and longer ones there are none.
  const bool dynamic =
      family == Family::kInternLm2 || family == Family::kInternLm3 || family == Family::kMiniCpm;
  if (dynamic && type == "dynamic") return RopeScaling::kNone;
  const FamilyInfo& info = family_info(family);
  const char* known = "default, linear, llama3 and yarn";
  if (info.proportional_rope) known = "default, linear, llama3, proportional and yarn";
  if (info.proportional_rope && type == "proportional") return RopeScaling::kProportional;
  if (info.full_heads) {
    known = "default and proportional";
  } else if (is_hunyuan(family)) {
    if (type == "dynamic") return RopeScaling::kNone;  // another theta: see raise_theta()
    known = "default, and dynamic with an alpha";
  } else if (family == Family::kPhi3 || is_minicpm(family)) {
    if (type == "longrope" || type == "su") return RopeScaling::kLongRope;
    if (family == Family::kMiniCpm && type == "linear") return RopeScaling::kLinear;
    known = family == Family::kMiniCpm ? "default, dynamic, linear and longrope"
                                       : "default and longrope";
  } else if (family == Family::kStableLm) {
    known = "default alone";
  } else if (queries_grow(family)) {
    if (type == "yarn") return RopeScaling::kYarn;
    known = "yarn alone";
  } else if (family_info(family).latent_attention) {
    if (type == "yarn") return RopeScaling::kYarn;
    known = "default and yarn";
  } else {
    if (type == "linear") return RopeScaling::kLinear;
    if (type == "llama3") return RopeScaling::kLlama3;
    if (type == "yarn") return RopeScaling::kYarn;
  }
  return fail(Code::kUnsupported, "{}: rope type \"{}\" is not supported; supported are {}", where,
              type, known);
}

Result<std::vector<double>> parse_factors(const Json& object, const char* field, size_t count,
                                          std::string_view where) {
  const Json* list = find_field(object, field);
  if (!list) return fail(Code::kNotFound, "{}: field \"{}\" is missing", where, field);
  if (!list->is_array() || list->size() != count) {
    return fail(Code::kCorrupt,
                "{}: field \"{}\" must be a list of {} numbers, one for each pair of columns that "
                "turn",
                where, field, count);
  }
  std::vector<double> factors;
  for (const Json& entry : *list) {
    const double value = entry.is_number() ? entry.get<double>() : 0.0;
    if (!(value >= kLongFactorMin && value <= kLongFactorMax)) {
      return fail(Code::kCorrupt, "{}: field \"{}\" holds {}; its numbers must lie in [{}, {}]",
                  where, field, dump_json(entry).substr(0, 80), kLongFactorMin, kLongFactorMax);
    }
    factors.push_back(value);
  }
  return factors;
}

// The length that a scaled model was trained with first.
Result<int64_t> original_context(const Json& object, const Json& config, const ModelConfig& out,
                                 std::string_view where) {
  const bool phi3 = out.family == Family::kPhi3;
  const int64_t fallback = phi3 ? kPhi3OriginalContext : out.context_max;
  JIGE_TRY(const int64_t top, get_int_or(config, kOriginalContext, fallback, where));
  JIGE_TRY(const int64_t context, get_int_or(object, kOriginalContext, top, where));
  if (context != top && (phi3 || find_field(config, kOriginalContext))) {
    return fail(Code::kCorrupt, "{}: {} is {} at the top and {} in the rope parameters", where,
                kOriginalContext, top, context);
  }
  return context;
}

Status parse_longrope(const Json& object, const Json& config, const ModelConfig& out,
                      RopeConfig& rope, std::string_view where) {
  const int64_t columns = out.rotary_dim > 0 ? out.rotary_dim : out.head_dim;
  const auto count = static_cast<size_t>(columns / 2);
  JIGE_TRY(rope.short_factors, parse_factors(object, "short_factor", count, where));
  JIGE_TRY(rope.long_factors, parse_factors(object, "long_factor", count, where));
  JIGE_TRY(rope.original_context, original_context(object, config, out, where));
  if (rope.original_context < 2 || rope.original_context > kContextMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [2, {}]", where,
                kOriginalContext, rope.original_context, kContextMax);
  }
  const double ratio =
      static_cast<double>(out.context_max) / static_cast<double>(rope.original_context);
  JIGE_TRY(const double factor, get_number_or(object, "factor", ratio, where));
  JIGE_TRY(rope.attention_factor,
           get_number_or(object, "attention_factor",
                         default_attention_factor(factor, rope.original_context), where));
  return {};
}

// A number that has a default where it is absent, null or zero.
Result<double> get_nonzero_or(const Json& object, const char* field, double fallback,
                              std::string_view where) {
  JIGE_TRY(const double value, get_number_or(object, field, fallback, where));
  return value == 0.0 ? fallback : value;
}

// Without a factor it is the ratio of the contexts; mscale counts only beside mscale_all_dim.
Status parse_yarn(const Json& object, const Json& config, const ModelConfig& out, RopeConfig& rope,
                  std::string_view where) {
  JIGE_TRY(rope.original_context, original_context(object, config, out, where));
  if (rope.original_context < 1 || rope.original_context > kContextMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                kOriginalContext, rope.original_context, kContextMax);
  }
  const double ratio =
      static_cast<double>(out.context_max) / static_cast<double>(rope.original_context);
  JIGE_TRY(rope.factor, get_number_or(object, "factor", ratio, where));
  JIGE_TRY(rope.beta_fast, get_nonzero_or(object, "beta_fast", rope.beta_fast, where));
  JIGE_TRY(rope.beta_slow, get_nonzero_or(object, "beta_slow", rope.beta_slow, where));
  JIGE_TRY(rope.truncate, get_bool_or(object, "truncate", true, where));
  JIGE_TRY(rope.mscale, get_number_or(object, "mscale", 0.0, where));
  JIGE_TRY(rope.mscale_all, get_number_or(object, "mscale_all_dim", 0.0, where));
  JIGE_TRY(rope.attention_factor,
           get_number_or(object, "attention_factor", inferred_attention_factor(rope), where));
  // Of other families nothing else follows from them.
  if (!family_info(out.family).latent_attention) rope.mscale = rope.mscale_all = 0.0;
  if (queries_grow(out.family)) {
    JIGE_TRY(rope.query_growth, get_number(object, kQueryGrowth, where));
  }
  return {};
}

// One rotary description: `object` is rope_parameters, rope_scaling or an empty object.
Result<RopeConfig> parse_rope_object(const Json& object, const Json& config, const ModelConfig& out,
                                     std::string_view where) {
  RopeConfig rope;
  const FamilyInfo& family = family_info(out.family);
  JIGE_TRY(const double top_theta, get_number_or(config, family.theta_field, family.theta, where));
  JIGE_TRY(rope.theta, get_number_or(object, "rope_theta", top_theta, where));
  if (find_field(config, family.theta_field) && rope.theta != top_theta) {
    return fail(Code::kCorrupt, "{}: {} is {} at the top and {} in the rope parameters", where,
                family.theta_field, top_theta, rope.theta);
  }
  for (const char* nested : {"full_attention", "sliding_attention"}) {
    if (find_field(object, nested)) {
      return fail(Code::kUnsupported,
                  "{}: rope parameters that differ by layer type (\"{}\") are not supported", where,
                  nested);
    }
  }
  JIGE_TRY(const std::string old_type, get_string_or(object, "type", "default", where));
  JIGE_TRY(const std::string type, get_string_or(object, "rope_type", old_type, where));
  JIGE_TRY(rope.scaling, scaling_of(type, out.family, where));
  if (rope.scaling == RopeScaling::kProportional) {
    JIGE_TRY(rope.turned_share, get_number_or(object, kPartialFactor, 1.0, where));
    JIGE_TRY(rope.factor, get_number_or(object, "factor", 1.0, where));
    return rope;
  }
  if (out.family == Family::kMistral4) {
    JIGE_DO(check_turned_part(object, out, where));
  } else if (!family.turns_parts) {
    JIGE_DO(check_partial_factor(object, config, rope, where));
  }
  if (rope.scaling == RopeScaling::kNone) return rope;
  if (rope.scaling == RopeScaling::kLongRope) {
    JIGE_DO(parse_longrope(object, config, out, rope, where));
    return rope;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    JIGE_DO(parse_yarn(object, config, out, rope, where));
    return rope;
  }
  JIGE_TRY(rope.factor, get_number(object, "factor", where));
  if (rope.scaling == RopeScaling::kLinear) return rope;
  JIGE_TRY(rope.low_freq_factor, get_number(object, "low_freq_factor", where));
  JIGE_TRY(rope.high_freq_factor, get_number(object, "high_freq_factor", where));
  JIGE_TRY(rope.original_context, original_context(object, config, out, where));
  return rope;
}

// How many columns of a head turn, said at the top or in either object.
Status parse_rotary_dim(const Json& config, const Json* parameters, const Json* scaling,
                        ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  double factor = family.turned_factor;
  bool stated = false;
  const std::pair<const Json*, std::string_view> places[] = {
      {&config, family.turned_field}, {parameters, kPartialFactor}, {scaling, kPartialFactor}};
  for (const auto& [object, field] : places) {
    if (!object || !find_field(*object, field)) continue;
    JIGE_TRY(const double value, get_number(*object, field, where));
    if (stated && value != factor) {
      return fail(Code::kCorrupt, "{}: field \"{}\" is {} and {}", where, field, factor, value);
    }
    factor = value;
    stated = true;
  }
  if (family.counts_turned && find_field(config, kTurnedColumns)) {
    JIGE_TRY(const int64_t columns, get_int(config, kTurnedColumns, where));
    if (columns < 2 || columns > out.head_dim) {
      return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [2, {}]", where,
                  kTurnedColumns, columns, out.head_dim);
    }
    const double own = partial_rotary_factor(columns, out.head_dim);
    if (stated && own != factor) {
      return fail(Code::kCorrupt, "{}: field \"{}\" is {}, but {} of {} columns are {}", where,
                  kTurnedColumns, columns, family.turned_field, out.head_dim, factor);
    }
    factor = own;
  }
  if (!(factor > 0.0 && factor <= 1.0)) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in (0, 1]", where,
                family.turned_field, factor);
  }
  const auto columns = static_cast<int64_t>(static_cast<double>(out.head_dim) * factor);
  if (columns != out.head_dim) out.rotary_dim = columns;
  if (columns < 2 || columns % 2 != 0) {
    return fail(Code::kCorrupt,
                "{}: field \"{}\" ({}) makes {} of {} columns of a head turn; they turn in pairs",
                where, family.turned_field, factor, columns, out.head_dim);
  }
  return {};
}

Result<const Json*> object_or_null(const Json& config, const char* field, std::string_view where) {
  const Json* object = find_field(config, field);
  if (object && !object->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be an object or null", where, field);
  }
  return object;
}

// Old folders say rope_theta and rope_scaling, new ones rope_parameters; both must agree.
Result<RopeConfig> parse_both_spellings(const Json* parameters, const Json* scaling,
                                        const Json& config, const ModelConfig& out,
                                        std::string_view where) {
  const Json none = Json::object();
  const Json* first = parameters ? parameters : scaling ? scaling : &none;
  JIGE_TRY(const RopeConfig rope, parse_rope_object(*first, config, out, where));
  if (parameters && scaling) {
    // Where only one of the two carries theta, that one counts for both.
    Json filled = *scaling;
    if (!find_field(filled, "rope_theta")) filled["rope_theta"] = rope.theta;
    JIGE_TRY(const RopeConfig other, parse_rope_object(filled, config, out, where));
    if (other != rope) {
      return fail(Code::kCorrupt, "{}: rope_scaling contradicts rope_parameters", where);
    }
  }
  return rope;
}

// Families whose sliding layers have a rotary description of their own.
Status parse_rope_by_layer_type(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const Json* parameters, object_or_null(config, "rope_parameters", where));
  JIGE_TRY(const Json* scaling, object_or_null(config, "rope_scaling", where));
  const Json* full = nullptr;
  const Json* sliding = nullptr;
  if (parameters) {
    JIGE_TRY(full, object_or_null(*parameters, "full_attention", where));
    JIGE_TRY(sliding, object_or_null(*parameters, "sliding_attention", where));
    if (!full && !sliding) {
      return fail(Code::kCorrupt,
                  "{}: field \"rope_parameters\" must have an object for \"full_attention\" and "
                  "\"sliding_attention\", as this family's layers have two kinds of positions",
                  where);
    }
  }
  JIGE_TRY(out.rope, parse_both_spellings(full, scaling, config, out, where));

  // Gemma 3's and 3n's other angles have a field of their own; OLMo 3's have the theta of all,
  // unscaled.
  const bool gemma3 = out.family == Family::kGemma3 || out.family == Family::kGemma3n;
  const char* top_field = gemma3 ? "rope_local_base_freq" : "rope_theta";
  Json local = sliding ? *sliding : Json::object();
  JIGE_TRY(const double top,
           get_number_or(config, top_field, gemma3 ? kGemma3SlidingTheta : out.rope.theta, where));
  JIGE_TRY(const double theta, get_number_or(local, "rope_theta", top, where));
  if (find_field(config, top_field) && theta != top) {
    return fail(Code::kCorrupt, "{}: {} is {}, but rope_theta of sliding_attention is {}", where,
                top_field, top, theta);
  }
  local["rope_theta"] = theta;
  JIGE_TRY(const RopeConfig rope, parse_rope_object(local, Json::object(), out, where));
  if (rope.scaling != RopeScaling::kNone) {
    return fail(Code::kUnsupported,
                "{}: rope parameters of \"sliding_attention\" are scaled, which is not supported",
                where);
  }
  if (rope != out.rope) out.sliding_rope = rope;
  return {};
}

// What transformers takes where the folder describes no angles.
struct KindRopes {
  RopeConfig full, sliding;
};

KindRopes usual_kind_ropes(Family family) {
  if (family == Family::kGemma4) {
    return {.full = {.theta = 1e6, .scaling = RopeScaling::kProportional, .turned_share = 0.25},
            .sliding = {}};
  }
  if (family == Family::kLfm3) {
    return {.full = {.theta = 1e6, .scaling = RopeScaling::kProportional, .turned_share = 0.5},
            .sliding = {}};
  }
  return {.full = {.theta = 5e5}, .sliding = {}};
}

// Whether some layers are of a kind, or may be as nothing says of what kinds they are.
bool may_have_layers(const Json& config, const char* kind) {
  const Json* types = find_field(config, "layer_types");
  return !types || !types->is_array() || std::count(types->begin(), types->end(), kind) > 0;
}

// Families whose folders have an object for either kind of layer, and nothing at the top. Layers of
// a kind must have theirs; check_kind_ropes() looks after those with the window.
Status parse_kind_ropes(const Json& config, ModelConfig& out, std::string_view where) {
  const KindRopes usual = usual_kind_ropes(out.family);
  JIGE_TRY(const Json* parameters, object_or_null(config, kParameters, where));
  if (!parameters) {
    out.rope = usual.full;
    out.sliding_rope = usual.sliding;
    return {};
  }
  const auto parse = [&](const char* kind) -> Result<std::optional<RopeConfig>> {
    JIGE_TRY(const Json* object, object_or_null(*parameters, kind, where));
    if (!object) return std::nullopt;
    JIGE_DO(get_number(*object, "rope_theta", where));
    JIGE_TRY(const RopeConfig rope, parse_rope_object(*object, Json::object(), out, where));
    return rope;
  };
  JIGE_TRY(const std::optional<RopeConfig> full, parse(kFullKind));
  JIGE_TRY(out.sliding_rope, parse(kSlidingKind));
  if (!full && may_have_layers(config, kFullKind)) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must have an object for \"{}\"", where,
                kParameters, kFullKind);
  }
  out.rope = full.value_or(usual.full);
  const bool scaled = out.sliding_rope && out.sliding_rope->scaling != RopeScaling::kNone;
  if (!scaled || !family_info(out.family).full_heads) return {};
  return fail(Code::kUnsupported,
              "{}: rope parameters of \"{}\" are scaled, which is not supported", where,
              kSlidingKind);
}

// HunYuan's "dynamic" is no longer so: its alpha makes a theta that holds for texts of all lengths.
Status raise_theta(const Json& object, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const std::string old_type, get_string_or(object, "type", "default", where));
  JIGE_TRY(const std::string type, get_string_or(object, "rope_type", old_type, where));
  if (type != "dynamic") return {};
  JIGE_TRY(const double alpha, get_number_or(object, kAlpha, 0.0, where));
  if (!(alpha >= 1.0 && alpha <= kAlphaMax) || out.head_dim <= 2) {
    return fail(
        Code::kUnsupported,
        "{}: field \"{}\" of the rope type \"dynamic\" is {} for heads of {} columns; it must "
        "lie in [1, {}], for more than two",
        where, kAlpha, alpha, out.head_dim, kAlphaMax);
  }
  const auto columns = static_cast<double>(out.head_dim);
  out.rope.theta *= std::pow(alpha, columns / (columns - 2));
  return {};
}

// What transformers takes where the folder says nothing.
Json usual_rope(Family family) {
  if (family == Family::kGptOss) {
    return {{"rope_type", "yarn"}, {"factor", 32.0}, {"truncate", false}, {kOriginalContext, 4096}};
  }
  if (family == Family::kMinistral3) {
    return {{"rope_type", "yarn"},   {"factor", 16.0},          {"mscale", 1.0},
            {"mscale_all_dim", 1.0}, {kOriginalContext, 16384}, {kQueryGrowth, 0.1}};
  }
  if (family == Family::kMistral4) {
    return {{"rope_type", "yarn"},   {"factor", 128.0},        {"mscale", 1.0},
            {"mscale_all_dim", 1.0}, {kOriginalContext, 8192}, {kQueryGrowth, 0.1}};
  }
  if (family == Family::kApertus) {
    return {{"rope_type", "llama3"},  {"rope_theta", 1.2e7},     {"factor", 8.0},
            {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {kOriginalContext, 8192}};
  }
  if (family == Family::kCwm) {
    return {{"rope_type", "llama3"},  {"rope_theta", 1e6},       {"factor", 16.0},
            {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {kOriginalContext, 8192}};
  }
  return Json::object();
}

}  // namespace

double default_attention_factor(double factor, int64_t original_context) {
  if (factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original_context)));
}

double yarn_attention_factor(double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0;
}

double inferred_attention_factor(const RopeConfig& rope) {
  const auto magnitude = [&](double by) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * by * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale == 0.0 || rope.mscale_all == 0.0) return yarn_attention_factor(rope.factor);
  return magnitude(rope.mscale) / magnitude(rope.mscale_all);
}

double partial_rotary_factor(int64_t rotary_dim, int64_t head_dim) {
  const auto columns = static_cast<double>(head_dim);
  double factor = static_cast<double>(rotary_dim) / columns;
  while (static_cast<int64_t>(columns * factor) < rotary_dim) factor = std::nextafter(factor, 2.0);
  return factor;
}

Status parse_rope(const Json& config, ModelConfig& out, std::string_view where) {
  if (family_info(out.family).ropes_by_kind) return parse_kind_ropes(config, out, where);
  if (out.family == Family::kModernBert) return parse_side_ropes(config, out, where);
  if (out.family == Family::kGte) return parse_ntk_rope(config, out, where);
  if (family_info(out.family).two_ropes) return parse_rope_by_layer_type(config, out, where);
  JIGE_TRY(const Json* parameters, object_or_null(config, "rope_parameters", where));
  JIGE_TRY(const Json* scaling, object_or_null(config, "rope_scaling", where));
  if (family_info(out.family).turns_parts) {
    JIGE_DO(parse_rotary_dim(config, parameters, scaling, out, where));
  }
  const Json usual = usual_rope(out.family);
  if (!parameters && !scaling) parameters = &usual;
  JIGE_TRY(out.rope, parse_both_spellings(parameters, scaling, config, out, where));
  if (!is_hunyuan(out.family)) return {};
  return raise_theta(parameters ? *parameters : *scaling, out, where);
}

Status check_kind_ropes(const ModelConfig& config, std::string_view where) {
  const bool by_kind = family_info(config.family).ropes_by_kind;
  if (!by_kind || config.sliding_window == 0 || config.sliding_rope) return {};
  return fail(Code::kCorrupt, "{}: field \"{}\" must have an object for \"{}\"", where, kParameters,
              kSlidingKind);
}

}  // namespace jige::formats

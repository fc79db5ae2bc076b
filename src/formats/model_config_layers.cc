#include "formats/model_config_layers.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "formats/model_config_encoder.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_granite.h"
#include "formats/model_config_learned.h"
#include "formats/model_config_llama4.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kMaxWindowLayersDefault = 28;  // Qwen2, Qwen3
constexpr int64_t kDots1MaxWindowLayers = 62;
constexpr int64_t kSmolLm3PatternDefault = 4;

// "layer_types" as flags, or nothing when the field is absent.
Result<std::optional<std::vector<uint8_t>>> parse_layer_types(const Json& config,
                                                              int64_t layer_count,
                                                              std::string_view where) {
  const Json* list = find_field(config, "layer_types");
  if (!list) return std::nullopt;
  if (!list->is_array() || list->size() != static_cast<size_t>(layer_count)) {
    return fail(Code::kCorrupt,
                "{}: field \"layer_types\" must be a list of {} names, one per layer", where,
                layer_count);
  }
  std::vector<uint8_t> flags;
  for (const Json& entry : *list) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
    if (name != "full_attention" && name != "sliding_attention") {
      return fail(Code::kUnsupported,
                  "{}: layer type \"{}\" is not supported; supported are full_attention and "
                  "sliding_attention",
                  where, name.substr(0, 80));
    }
    flags.push_back(name == "sliding_attention");
  }
  return flags;
}

// Flags of every layer but each `period`th.
std::vector<uint8_t> all_but_every(int64_t period, int64_t layer_count) {
  std::vector<uint8_t> flags;
  for (int64_t i = 1; i <= layer_count; ++i) flags.push_back(i % period != 0);
  return flags;
}

Status parse_window(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  if (family.windows == WindowRule::kNone) return {};
  if (out.family == Family::kModernBert) return parse_side_window(config, out, where);
  const bool given = find_field(config, "sliding_window");
  const bool null = present(config, "sliding_window") && !given;
  const bool switched = family.window_use == WindowUse::kIfSwitchedOn ||
                        family.window_use == WindowUse::kIfGivenAndSwitchedOn;
  if (switched) {
    JIGE_TRY(const bool on, get_bool_or(config, "use_sliding_window", false, where));
    if (!on) return {};
  }
  const bool must_be_given = family.window_use == WindowUse::kIfGiven ||
                             family.window_use == WindowUse::kIfGivenAndSwitchedOn;
  if (null || (must_be_given && !given)) return {};
  JIGE_TRY(out.sliding_window, get_size_or(config, "sliding_window", family.window, where));
  return {};
}

// Which layers have the window where no layer_types say so.
Result<std::vector<uint8_t>> default_window_flags(const Json& config, const ModelConfig& out,
                                                  std::string_view where) {
  std::vector<uint8_t> flags(static_cast<size_t>(out.layer_count), out.sliding_window > 0);
  const bool dots1 = out.family == Family::kDots1;
  if ((dots1 || is_qwen(out.family)) && out.sliding_window > 0) {
    const int64_t usual = dots1 ? kDots1MaxWindowLayers : kMaxWindowLayersDefault;
    JIGE_TRY(const int64_t full_layers, get_int_or(config, "max_window_layers", usual, where));
    const auto full = std::clamp<int64_t>(full_layers, 0, out.layer_count);
    std::fill_n(flags.begin(), full, uint8_t{0});
  }
  const FamilyInfo& family = family_info(out.family);
  if (family.unturned == UnturnedRule::kListed && out.sliding_window > 0) {
    flags = out.layer_is_unturned;
    flags.resize(static_cast<size_t>(out.layer_count));
  }
  // Without a window all layers of EXAONE 4 are full ones.
  if (out.family == Family::kExaone4 && out.sliding_window == 0) return flags;
  int64_t period = family.full_period;
  const bool unlisted =
      family.unturned == UnturnedRule::kWithoutWindow && !find_field(config, "layer_types");
  if (out.family == Family::kGemma3 || unlisted) {
    JIGE_TRY(period, get_size_or(config, "sliding_window_pattern", period, where));
  }
  if (out.family == Family::kModernBert) {
    JIGE_TRY(period, get_size_or(config, "global_attn_every_n_layers", period, where));
  }
  if (period > 0) flags = all_but_every(period, out.layer_count);
  if (period > 0 && family.full_first) {
    for (int64_t i = 0; i < out.layer_count; ++i) flags[static_cast<size_t>(i)] = i % period != 0;
  }
  return flags;
}

Status parse_windows(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_DO(parse_window(config, out, where));
  JIGE_TRY(const std::optional<std::vector<uint8_t>> listed,
           parse_layer_types(config, out.layer_count, where));
  JIGE_TRY(std::vector<uint8_t> flags, default_window_flags(config, out, where));
  if (listed && *listed != flags) {
    if (out.family == Family::kGemma3 && find_field(config, "sliding_window_pattern")) {
      return fail(Code::kCorrupt, "{}: sliding_window_pattern contradicts layer_types", where);
    }
    if (family_info(out.family).windows != WindowRule::kSomeLayers) {
      return fail(Code::kUnsupported, "{}: field \"layer_types\" is not supported for {} models",
                  where, family_name(out.family));
    }
    const bool slides = std::count(listed->begin(), listed->end(), uint8_t{1}) > 0;
    if (out.sliding_window == 0 && slides) {
      return fail(Code::kCorrupt,
                  "{}: layer_types names sliding_attention, but there is no sliding window in use",
                  where);
    }
    flags = *listed;
  }
  if (out.family == Family::kQwen2Moe && out.sliding_window > 0 && !listed) {
    return fail(Code::kUnsupported,
                "{}: field \"use_sliding_window\" is true without layer_types, where versions of "
                "transformers take different layers; write layer_types",
                where);
  }
  if (family_info(out.family).full_heads) flags.back() = 0;  // whatever it is said to be
  const auto sliding_count = std::count(flags.begin(), flags.end(), uint8_t{1});
  if (sliding_count > 0 && out.sliding_window == 0) {
    return fail(Code::kCorrupt,
                "{}: field \"sliding_window\" is null, but layers of this model have a window",
                where);
  }
  if (sliding_count == 0) {
    out.sliding_window = 0;
    out.sliding_rope.reset();
  }
  if (sliding_count > 0 && sliding_count < out.layer_count) out.layer_is_sliding = std::move(flags);
  return {};
}

// "no_rope_layers" has a 1 for every layer that turns, in spite of its name.
Status parse_unturned_layers(const Json& config, ModelConfig& out, std::string_view where) {
  if (family_info(out.family).unturned != UnturnedRule::kListed) return {};
  JIGE_TRY(const int64_t period,
           get_size_or(config, "no_rope_layer_interval", kSmolLm3PatternDefault, where));
  std::vector<uint8_t> turned = all_but_every(period, out.layer_count);
  const Json* list = find_field(config, "no_rope_layers");
  // An empty list says as much as none in Llama 4.
  const bool empty = list && list->is_array() && list->empty();
  if (list && !(empty && family_info(out.family).chunks)) {
    const auto is_flag = [](const Json& one) { return one == 0 || one == 1; };
    if (!list->is_array() || list->size() != turned.size() ||
        !std::all_of(list->begin(), list->end(), is_flag)) {
      return fail(Code::kCorrupt,
                  "{}: field \"no_rope_layers\" must be a list of {} numbers 0 or 1, one per layer",
                  where, turned.size());
    }
    for (size_t i = 0; i < turned.size(); ++i) turned[i] = (*list)[i] == 1;
  }
  const auto count = std::count(turned.begin(), turned.end(), uint8_t{0});
  if (count == 0) return {};
  for (const uint8_t flag : turned) out.layer_is_unturned.push_back(!flag);
  return {};
}

}  // namespace

Status parse_layers(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_DO(parse_unturned_layers(config, out, where));
  if (family_info(out.family).chunks) return parse_llama4_layers(config, out, where);
  if (out.family == Family::kGptNeo) return parse_local_layers(config, out, where);
  JIGE_DO(parse_windows(config, out, where));
  if (family_info(out.family).unturned == UnturnedRule::kByTheta) {
    return parse_layer_thetas(config, out, where);
  }
  if (family_info(out.family).unturned != UnturnedRule::kWithoutWindow) return {};
  const bool windowless = out.family == Family::kExaone4 && present(config, "sliding_window") &&
                          !find_field(config, "sliding_window");
  if (out.sliding_window == 0 && !windowless) {
    return fail(Code::kUnsupported,
                "{}: no layer has the sliding window of this model, so none would have positions; "
                "field \"layer_types\" must name sliding_attention",
                where);
  }
  out.layer_is_unturned = layers_without_window(out);
  return {};
}

// transformers 5.24 counts the window of a side in two ways: with is_causal false, and in encoders,
// a token sees sliding_window tokens of each side beside itself; with use_bidirectional_attention
// half as many.
Status parse_looking_ahead(const Json& config, ModelConfig& out, std::string_view where) {
  const AheadRule rule = family_info(out.family).ahead;
  const bool encoder = family_info(out.family).encoder;
  const auto says = [&](const char* field, bool causal, bool read) -> Result<bool> {
    const Json* value = find_field(config, field);
    if (!value || (value->is_boolean() && value->get<bool>() == causal)) return false;
    if (*value == "vision") return false;  // tokens of images alone, in Gemma 4
    if (value->is_boolean() && read) return true;
    return fail(
        Code::kUnsupported,
        "{}: field \"{}\" is {}: tokens of this model see those behind them, which Jige does "
        "not support for {} models; take a model of causal attention",
        where, field, dump_json(*value).substr(0, 80), family_name(out.family));
  };
  JIGE_TRY(const bool not_causal, says("is_causal", true, encoder || rule != AheadRule::kNone));
  JIGE_TRY(const bool halved,
           says("use_bidirectional_attention", false, rule == AheadRule::kEither));
  out.looks_ahead = not_causal || halved || encoder;
  if (!out.looks_ahead || out.sliding_window == 0) return {};
  if (halved) out.sliding_window = out.sliding_window / 2 + 1;
  if (not_causal || encoder) ++out.sliding_window;
  return {};
}

void emit_looking_ahead(const ModelConfig& config, Json& out) {
  if (!config.looks_ahead || family_info(config.family).encoder) return;
  const bool halved = family_info(config.family).ahead == AheadRule::kEither;
  if (halved) {
    out["use_bidirectional_attention"] = true;
  } else {
    out["is_causal"] = false;
  }
  if (config.sliding_window == 0) return;
  out["sliding_window"] = std::max<int64_t>(1, (config.sliding_window - 1) * (halved ? 2 : 1));
}

}  // namespace jige::formats

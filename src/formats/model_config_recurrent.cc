#include "formats/model_config_recurrent.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"
#include "formats/model_config_delta.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_lfm2.h"
#include "formats/model_config_mamba1.h"
#include "formats/model_config_mamba2.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kTypesField = "layer_types";

// Whether a layer of this type is recurrent, in the first spelling that has the name.
std::optional<bool> recurrent_type(std::initializer_list<LayerTypes> spellings,
                                   std::string_view type) {
  for (const LayerTypes& names : spellings) {
    if (type == names.recurrent) return true;
    if (type == names.attention) return false;
  }
  return std::nullopt;
}

}  // namespace

bool is_recurrent(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at < config.layer_is_recurrent.size() && config.layer_is_recurrent[at];
}

bool has_attention(const ModelConfig& config, int64_t layer) {
  return has_attention_part(config, layer) &&
         (config.attention_beside || !is_recurrent(config, layer));
}

int64_t attention_layer_count(const ModelConfig& config) {
  int64_t count = 0;
  for (int64_t i = 0; i < config.layer_count; ++i) count += has_attention(config, i) ? 1 : 0;
  return count;
}

int64_t recurrent_layer_count(const ModelConfig& config) {
  return std::count(config.layer_is_recurrent.begin(), config.layer_is_recurrent.end(), uint8_t{1});
}

bool may_be_recurrent(Family family) {
  const FamilyInfo& info = family_info(family);
  return info.delta_layers || info.short_conv_layers || info.mamba1_layers || info.mamba2_layers;
}

Status parse_recurrent(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  if (family.mamba1_layers) return parse_mamba1(config, out, where);
  if (family.mamba2_layers) return parse_mamba2(config, out, where);
  return family.delta_layers ? parse_delta(config, out, where)
                             : parse_short_conv(config, out, where);
}

void emit_recurrent(const ModelConfig& config, Json& out) {
  const FamilyInfo& family = family_info(config.family);
  if (family.mamba1_layers) {
    emit_mamba1(config, out);
  } else if (family.mamba2_layers) {
    emit_mamba2(config, out);
  } else if (family.delta_layers) {
    emit_delta(config, out);
  } else {
    emit_short_conv(config, out);
  }
}

Status check_recurrent(const ModelConfig& config, std::string_view where) {
  const FamilyInfo& family = family_info(config.family);
  const size_t flags = config.layer_is_recurrent.size();
  if ((!family.delta_layers && config.delta != DeltaConfig()) ||
      (!family.short_conv_layers && config.short_conv != ShortConvConfig()) ||
      (!family.mamba1_layers && config.mamba1 != Mamba1Config()) ||
      (!family.mamba2_layers && config.mamba2 != Mamba2Config()) ||
      (!may_be_recurrent(config.family) && flags > 0)) {
    return fail(Code::kInvalidArgument, "{}: {} models have no such layers in place of attention",
                where, family_name(config.family));
  }
  if (flags == 0) return {};
  if (flags != static_cast<size_t>(config.layer_count)) {
    return fail(Code::kInvalidArgument, "{}: {} has {} entries for {} layers", where, kTypesField,
                flags, config.layer_count);
  }
  if (family.recurrent_only && recurrent_layer_count(config) < config.layer_count) {
    return fail(Code::kInvalidArgument, "{}: {} models have such a part in every layer", where,
                family_name(config.family));
  }
  if (family.mamba1_layers) return check_mamba1(config, where);
  if (family.mamba2_layers) return check_mamba2(config, where);
  return family.delta_layers ? check_delta(config, where) : check_short_conv(config, where);
}

int64_t recurrent_parameter_count(const ModelConfig& config) {
  const FamilyInfo& family = family_info(config.family);
  if (family.mamba1_layers) return mamba1_parameter_count(config);
  if (family.mamba2_layers) return mamba2_parameter_count(config);
  return family.delta_layers ? delta_parameter_count(config) : short_conv_parameter_count(config);
}

void set_recurrent_layers(std::vector<uint8_t> flags, ModelConfig& out) {
  const bool any = std::find(flags.begin(), flags.end(), uint8_t{1}) != flags.end();
  out.layer_is_recurrent = any ? std::move(flags) : std::vector<uint8_t>();
}

Result<std::vector<uint8_t>> all_but_listed_layers(const Json& config, const char* field,
                                                   int64_t layer_count, std::string_view where) {
  std::vector<uint8_t> flags(static_cast<size_t>(layer_count), 1);
  const Json* list = find_field(config, field);
  if (!list) return flags;
  if (!list->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list", where, field);
  }
  for (const Json& entry : *list) {
    const Json wrapped = {{field, entry}};
    JIGE_TRY(const int64_t layer, get_int(wrapped, field, where));
    if (layer < 0 || layer >= layer_count) {
      return fail(Code::kCorrupt, "{}: field \"{}\" names layer {} of {}", where, field, layer,
                  layer_count);
    }
    flags[static_cast<size_t>(layer)] = 0;
  }
  return flags;
}

Status parse_recurrent_layers(const Json& config, std::initializer_list<LayerTypes> spellings,
                              std::vector<uint8_t> usual, ModelConfig& out,
                              std::string_view where) {
  std::vector<uint8_t> flags = std::move(usual);
  if (const Json* list = find_field(config, kTypesField)) {
    if (!list->is_array() || list->size() != static_cast<size_t>(out.layer_count)) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} names, one per layer",
                  where, kTypesField, out.layer_count);
    }
    flags.clear();
    for (const Json& entry : *list) {
      const std::string type = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
      const std::optional<bool> recurrent = recurrent_type(spellings, type);
      if (!recurrent) {
        const LayerTypes& names = *spellings.begin();
        return fail(Code::kUnsupported,
                    "{}: layer type \"{}\" is not supported; supported are {} and {}", where,
                    type.substr(0, 80), names.attention, names.recurrent);
      }
      flags.push_back(*recurrent);
    }
  }
  set_recurrent_layers(std::move(flags), out);
  return {};
}

void emit_recurrent_layers(const ModelConfig& config, const LayerTypes& spelling, Json& out) {
  Json types = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    types.push_back(is_recurrent(config, i) ? spelling.recurrent : spelling.attention);
  }
  out[kTypesField] = std::move(types);
}

}  // namespace jige::formats

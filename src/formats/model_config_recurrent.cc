#include "formats/model_config_recurrent.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json.h"
#include "formats/model_config_delta.h"
#include "formats/model_config_lfm2.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kTypesField = "layer_types";
constexpr const char* kAttentionType = "full_attention";

}  // namespace

bool is_recurrent(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at < config.layer_is_recurrent.size() && config.layer_is_recurrent[at];
}

int64_t recurrent_layer_count(const ModelConfig& config) {
  return std::count(config.layer_is_recurrent.begin(), config.layer_is_recurrent.end(), uint8_t{1});
}

bool may_be_recurrent(Family family) {
  const FamilyInfo& info = family_info(family);
  return info.delta_layers || info.short_conv_layers;
}

Status parse_recurrent(const Json& config, ModelConfig& out, std::string_view where) {
  return family_info(out.family).delta_layers ? parse_delta(config, out, where)
                                              : parse_short_conv(config, out, where);
}

void emit_recurrent(const ModelConfig& config, Json& out) {
  if (family_info(config.family).delta_layers) {
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
      (!may_be_recurrent(config.family) && flags > 0)) {
    return fail(Code::kInvalidArgument, "{}: {} models have no such layers in place of attention",
                where, family_name(config.family));
  }
  if (flags == 0) return {};
  if (flags != static_cast<size_t>(config.layer_count)) {
    return fail(Code::kInvalidArgument, "{}: {} has {} entries for {} layers", where, kTypesField,
                flags, config.layer_count);
  }
  return family.delta_layers ? check_delta(config, where) : check_short_conv(config, where);
}

int64_t recurrent_parameter_count(const ModelConfig& config) {
  return family_info(config.family).delta_layers ? delta_parameter_count(config)
                                                 : short_conv_parameter_count(config);
}

Status parse_recurrent_layers(const Json& config, std::string_view name, std::vector<uint8_t> usual,
                              ModelConfig& out, std::string_view where) {
  std::vector<uint8_t> flags = std::move(usual);
  if (const Json* list = find_field(config, kTypesField)) {
    if (!list->is_array() || list->size() != static_cast<size_t>(out.layer_count)) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} names, one per layer",
                  where, kTypesField, out.layer_count);
    }
    flags.clear();
    for (const Json& entry : *list) {
      const std::string type = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
      if (type != kAttentionType && type != name) {
        return fail(Code::kUnsupported,
                    "{}: layer type \"{}\" is not supported; supported are {} and {}", where,
                    type.substr(0, 80), kAttentionType, name);
      }
      flags.push_back(type == name);
    }
  }
  const bool any = std::find(flags.begin(), flags.end(), uint8_t{1}) != flags.end();
  out.layer_is_recurrent = any ? std::move(flags) : std::vector<uint8_t>();
  return {};
}

void emit_recurrent_layers(const ModelConfig& config, std::string_view name, Json& out) {
  Json types = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    types.push_back(is_recurrent(config, i) ? name : std::string_view(kAttentionType));
  }
  out[kTypesField] = std::move(types);
}

}  // namespace jige::formats

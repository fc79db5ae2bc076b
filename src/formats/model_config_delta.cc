#include "formats/model_config_delta.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kKeyHeads = "linear_num_key_heads";
constexpr const char* kValueHeads = "linear_num_value_heads";
constexpr const char* kKeyDim = "linear_key_head_dim";
constexpr const char* kValueDim = "linear_value_head_dim";
constexpr const char* kKernel = "linear_conv_kernel_dim";
constexpr const char* kInterval = "full_attention_interval";
constexpr int64_t kIntervalDefault = 4;
constexpr int64_t kDeltaHeadDimMax = 256;
constexpr int64_t kKernelMax = 8;

// Without layer_types every so manieth layer has attention.
Result<std::vector<uint8_t>> parse_recurrent_layers(const Json& config, int64_t layer_count,
                                                    std::string_view where) {
  std::vector<uint8_t> flags;
  const Json* list = find_field(config, "layer_types");
  if (!list) {
    JIGE_TRY(const int64_t interval, get_size_or(config, kInterval, kIntervalDefault, where));
    for (int64_t i = 1; i <= layer_count; ++i) flags.push_back(i % interval != 0);
    return flags;
  }
  if (!list->is_array() || list->size() != static_cast<size_t>(layer_count)) {
    return fail(Code::kCorrupt,
                "{}: field \"layer_types\" must be a list of {} names, one per layer", where,
                layer_count);
  }
  for (const Json& entry : *list) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
    if (name != "full_attention" && name != "linear_attention") {
      return fail(Code::kUnsupported,
                  "{}: layer type \"{}\" is not supported; supported are full_attention and "
                  "linear_attention",
                  where, name.substr(0, 80));
    }
    flags.push_back(name == "linear_attention");
  }
  return flags;
}

int64_t recurrent_count(const std::vector<uint8_t>& flags) {
  return std::count(flags.begin(), flags.end(), uint8_t{1});
}

}  // namespace

bool is_recurrent(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at < config.layer_is_recurrent.size() && config.layer_is_recurrent[at];
}

int64_t recurrent_layer_count(const ModelConfig& config) {
  return recurrent_count(config.layer_is_recurrent);
}

Status parse_delta(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(out.delta.key_heads, get_int_or(config, kKeyHeads, 16, where));
  JIGE_TRY(out.delta.value_heads, get_int_or(config, kValueHeads, 32, where));
  JIGE_TRY(out.delta.key_dim, get_int_or(config, kKeyDim, 128, where));
  JIGE_TRY(out.delta.value_dim, get_int_or(config, kValueDim, 128, where));
  JIGE_TRY(out.delta.kernel, get_int_or(config, kKernel, 4, where));
  JIGE_TRY(const bool gated, get_bool_or(config, "attn_output_gate", true, where));
  if (!gated) {
    return fail(Code::kUnsupported,
                "{}: field \"attn_output_gate\" is false, which is not supported for {}", where,
                family_name(out.family));
  }
  JIGE_TRY(out.layer_is_recurrent, parse_recurrent_layers(config, out.layer_count, where));
  if (recurrent_count(out.layer_is_recurrent) > 0) return {};
  out.layer_is_recurrent.clear();
  return {};
}

void emit_delta(const ModelConfig& config, Json& out) {
  out[kKeyHeads] = config.delta.key_heads;
  out[kValueHeads] = config.delta.value_heads;
  out[kKeyDim] = config.delta.key_dim;
  out[kValueDim] = config.delta.value_dim;
  out[kKernel] = config.delta.kernel;
  Json types = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    types.push_back(is_recurrent(config, i) ? "linear_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
}

Status check_delta(const ModelConfig& config, std::string_view where) {
  const DeltaConfig& delta = config.delta;
  if (!family_info(config.family).delta_layers) {
    if (delta == DeltaConfig() && config.layer_is_recurrent.empty()) return {};
    return fail(Code::kInvalidArgument, "{}: {} models have attention in every layer", where,
                family_name(config.family));
  }
  const auto in_range = [&](const char* field, int64_t value, int64_t high) -> Status {
    if (value >= 1 && value <= high) return {};
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                field, value, high);
  };
  if (config.layer_is_recurrent.empty()) return {};
  JIGE_DO(in_range(kKeyHeads, delta.key_heads, kHeadsMax));
  JIGE_DO(in_range(kValueHeads, delta.value_heads, kHeadsMax));
  JIGE_DO(in_range(kKeyDim, delta.key_dim, kDeltaHeadDimMax));
  JIGE_DO(in_range(kValueDim, delta.value_dim, kDeltaHeadDimMax));
  JIGE_DO(in_range(kKernel, delta.kernel, kKernelMax));
  if (delta.value_heads % delta.key_heads != 0) {
    return fail(Code::kInvalidArgument, "{}: {} ({}) does not divide {} ({})", where, kKeyHeads,
                delta.key_heads, kValueHeads, delta.value_heads);
  }
  if (config.layer_is_recurrent.size() != static_cast<size_t>(config.layer_count)) {
    return fail(Code::kInvalidArgument, "{}: layer_types has {} entries for {} layers", where,
                config.layer_is_recurrent.size(), config.layer_count);
  }
  return {};
}

int64_t delta_parameter_count(const ModelConfig& config) {
  const DeltaConfig& delta = config.delta;
  const int64_t keys = delta.key_heads * delta.key_dim;
  const int64_t values = delta.value_heads * delta.value_dim;
  const int64_t convolved = 2 * keys + values;
  const int64_t inputs = convolved + values + 2 * delta.value_heads;
  return config.hidden_size * (inputs + values) + convolved * delta.kernel + 2 * delta.value_heads +
         delta.value_dim;
}

}  // namespace jige::formats

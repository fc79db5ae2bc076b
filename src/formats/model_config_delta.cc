#include "formats/model_config_delta.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_kimi.h"
#include "formats/model_config_recurrent.h"
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
constexpr const char* kDoublesRate = "linear_allow_neg_eigval";
constexpr double kOlmoNormEps = 1e-5;

// Whether no layer turns: rope_theta is there, and null.
bool states_no_theta(const Json& config) {
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const Json* object = find_field(config, field);
    if (object && present(*object, "rope_theta")) return !find_field(*object, "rope_theta");
  }
  return present(config, "rope_theta") && !find_field(config, "rope_theta");
}

// Sizes that are left out follow from those of attention.
Status parse_olmo_delta(const Json& config, ModelConfig& out, std::string_view where) {
  DeltaConfig& delta = out.delta;
  JIGE_TRY(delta.key_heads, get_size_or(config, kKeyHeads, out.head_count, where));
  JIGE_TRY(delta.value_heads, get_int_or(config, kValueHeads, out.head_count, where));
  const int64_t usual = 3 * out.hidden_size / 4 / delta.key_heads;
  JIGE_TRY(delta.key_dim, get_size_or(config, kKeyDim, usual, where));
  const int64_t twice = 2 * std::min(delta.key_dim, kDeltaHeadDimMax);  // or refused below
  JIGE_TRY(delta.value_dim, get_int_or(config, kValueDim, twice, where));
  JIGE_TRY(delta.kernel, get_int_or(config, kKernel, 4, where));
  JIGE_TRY(delta.doubles_rate, get_bool_or(config, kDoublesRate, true, where));
  delta.draws_steps = true;
  delta.norm_eps = kOlmoNormEps;
  if (states_no_theta(config)) {
    out.layer_is_unturned.assign(static_cast<size_t>(out.layer_count), 1);
  }
  std::vector<uint8_t> usual_layers;
  for (int64_t i = 1; i <= out.layer_count; ++i) {
    usual_layers.push_back(i % kIntervalDefault != 0 &&
                           (i < out.layer_count || i > kIntervalDefault));
  }
  return parse_recurrent_layers(config, {kUsualLayerTypes}, std::move(usual_layers), out, where);
}

}  // namespace

Status parse_delta(const Json& config, ModelConfig& out, std::string_view where) {
  if (out.family == Family::kOlmoHybrid) return parse_olmo_delta(config, out, where);
  if (out.family == Family::kKimiLinear) return parse_kimi_delta(config, out, where);
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
  // Without layer_types every so manieth layer has attention.
  JIGE_TRY(const int64_t interval, get_size_or(config, kInterval, kIntervalDefault, where));
  std::vector<uint8_t> usual;
  for (int64_t i = 1; i <= out.layer_count; ++i) usual.push_back(i % interval != 0);
  return parse_recurrent_layers(config, {kUsualLayerTypes}, std::move(usual), out, where);
}

void emit_delta(const ModelConfig& config, Json& out) {
  if (config.family == Family::kKimiLinear) return emit_kimi_delta(config, out);
  out[kKeyHeads] = config.delta.key_heads;
  out[kValueHeads] = config.delta.value_heads;
  out[kKeyDim] = config.delta.key_dim;
  out[kValueDim] = config.delta.value_dim;
  out[kKernel] = config.delta.kernel;
  if (config.family == Family::kOlmoHybrid) out[kDoublesRate] = config.delta.doubles_rate;
  emit_recurrent_layers(config, kUsualLayerTypes, out);
}

Status check_delta(const ModelConfig& config, std::string_view where) {
  if (config.family == Family::kKimiLinear) return check_kimi_delta(config, where);
  const DeltaConfig& delta = config.delta;
  const auto in_range = [&](const char* field, int64_t value, int64_t high) -> Status {
    if (value >= 1 && value <= high) return {};
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                field, value, high);
  };
  JIGE_DO(in_range(kKeyHeads, delta.key_heads, kHeadsMax));
  JIGE_DO(in_range(kValueHeads, delta.value_heads, kHeadsMax));
  JIGE_DO(in_range(kKeyDim, delta.key_dim, kDeltaHeadDimMax));
  JIGE_DO(in_range(kValueDim, delta.value_dim, kDeltaHeadDimMax));
  JIGE_DO(in_range(kKernel, delta.kernel, kConvolutionMax));
  if (delta.value_heads % delta.key_heads != 0) {
    return fail(Code::kInvalidArgument, "{}: {} ({}) does not divide {} ({})", where, kKeyHeads,
                delta.key_heads, kValueHeads, delta.value_heads);
  }
  const bool olmo = config.family == Family::kOlmoHybrid;
  const bool own = !delta.by_key && delta.draws_steps == olmo && (delta.norm_eps > 0) == olmo &&
                   (olmo || !delta.doubles_rate);
  if (own) return {};
  return fail(Code::kInvalidArgument, "{}: {} models have other rates, steps or norms in {} layers",
              where, family_name(config.family), kUsualLayerTypes.recurrent);
}

int64_t delta_parameter_count(const ModelConfig& config) {
  if (config.delta.by_key) return kimi_delta_parameter_count(config);
  const DeltaConfig& delta = config.delta;
  const int64_t inputs = delta.conv_columns() + delta.value_columns() + 2 * delta.value_heads;
  return config.hidden_size * (inputs + delta.value_columns()) +
         delta.conv_columns() * delta.kernel + 2 * delta.value_heads + delta.value_dim;
}

}  // namespace jige::formats

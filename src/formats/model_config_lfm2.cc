#include "formats/model_config_lfm2.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kTaps = "conv_L_cache";
constexpr const char* kConvBias = "conv_bias";
constexpr const char* kAttentionList = "full_attn_idxs";
constexpr const char* kBlockFfn = "block_ff_dim";
constexpr const char* kAdjusts = "block_auto_adjust_ff_dim";
constexpr const char* kMultiplier = "block_ffn_dim_multiplier";
constexpr const char* kMultiple = "block_multiple_of";
constexpr const char* kDenseLayers = "num_dense_layers";
constexpr const char* kChoiceBias = "use_expert_bias";
constexpr const char* kNormalised = "norm_topk_prob";
constexpr const char* kWeightScale = "routed_scaling_factor";
constexpr double kWeightScaleMin = 1e-6;
constexpr double kWeightScaleMax = 1e4;
constexpr double kSumOffset = 1e-6;

// Where layer_types are left out: all but the listed layers, or none where there is no list.
Result<std::vector<uint8_t>> unlisted_layers(const Json& config, const ModelConfig& out,
                                             std::string_view where) {
  if (out.family == Family::kLfm2Moe && !find_field(config, "layer_types")) {
    return fail(Code::kCorrupt, "{}: field \"layer_types\" is missing", where);
  }
  if (!find_field(config, kAttentionList)) {
    return std::vector<uint8_t>(static_cast<size_t>(out.layer_count), 0);
  }
  return all_but_listed_layers(config, kAttentionList, out.layer_count, where);
}

}  // namespace

Result<int64_t> parse_lfm2_ffn_size(const Json& config, std::string_view where) {
  const std::string_view usual = size_fields(Family::kLfm2).ffn;
  const std::string_view field = find_field(config, kBlockFfn) ? kBlockFfn : usual;
  JIGE_TRY(const int64_t stated, get_int(config, field, where));
  JIGE_TRY(const bool adjusts, get_bool_or(config, kAdjusts, true, where));
  if (!adjusts) return stated;
  JIGE_TRY(const double multiplier, get_number_or(config, kMultiplier, 1.0, where));
  JIGE_TRY(const int64_t multiple, get_size_or(config, kMultiple, 256, where));
  // As transformers takes it: two thirds, and then the multiple, are cut to whole numbers.
  const double size = std::trunc(multiplier * std::trunc(2 * static_cast<double>(stated) / 3));
  if (!(size >= 1 && size <= static_cast<double>(kFfnMax)) || multiple > kFfnMax) {
    return fail(Code::kCorrupt, "{}: {} ({}), {} ({}) and {} ({}) make no feed-forward width",
                where, field, stated, kMultiplier, multiplier, kMultiple, multiple);
  }
  return (static_cast<int64_t>(size) + multiple - 1) / multiple * multiple;
}

Status parse_short_conv(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(out.short_conv.kernel, get_int_or(config, kTaps, 3, where));
  JIGE_TRY(out.short_conv.bias, get_bool_or(config, kConvBias, false, where));
  JIGE_TRY(std::vector<uint8_t> usual, unlisted_layers(config, out, where));
  return parse_recurrent_layers(config, {kConvLayerTypes}, std::move(usual), out, where);
}

void emit_short_conv(const ModelConfig& config, Json& out) {
  out[kTaps] = config.short_conv.kernel;
  out[kConvBias] = config.short_conv.bias;
  if (config.family == Family::kLfm2) out[kAdjusts] = false;
  emit_recurrent_layers(config, kConvLayerTypes, out);
}

Status check_short_conv(const ModelConfig& config, std::string_view where) {
  const int64_t kernel = config.short_conv.kernel;
  if (kernel >= 1 && kernel <= kConvolutionMax) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
              kTaps, kernel, kConvolutionMax);
}

Status parse_lfm2_experts(const Json& config, ModelConfig& out, std::string_view where) {
  ExpertConfig& experts = out.experts;
  experts.sigmoid_scores = true;
  experts.sum_offset = kSumOffset;
  JIGE_TRY(experts.choice_bias, get_bool_or(config, kChoiceBias, true, where));
  JIGE_TRY(experts.normalised, get_bool_or(config, kNormalised, true, where));
  JIGE_TRY(experts.weight_scale, get_number_or(config, kWeightScale, 1.0, where));
  JIGE_TRY(const int64_t dense, get_int_or(config, kDenseLayers, 2, where));
  if (out.layer_count < 1 || out.layer_count > kLayersMax) return {};  // refused by the checks
  if (dense < 0 || dense >= out.layer_count) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {} of {} layers, where one at least must have experts", where,
                kDenseLayers, dense, out.layer_count);
  }
  if (dense == 0) return {};
  out.layer_is_dense.assign(static_cast<size_t>(out.layer_count), 0);
  std::fill_n(out.layer_is_dense.begin(), dense, uint8_t{1});
  return {};
}

void emit_lfm2_experts(const ModelConfig& config, Json& out) {
  out[kDenseLayers] = config.layer_count - expert_layer_count(config);
  out[kChoiceBias] = config.experts.choice_bias;
  out[kNormalised] = config.experts.normalised;
  out[kWeightScale] = config.experts.weight_scale;
}

Status check_lfm2_choice(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  if (!experts.sigmoid_scores || experts.groups != 1 || experts.chosen_groups != 1 ||
      experts.groups_by_pairs || experts.sum_offset != kSumOffset) {
    return fail(Code::kInvalidArgument, "{}: {} models do not choose experts so", where,
                family_name(config.family));
  }
  if (experts.weight_scale >= kWeightScaleMin && experts.weight_scale <= kWeightScaleMax) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where,
              kWeightScale, experts.weight_scale, kWeightScaleMin, kWeightScaleMax);
}

int64_t short_conv_parameter_count(const ModelConfig& config) {
  const int64_t width = config.hidden_size;
  const int64_t biases = config.short_conv.bias ? 5 * width : 0;
  return 4 * width * width + width * config.short_conv.kernel + biases;
}

}  // namespace jige::formats

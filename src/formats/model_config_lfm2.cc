#include "formats/model_config_lfm2.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kTaps = "conv_L_cache";
constexpr const char* kLfm3Types = "layer_types";
constexpr const char* kLfm3Window = "sliding_window";
constexpr std::string_view kLfm3Sliding = "sliding_attention";
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

// Of LFM3, where layer_types are left out.
std::string_view usual_lfm3_type(int64_t layer) {
  if (layer % 4 == 2) return kConvLayerTypes.attention;
  return layer % 4 == 0 && layer > 0 ? kLfm3Sliding : kConvLayerTypes.recurrent;
}

Status parse_lfm3_layers(const Json& config, ModelConfig& out, std::string_view where) {
  const auto count = static_cast<size_t>(out.layer_count);
  const Json* list = find_field(config, kLfm3Types);
  if (list && (!list->is_array() || list->size() != count)) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} names, one per layer", where,
                kLfm3Types, count);
  }
  std::vector<uint8_t> recurrent(count), sliding(count);
  for (size_t i = 0; i < count; ++i) {
    std::string type(usual_lfm3_type(static_cast<int64_t>(i)));
    if (list) type = (*list)[i].is_string() ? (*list)[i].get<std::string>() : dump_json((*list)[i]);
    recurrent[i] = type == kConvLayerTypes.recurrent;
    sliding[i] = type == kLfm3Sliding;
    if (recurrent[i] || sliding[i] || type == kConvLayerTypes.attention) continue;
    return fail(Code::kUnsupported,
                "{}: layer type \"{}\" is not supported; supported are {}, {} and {}", where,
                type.substr(0, 80), kConvLayerTypes.recurrent, kConvLayerTypes.attention,
                kLfm3Sliding);
  }
  set_recurrent_layers(std::move(recurrent), out);
  const auto windows = std::count(sliding.begin(), sliding.end(), uint8_t{1});
  if (windows == 0) {
    out.sliding_rope.reset();
    return {};
  }
  if (present(config, kLfm3Window) && !find_field(config, kLfm3Window)) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is null, but layers of this model have a window",
                where, kLfm3Window);
  }
  JIGE_TRY(out.sliding_window,
           get_size_or(config, kLfm3Window, family_info(out.family).window, where));
  if (windows < out.layer_count) out.layer_is_sliding = std::move(sliding);
  return {};
}

void emit_lfm3_layers(const ModelConfig& config, Json& out) {
  Json types = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    const std::string_view usual =
        is_recurrent(config, i) ? kConvLayerTypes.recurrent : kConvLayerTypes.attention;
    types.push_back(std::string(has_window(config, i) ? kLfm3Sliding : usual));
  }
  out[kLfm3Types] = std::move(types);
  out[kLfm3Window] = config.sliding_window > 0 ? Json(config.sliding_window) : Json();
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
  const bool lfm3 = out.family == Family::kLfm3;
  JIGE_TRY(out.short_conv.kernel, get_int_or(config, kTaps, lfm3 ? 7 : 3, where));
  JIGE_TRY(out.short_conv.bias, get_bool_or(config, kConvBias, false, where));
  if (lfm3) return parse_lfm3_layers(config, out, where);
  JIGE_TRY(std::vector<uint8_t> usual, unlisted_layers(config, out, where));
  return parse_recurrent_layers(config, {kConvLayerTypes}, std::move(usual), out, where);
}

void emit_short_conv(const ModelConfig& config, Json& out) {
  out[kTaps] = config.short_conv.kernel;
  out[kConvBias] = config.short_conv.bias;
  if (config.family == Family::kLfm3) return emit_lfm3_layers(config, out);
  if (config.family == Family::kLfm2) out[kAdjusts] = false;
  emit_recurrent_layers(config, kConvLayerTypes, out);
}

Status check_short_conv(const ModelConfig& config, std::string_view where) {
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (!is_recurrent(config, i) || !has_window(config, i)) continue;
    return fail(Code::kInvalidArgument, "{}: layer {} has a convolution and a sliding window",
                where, i);
  }
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

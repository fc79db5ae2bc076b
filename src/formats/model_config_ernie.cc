#include "formats/model_config_ernie.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/model_config_experts.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kSharedCount = "moe_num_shared_experts";
constexpr const char* kExpertStart = "moe_layer_start_index";
constexpr const char* kExpertEnd = "moe_layer_end_index";
constexpr const char* kExpertInterval = "moe_layer_interval";
constexpr const char* kSumMin = "moe_norm_min";

// Layers with experts: those of them whose number, from 1, the interval divides.
struct ExpertLayers {
  int64_t start = 0;
  int64_t end = 0;  // the last one
  int64_t interval = 1;

  bool has(int64_t layer) const {
    return layer >= start && layer <= end && (layer + 1) % interval == 0;
  }
};

// Those of a model, where they can be said so.
ExpertLayers layers_of(const ModelConfig& config) {
  ExpertLayers layers{.start = -1};
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (!has_experts(config, i)) continue;
    if (layers.start < 0) {
      layers.start = i;
    } else if (layers.end == layers.start) {
      layers.interval = i - layers.start;
    }
    layers.end = i;
  }
  if (layers.start < 0) layers.start = layers.end = config.layer_count;
  return layers;
}

}  // namespace

Status parse_ernie_experts(const Json& config, ModelConfig& out, std::string_view where) {
  ExpertConfig& experts = out.experts;
  experts.normalised = experts.choice_bias = true;
  JIGE_TRY(experts.sum_min, get_number_or(config, kSumMin, 1e-12, where));
  JIGE_TRY(const int64_t shared, get_int_or(config, kSharedCount, 2, where));
  if (shared < 0 || shared > kExpertsMax || experts.ffn_size > kFfnMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [0, {}]", where,
                kSharedCount, shared, kExpertsMax);
  }
  experts.shared_ffn_size = shared * experts.ffn_size;
  JIGE_TRY(experts.balance_loss, get_bool_or(config, "output_router_logits", false, where));
  JIGE_TRY(experts.balance_weight,
           get_number_or(config, "router_aux_loss_coef", usual_balance_weight(out.family), where));
  ExpertLayers layers;
  JIGE_TRY(layers.start, get_int_or(config, kExpertStart, 1, where));
  JIGE_TRY(layers.end, get_int_or(config, kExpertEnd, -1, where));
  JIGE_TRY(layers.interval, get_size_or(config, kExpertInterval, 1, where));
  if (layers.end == -1) layers.end = out.layer_count - 1;
  if (out.layer_count < 1 || out.layer_count > kLayersMax) return {};  // refused by the checks
  std::vector<uint8_t> dense;
  for (int64_t i = 0; i < out.layer_count; ++i) dense.push_back(!layers.has(i));
  const auto count = std::count(dense.begin(), dense.end(), uint8_t{1});
  if (count == out.layer_count) {
    return fail(Code::kUnsupported,
                "{}: {} ({}), {} ({}) and {} ({}) leave no layer with experts; save the model as "
                "one of ernie4_5",
                where, kExpertStart, layers.start, kExpertEnd, layers.end, kExpertInterval,
                layers.interval);
  }
  if (count > 0) out.layer_is_dense = std::move(dense);
  return {};
}

void emit_ernie_experts(const ModelConfig& config, Json& out) {
  const ExpertConfig& experts = config.experts;
  const ExpertLayers layers = layers_of(config);
  out[kSharedCount] = experts.shared_ffn_size / experts.ffn_size;
  out[kExpertStart] = layers.start;
  out[kExpertEnd] = layers.end;
  out[kExpertInterval] = layers.interval;
  out[kSumMin] = experts.sum_min;
  out["output_router_logits"] = experts.balance_loss;
  out["router_aux_loss_coef"] = experts.balance_weight;
}

Status check_ernie_experts(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  if (experts.sigmoid_scores || !experts.choice_bias || !experts.normalised ||
      experts.weight_scale != 1 || experts.groups != 1 || experts.chosen_groups != 1 ||
      experts.groups_by_pairs || experts.sum_offset != ExpertConfig().sum_offset) {
    return fail(Code::kInvalidArgument, "{}: {} models do not choose experts so", where,
                family_name(config.family));
  }
  if (!(experts.sum_min >= 0 && experts.sum_min <= 1)) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [0, 1]", where,
                kSumMin, experts.sum_min);
  }
  if (experts.shared_ffn_size < 0 || experts.shared_ffn_size > kFfnMax ||
      experts.shared_ffn_size % experts.ffn_size != 0) {
    return fail(Code::kInvalidArgument,
                "{}: a shared expert of {}, by \"{}\", is no multiple of moe_intermediate_size "
                "({}) up to {}",
                where, experts.shared_ffn_size, kSharedCount, experts.ffn_size, kFfnMax);
  }
  if (config.mlp_bias) {
    return fail(Code::kUnsupported,
                "{}: field \"use_bias\" is true, which is not supported beside experts", where);
  }
  if (!config.layer_is_dense.empty() &&
      config.layer_is_dense.size() != static_cast<size_t>(config.layer_count)) {
    return fail(Code::kInvalidArgument, "{}: {} flags of layers with experts for {} layers", where,
                config.layer_is_dense.size(), config.layer_count);
  }
  const ExpertLayers layers = layers_of(config);
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (layers.has(i) == has_experts(config, i)) continue;
    return fail(Code::kInvalidArgument,
                "{}: {} models have experts in every so manieth layer of a range, and layer {} is "
                "none such",
                where, family_name(config.family), i);
  }
  return {};
}

}  // namespace jige::formats

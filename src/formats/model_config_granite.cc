#include "formats/model_config_granite.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kSharedSize = "shared_intermediate_size";
constexpr const char* kLayerThetas = "layer_rope_theta";

}  // namespace

Status parse_layer_thetas(const Json& config, ModelConfig& out, std::string_view where) {
  const Json* list = find_field(config, kLayerThetas);
  if (!list) return {};
  if (!list->is_array() || list->size() != static_cast<size_t>(out.layer_count)) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} numbers, one per layer",
                where, kLayerThetas, out.layer_count);
  }
  std::optional<double> full, sliding;
  std::vector<uint8_t> unturned;
  for (int64_t layer = 0; layer < out.layer_count; ++layer) {
    const Json wrapped = {{kLayerThetas, (*list)[static_cast<size_t>(layer)]}};
    JIGE_TRY(const double theta, get_number(wrapped, kLayerThetas, where));
    unturned.push_back(theta == 0);
    if (theta == 0) continue;
    std::optional<double>& of_kind = has_window(out, layer) ? sliding : full;
    if (!of_kind) of_kind = theta;
    if (*of_kind == theta) continue;
    return fail(
        Code::kUnsupported,
        "{}: field \"{}\" is {} for layer {} and {} for another {} the sliding window, where "
        "Jige has one theta for layers with the window and one for those without",
        where, kLayerThetas, theta, layer, *of_kind, has_window(out, layer) ? "with" : "without");
  }
  if (std::count(unturned.begin(), unturned.end(), uint8_t{1}) > 0) {
    out.layer_is_unturned = std::move(unturned);
  }
  if (full || sliding) out.rope.theta = full.value_or(sliding.value_or(0));
  if (sliding && *sliding != out.rope.theta) {
    out.sliding_rope = out.rope;
    out.sliding_rope->theta = *sliding;
  }
  return {};
}

void emit_layer_thetas(const ModelConfig& config, Json& out) {
  Json thetas = Json::array();
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const bool sliding = has_window(config, layer) && config.sliding_rope;
    const double theta = sliding ? config.sliding_rope->theta : config.rope.theta;
    thetas.push_back(turns(config, layer) ? theta : 0.0);
  }
  out[kLayerThetas] = std::move(thetas);
}

Status parse_granite_experts(const Json& config, ModelConfig& out, std::string_view where) {
  const bool hybrid = out.family == Family::kGraniteHybrid;
  int64_t shared = 0;
  if (out.family != Family::kGraniteMoe) {
    JIGE_TRY(shared, get_int_or(config, kSharedSize, hybrid ? 1024 : 0, where));
  }
  ExpertConfig& experts = out.experts;
  const ExpertFields fields = expert_fields(out);
  JIGE_TRY(const int64_t count, get_int_or(config, fields.count, fields.count_default, where));
  if (count == 0 && hybrid) {
    out.ffn_size = shared;
    return {};
  }
  experts.count = count;
  JIGE_TRY(experts.chosen, get_int_or(config, kChosenField, fields.chosen_default, where));
  experts.ffn_size = out.ffn_size;
  experts.shared_ffn_size = shared;
  experts.normalised = true;
  JIGE_TRY(experts.balance_loss, get_bool_or(config, "output_router_logits", false, where));
  JIGE_TRY(experts.balance_weight,
           get_number_or(config, "router_aux_loss_coef", usual_balance_weight(out.family), where));
  return {};
}

Status check_granite_shared(const ModelConfig& config, std::string_view where) {
  const int64_t shared = config.experts.shared_ffn_size;
  const int64_t low = config.family == Family::kGraniteHybrid ? 1 : 0;
  const int64_t high = config.family == Family::kGraniteMoe ? 0 : kFfnMax;
  if (shared >= low && shared <= high) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where,
              kSharedSize, shared, low, high);
}

void emit_granite_experts(const ModelConfig& config, Json& out) {
  const ExpertConfig& experts = config.experts;
  out[std::string(kNewCountField)] = experts.count;
  if (config.family != Family::kGraniteMoe) {
    out[kSharedSize] = experts.count > 0 ? experts.shared_ffn_size : config.ffn_size;
  }
  if (experts.count == 0) return;
  out[std::string(kChosenField)] = experts.chosen;
  out["output_router_logits"] = experts.balance_loss;
  out["router_aux_loss_coef"] = experts.balance_weight;
}

}  // namespace jige::formats

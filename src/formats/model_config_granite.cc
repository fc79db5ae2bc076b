#include "formats/model_config_granite.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kSharedSize = "shared_intermediate_size";

}  // namespace

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

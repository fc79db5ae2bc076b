#include "formats/model_config_granite.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kGraniteCount = "num_local_experts";
constexpr const char* kGraniteChosen = "num_experts_per_tok";

}  // namespace

Status parse_granite_experts(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t shared, get_int_or(config, kGraniteShared, 1024, where));
  ExpertConfig& experts = out.experts;
  JIGE_TRY(const int64_t count, get_int_or(config, kGraniteCount, 8, where));
  if (count == 0) {
    out.ffn_size = shared;
    return {};
  }
  experts.count = count;
  JIGE_TRY(experts.chosen, get_int_or(config, kGraniteChosen, 2, where));
  experts.ffn_size = out.ffn_size;
  experts.shared_ffn_size = shared;
  experts.normalised = true;
  JIGE_TRY(experts.balance_loss, get_bool_or(config, "output_router_logits", false, where));
  JIGE_TRY(experts.balance_weight,
           get_number_or(config, "router_aux_loss_coef", usual_balance_weight(out.family), where));
  return {};
}

void emit_granite_experts(const ModelConfig& config, Json& out) {
  const ExpertConfig& experts = config.experts;
  out[kGraniteCount] = experts.count;
  out[kGraniteShared] = experts.count > 0 ? experts.shared_ffn_size : config.ffn_size;
  if (experts.count == 0) return;
  out[kGraniteChosen] = experts.chosen;
  out["output_router_logits"] = experts.balance_loss;
  out["router_aux_loss_coef"] = experts.balance_weight;
}

}  // namespace jige::formats

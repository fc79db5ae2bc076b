#include "formats/model_config_jamba.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_expert_rules.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_recurrent.h"

namespace jige::formats {
namespace {

// Layers `offset`, `offset` + `period` and so on.
struct Periodic {
  const char* period;
  const char* offset;
  int64_t usual_period;
  int64_t usual_offset;
};
constexpr Periodic kJambaAttention{"attn_layer_period", "attn_layer_offset", 8, 4};
constexpr Periodic kJambaExperts{"expert_layer_period", "expert_layer_offset", 2, 1};

// Flags of all other layers. REQUIRES: a number of layers within the limits.
Result<std::vector<uint8_t>> parse_others(const Json& config, const Periodic& fields,
                                          int64_t layer_count, std::string_view where) {
  JIGE_TRY(const int64_t period, get_size_or(config, fields.period, fields.usual_period, where));
  JIGE_TRY(const int64_t offset, get_int_or(config, fields.offset, fields.usual_offset, where));
  if (offset < 0 || offset >= period) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [0, {}), below {}", where,
                fields.offset, offset, period, fields.period);
  }
  std::vector<uint8_t> flags;
  for (int64_t i = 0; i < layer_count; ++i) flags.push_back(i % period != offset);
  return flags;
}

// The period and offset of the layers without a flag: the smallest, or beyond all layers.
std::pair<int64_t, int64_t> period_of(const ModelConfig& config,
                                      bool (*others)(const ModelConfig&, int64_t)) {
  const int64_t count = config.layer_count;
  int64_t first = 0;
  while (first < count && others(config, first)) ++first;
  if (first == count) return {count + 1, count};
  int64_t second = first + 1;
  while (second < count && others(config, second)) ++second;
  const int64_t period = second == count ? count : second - first;
  return {period, first};
}

bool without_experts(const ModelConfig& config, int64_t layer) {
  return !has_experts(config, layer);
}

void emit_period(const ModelConfig& config, const Periodic& fields,
                 bool (*others)(const ModelConfig&, int64_t), Json& out) {
  const auto [period, offset] = period_of(config, others);
  out[fields.period] = period;
  out[fields.offset] = offset;
}

Status check_period(const ModelConfig& config, const Periodic& fields,
                    bool (*others)(const ModelConfig&, int64_t), std::string_view where) {
  const auto [period, offset] = period_of(config, others);
  bool holds = offset < period;
  for (int64_t i = 0; holds && i < config.layer_count; ++i) {
    holds = others(config, i) == (i % period != offset);
  }
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{}: the layers follow no {} with an {}", where,
              fields.period, fields.offset);
}

}  // namespace

Status parse_jamba_layers(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(std::vector<uint8_t> flags,
           parse_others(config, kJambaAttention, out.layer_count, where));
  set_recurrent_layers(std::move(flags), out);
  return {};
}

Status parse_jamba_experts(const Json& config, ModelConfig& out, std::string_view where) {
  if (out.layer_count < 1 || out.layer_count > kLayersMax) return {};  // refused by the checks
  const ExpertFields fields = expert_fields(out);
  JIGE_TRY(const int64_t count, get_int_or(config, fields.count, fields.count_default, where));
  JIGE_TRY(std::vector<uint8_t> dense, parse_others(config, kJambaExperts, out.layer_count, where));
  bool any = false;
  for (const uint8_t flag : dense) any = any || !flag;
  if (count == 1 || !any) return {};
  ExpertConfig& experts = out.experts;
  experts.count = count;
  JIGE_TRY(experts.chosen, get_int_or(config, fields.chosen, fields.chosen_default, where));
  experts.ffn_size = out.ffn_size;
  JIGE_TRY(experts.balance_loss, get_bool_or(config, "output_router_logits", false, where));
  JIGE_TRY(experts.balance_weight,
           get_number_or(config, "router_aux_loss_coef", experts.balance_weight, where));
  for (const uint8_t flag : dense) {
    if (flag) out.layer_is_dense = dense;
  }
  return {};
}

void emit_jamba_layers(const ModelConfig& config, Json& out) {
  emit_period(config, kJambaAttention, is_recurrent, out);
}

void emit_jamba_experts(const ModelConfig& config, Json& out) {
  const ExpertConfig& experts = config.experts;
  const ExpertFields fields = expert_fields(config);
  emit_period(config, kJambaExperts, without_experts, out);
  out[std::string(fields.count)] = experts.count == 0 ? 1 : experts.count;
  out[std::string(fields.chosen)] = experts.count == 0 ? 1 : experts.chosen;
  out["output_router_logits"] = experts.balance_loss;
  out["router_aux_loss_coef"] = experts.balance_weight;
}

Status check_jamba_layers(const ModelConfig& config, std::string_view where) {
  return check_period(config, kJambaAttention, is_recurrent, where);
}

Status check_jamba_experts(const ModelConfig& config, std::string_view where) {
  return check_period(config, kJambaExperts, without_experts, where);
}

}  // namespace jige::formats

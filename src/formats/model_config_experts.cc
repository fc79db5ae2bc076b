#include "formats/model_config_experts.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// How a family spells its fields, and what it takes where they are left out.
struct ExpertFields {
  std::string_view count;
  std::string_view ffn;
  int64_t count_default;
  int64_t chosen_default;
  int64_t ffn_default;
};

constexpr double kGateAlpha = 1.702;
constexpr double kGateLimit = 7.0;
constexpr double kGateMax = 1e4;
constexpr std::string_view kChosenField = "num_experts_per_tok";
constexpr std::string_view kNewCountField = "num_local_experts";  // of every family since 5.0

ExpertFields expert_fields(const ModelConfig& config) {
  if (config.family == Family::kMixtral) {
    return {kNewCountField, "intermediate_size", 8, 2, config.ffn_size};
  }
  if (config.family == Family::kGptOss) {
    return {kNewCountField, "intermediate_size", 128, 4, config.ffn_size};
  }
  if (config.family == Family::kOlmoe) {
    return {"num_experts", "intermediate_size", 64, 8, config.ffn_size};
  }
  return {"num_experts", "moe_intermediate_size", 128, 8, 768};
}

Result<int64_t> parse_expert_count(const Json& config, const ExpertFields& fields,
                                   std::string_view where) {
  const Json* own = find_field(config, fields.count);
  const bool use_own = own || !find_field(config, kNewCountField);
  JIGE_TRY(const int64_t count, get_int_or(config, use_own ? fields.count : kNewCountField,
                                           fields.count_default, where));
  if (count < 1 || count > kExpertsMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                use_own ? fields.count : kNewCountField, count, kExpertsMax);
  }
  JIGE_TRY(const int64_t other, get_int_or(config, kNewCountField, count, where));
  if (other == count) return count;
  return fail(Code::kCorrupt, "{}: {} ({}) contradicts {} ({})", where, fields.count, count,
              kNewCountField, other);
}

// Jige computes models in which every layer has experts.
Status refuse_dense_layers(const Json& config, std::string_view where) {
  JIGE_TRY(const int64_t step, get_int_or(config, "decoder_sparse_step", 1, where));
  if (step != 1) {
    return fail(Code::kUnsupported,
                "{}: field \"decoder_sparse_step\" is {}; Jige computes models whose layers all "
                "have experts, where it is 1",
                where, step);
  }
  const Json* dense = find_field(config, "mlp_only_layers");
  if (!dense || (dense->is_array() && dense->empty())) return {};
  if (!dense->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"mlp_only_layers\" must be a list", where);
  }
  return fail(Code::kUnsupported,
              "{}: field \"mlp_only_layers\" names {} layers without experts; Jige computes models "
              "whose layers all have them",
              where, dense->size());
}

Status in_expert_range(std::string_view where, std::string_view field, int64_t value,
                       int64_t high) {
  if (value >= 1 && value <= high) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
              field, value, high);
}

Status check_gate(const ExpertConfig& experts, Family family, std::string_view where) {
  const bool bounded = family == Family::kGptOss;
  if (experts.biases != bounded || (experts.gate_limit > 0) != bounded ||
      (experts.gate_alpha > 0) != bounded) {
    return fail(Code::kInvalidArgument,
                "{}: {} models have {}; swiglu_limit is {}, swiglu_alpha {}", where,
                family_name(family),
                bounded ? "experts with biases and a positive swiglu_limit and swiglu_alpha"
                        : "experts without biases, swiglu_limit and swiglu_alpha",
                experts.gate_limit, experts.gate_alpha);
  }
  for (const auto& [field, value] : {std::pair("swiglu_limit", experts.gate_limit),
                                     std::pair("swiglu_alpha", experts.gate_alpha)}) {
    if (value <= kGateMax) continue;
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in (0, {}]", where,
                field, value, kGateMax);
  }
  return {};
}

}  // namespace

Status parse_experts(const Json& config, ModelConfig& out, std::string_view where) {
  const ExpertFields fields = expert_fields(out);
  ExpertConfig& experts = out.experts;
  JIGE_TRY(experts.count, parse_expert_count(config, fields, where));
  JIGE_TRY(experts.chosen, get_int_or(config, kChosenField, fields.chosen_default, where));
  JIGE_TRY(experts.ffn_size, get_int_or(config, fields.ffn, fields.ffn_default, where));
  JIGE_TRY(experts.balance_loss, get_bool_or(config, "output_router_logits", false, where));
  const double weight = out.family == Family::kOlmoe ? 0.01 : experts.balance_weight;
  JIGE_TRY(experts.balance_weight, get_number_or(config, "router_aux_loss_coef", weight, where));
  if (out.family == Family::kMixtral) {
    experts.normalised = true;
    JIGE_TRY(experts.jitter, get_number_or(config, "router_jitter_noise", 0, where));
    return {};
  }
  if (out.family == Family::kGptOss) {
    experts.normalised = experts.biases = true;
    JIGE_TRY(experts.gate_alpha, get_number_or(config, "swiglu_alpha", kGateAlpha, where));
    JIGE_TRY(experts.gate_limit, get_number_or(config, "swiglu_limit", kGateLimit, where));
    return {};
  }
  JIGE_TRY(experts.normalised, get_bool_or(config, "norm_topk_prob", false, where));
  return out.family == Family::kQwen3Moe ? refuse_dense_layers(config, where) : Status();
}

void emit_experts(const ModelConfig& config, Json& out) {
  const ExpertFields fields = expert_fields(config);
  const ExpertConfig& experts = config.experts;
  out[std::string(fields.count)] = experts.count;
  out[std::string(kChosenField)] = experts.chosen;
  out[std::string(fields.ffn)] = experts.ffn_size;
  out["output_router_logits"] = experts.balance_loss;
  out["router_aux_loss_coef"] = experts.balance_weight;
  if (config.family == Family::kMixtral) {
    out["router_jitter_noise"] = experts.jitter;
    return;
  }
  if (config.family == Family::kGptOss) {
    out["swiglu_alpha"] = experts.gate_alpha;
    out["swiglu_limit"] = experts.gate_limit;
    return;
  }
  out["norm_topk_prob"] = experts.normalised;
  if (config.family == Family::kOlmoe) {
    out["clip_qkv"] = nullptr;
    return;
  }
  out["decoder_sparse_step"] = 1;
  out["mlp_only_layers"] = Json::array();
}

Status check_experts(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  if (!has_experts(config.family)) {
    if (experts.count == 0) return {};
    return fail(Code::kInvalidArgument, "{}: {} models have no experts, and {} are given", where,
                family_name(config.family), experts.count);
  }
  const ExpertFields fields = expert_fields(config);
  JIGE_DO(in_expert_range(where, fields.count, experts.count, kExpertsMax));
  JIGE_DO(in_expert_range(where, kChosenField, experts.chosen, experts.count));
  JIGE_DO(in_expert_range(where, fields.ffn, experts.ffn_size, kFfnMax));
  if (experts.count * experts.ffn_size > kExpertWidthMax) {
    return fail(Code::kInvalidArgument, "{}: {} ({}) times {} ({}) is over the limit of {}", where,
                fields.count, experts.count, fields.ffn, experts.ffn_size, kExpertWidthMax);
  }
  if (experts.count * config.layer_count > kExpertsOfModelMax) {
    return fail(Code::kInvalidArgument,
                "{}: {} ({}) times num_hidden_layers ({}) is over the limit of {}", where,
                fields.count, experts.count, config.layer_count, kExpertsOfModelMax);
  }
  JIGE_DO(check_gate(experts, config.family, where));
  if (config.family == Family::kQwen3Moe) return {};
  const bool any_weights = config.family == Family::kOlmoe;
  if ((any_weights || experts.normalised) && experts.ffn_size == config.ffn_size) return {};
  return fail(Code::kInvalidArgument,
              "{}: {} models have experts of intermediate_size ({}, not {}){}", where,
              family_name(config.family), config.ffn_size, experts.ffn_size,
              any_weights ? "" : " whose weights add up to one");
}

int64_t expert_layer_count(const ModelConfig& config, int64_t experts) {
  const bool biases = config.experts.biases;
  const int64_t ffn = config.experts.ffn_size;
  const int64_t one = 3 * config.hidden_size * ffn + (biases ? 2 * ffn + config.hidden_size : 0);
  return (config.hidden_size + (biases ? 1 : 0)) * config.experts.count + experts * one;
}

}  // namespace jige::formats

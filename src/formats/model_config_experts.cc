#include "formats/model_config_experts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "formats/model_config_fields.h"
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
constexpr const char* kDenseLayersField = "mlp_only_layers";
constexpr const char* kSharedField = "shared_expert_intermediate_size";
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
  if (config.family == Family::kQwen2Moe) {
    return {"num_experts", "moe_intermediate_size", 60, 4, 1408};
  }
  return {"num_experts", "moe_intermediate_size", 128, 8, 768};
}

// Families whose layers may have no experts, and whose experts have a size of their own.
bool is_qwen_moe(Family family) {
  return family == Family::kQwen2Moe || family == Family::kQwen3Moe;
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

// Every `decoder_sparse_step`th layer has experts, but those that "mlp_only_layers" names.
Status parse_dense_layers(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t step, get_size_or(config, "decoder_sparse_step", 1, where));
  if (out.layer_count < 1 || out.layer_count > kLayersMax) return {};  // refused by the checks
  std::vector<uint8_t> dense;
  for (int64_t i = 1; i <= out.layer_count; ++i) dense.push_back(i % step != 0);
  if (const Json* list = find_field(config, kDenseLayersField)) {
    if (!list->is_array()) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be a list", where, kDenseLayersField);
    }
    for (const Json& entry : *list) {
      const Json wrapped = {{kDenseLayersField, entry}};
      JIGE_TRY(const int64_t layer, get_int(wrapped, kDenseLayersField, where));
      if (layer < 0 || layer >= out.layer_count) {
        return fail(Code::kCorrupt, "{}: field \"{}\" names layer {} of {}", where,
                    kDenseLayersField, layer, out.layer_count);
      }
      dense[static_cast<size_t>(layer)] = 1;
    }
  }
  const auto count = std::count(dense.begin(), dense.end(), uint8_t{1});
  if (count == out.layer_count) {
    return fail(Code::kUnsupported,
                "{}: decoder_sparse_step ({}) and {} leave no layer with experts; save the model "
                "as one of a family without them",
                where, step, kDenseLayersField);
  }
  if (count > 0) out.layer_is_dense = std::move(dense);
  return {};
}

Status in_expert_range(std::string_view where, std::string_view field, int64_t value,
                       int64_t high) {
  if (value >= 1 && value <= high) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
              field, value, high);
}

// What only the families of Qwen have.
Status check_layers(const ModelConfig& config, std::string_view where) {
  const int64_t shared = config.experts.shared_ffn_size;
  if (config.family == Family::kQwen2Moe) {
    JIGE_DO(in_expert_range(where, kSharedField, shared, kFfnMax));
  } else if (shared != 0) {
    return fail(Code::kInvalidArgument,
                "{}: {} models have no shared expert, and one of {} is given", where,
                family_name(config.family), shared);
  }
  if (config.layer_is_dense.empty()) return {};
  if (!is_qwen_moe(config.family)) {
    return fail(Code::kInvalidArgument, "{}: all layers of {} models have experts, or none has",
                where, family_name(config.family));
  }
  if (config.layer_is_dense.size() == static_cast<size_t>(config.layer_count)) return {};
  return fail(Code::kInvalidArgument, "{}: {} are flags of {} layers for {}", where,
              kDenseLayersField, config.layer_is_dense.size(), config.layer_count);
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
  JIGE_TRY(experts.balance_weight,
           get_number_or(config, "router_aux_loss_coef", usual_balance_weight(out.family), where));
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
  if (out.family == Family::kQwen2Moe) {
    JIGE_TRY(experts.shared_ffn_size, get_int_or(config, kSharedField, 5632, where));
  }
  return is_qwen_moe(out.family) ? parse_dense_layers(config, out, where) : Status();
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
  if (config.family == Family::kQwen2Moe) out[kSharedField] = experts.shared_ffn_size;
  out["decoder_sparse_step"] = 1;
  Json dense = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (!has_experts(config, i)) dense.push_back(i);
  }
  out[kDenseLayersField] = std::move(dense);
}

Status check_experts(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  JIGE_DO(check_layers(config, where));
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
  if (is_qwen_moe(config.family)) return {};
  const bool any_weights = config.family == Family::kOlmoe;
  if ((any_weights || experts.normalised) && experts.ffn_size == config.ffn_size) return {};
  return fail(Code::kInvalidArgument,
              "{}: {} models have experts of intermediate_size ({}, not {}){}", where,
              family_name(config.family), config.ffn_size, experts.ffn_size,
              any_weights ? "" : " whose weights add up to one");
}

bool has_experts(const ModelConfig& config, int64_t layer) {
  if (config.experts.count == 0) return false;
  const auto index = static_cast<size_t>(layer);
  return index >= config.layer_is_dense.size() || !config.layer_is_dense[index];
}

int64_t expert_layer_count(const ModelConfig& config) {
  int64_t count = 0;
  for (int64_t i = 0; i < config.layer_count; ++i) count += has_experts(config, i) ? 1 : 0;
  return count;
}

int64_t expert_parameter_count(const ModelConfig& config, int64_t experts) {
  const bool biases = config.experts.biases;
  const int64_t ffn = config.experts.ffn_size;
  const int64_t one = 3 * config.hidden_size * ffn + (biases ? 2 * ffn + config.hidden_size : 0);
  const int64_t shared_ffn = config.experts.shared_ffn_size;
  const int64_t shared = shared_ffn > 0 ? (3 * shared_ffn + 1) * config.hidden_size : 0;
  return (config.hidden_size + (biases ? 1 : 0)) * config.experts.count + experts * one + shared;
}

}  // namespace jige::formats

// What a ModelConfig says of experts, checked.
#include <algorithm>
#include <utility>

#include "formats/model_config_ernie.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_expert_rules.h"
#include "formats/model_config_experts.h"
#include "formats/model_config_granite.h"
#include "formats/model_config_hunyuan.h"
#include "formats/model_config_jamba.h"
#include "formats/model_config_lfm2.h"
#include "formats/model_config_llama4.h"
#include "formats/model_config_parts.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr double kGateMax = 1e4;
constexpr double kScaleMin = 1e-6;
constexpr double kScaleMax = 1e4;

Status in_expert_range(std::string_view where, std::string_view field, int64_t value,
                       int64_t high) {
  if (value >= 1 && value <= high) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
              field, value, high);
}

// How experts are chosen.
Status check_choice(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  if (config.family == Family::kLfm2Moe) return check_lfm2_choice(config, where);
  if (config.family == Family::kErnie45Moe) return check_ernie_experts(config, where);
  if (config.family == Family::kLlama4) return check_llama4_experts(config, where);
  const auto router = deepseek_router(config.family);
  const bool minimax = config.family == Family::kMiniMaxM2;
  const bool sigmoid = router ? router->sigmoid : minimax;
  const bool plain = experts.weight_scale == 1 && experts.groups == 1 && experts.chosen_groups == 1;
  if (experts.sigmoid_scores != sigmoid || experts.choice_bias != sigmoid ||
      experts.groups_by_pairs != (router && router->pairs) || (!router && !plain) ||
      experts.sum_offset != (minimax ? 0 : ExpertConfig().sum_offset) || experts.sum_min != 0) {
    return fail(Code::kInvalidArgument, "{}: {} models do not choose experts so", where,
                family_name(config.family));
  }
  if (!router) return {};
  JIGE_DO(in_expert_range(where, kGroupsField, experts.groups, experts.count));
  JIGE_DO(in_expert_range(where, kChosenGroupsField, experts.chosen_groups, experts.groups));
  const int64_t size = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || (router->pairs && size < 2) ||
      experts.chosen > size * experts.chosen_groups) {
    return fail(
        Code::kInvalidArgument,
        "{}: {} experts in {} groups ({}), of which {} are chosen ({}), do not give a token "
        "{} ({})",
        where, experts.count, experts.groups, kGroupsField, experts.chosen_groups,
        kChosenGroupsField, experts.chosen, kChosenField);
  }
  if (!(experts.weight_scale >= kScaleMin && experts.weight_scale <= kScaleMax)) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where,
                scale_field(config.family), experts.weight_scale, kScaleMin, kScaleMax);
  }
  if (config.family == Family::kHyV3 && (!experts.normalised || experts.groups > 1)) {
    return fail(
        Code::kUnsupported,
        "{}: experts in groups ({}), or weights that do not add up to one (\"norm_topk_prob\" "
        "false), which transformers ignores for {} and Jige does not support",
        where, kGroupsField, family_name(config.family));
  }
  if (!router->pairs && experts.normalised) {
    return fail(Code::kUnsupported,
                "{}: field \"norm_topk_prob\" is true, which transformers ignores for {} and Jige "
                "does not support",
                where, family_name(config.family));
  }
  const bool by_count = config.family != Family::kNemotronH;
  if (by_count && experts.shared_ffn_size % experts.ffn_size != 0) {
    return fail(Code::kInvalidArgument, "{}: a shared expert of {} is no multiple of {} ({})",
                where, experts.shared_ffn_size, expert_fields(config).ffn, experts.ffn_size);
  }
  if (config.mlp_bias) {
    return fail(Code::kUnsupported,
                "{}: field \"mlp_bias\" is true, which is not supported beside experts", where);
  }
  return {};
}

// Which layers have experts, and what every token uses.
Status check_layers(const ModelConfig& config, std::string_view where) {
  const int64_t shared = config.experts.shared_ffn_size;
  const bool gated = expert_fields(config).shared_default > 0;
  if (gated) {
    JIGE_DO(in_expert_range(where, kSharedField, shared, kFfnMax));
  } else if (shared > 0 && deepseek_router(config.family)) {
    JIGE_DO(in_expert_range(where, shared_count_field(config.family), shared, kFfnMax));
  } else if (is_granite_moe(config.family)) {
    JIGE_DO(check_granite_shared(config, where));
  } else if (config.family == Family::kHunYuanMoe) {
    JIGE_DO(check_hunyuan_shared(config, where));
  } else if (config.family == Family::kLlama4) {
    JIGE_DO(in_expert_range(where, expert_fields(config).ffn, shared, kFfnMax));
  } else if (shared != 0 && config.family != Family::kErnie45Moe) {
    return fail(Code::kInvalidArgument,
                "{}: {} models have no shared expert, and one of {} is given", where,
                family_name(config.family), shared);
  }
  if (config.experts.shared_gate != gated) {
    return fail(Code::kInvalidArgument, "{}: {} models have {} gate of a shared expert", where,
                family_name(config.family), gated ? "a" : "no");
  }
  if (config.layer_is_dense.empty() || config.family == Family::kErnie45Moe) return {};
  if (config.family == Family::kLlama4) return {};  // any may be
  if (config.family == Family::kNemotronH) return check_nemotron_experts(config, where);
  if (config.family == Family::kJamba) return check_jamba_experts(config, where);
  const bool leading = std::is_sorted(config.layer_is_dense.rbegin(), config.layer_is_dense.rend());
  if (!is_qwen_moe(config.family) && !(leads_without_experts(config.family) && leading)) {
    return fail(Code::kInvalidArgument, "{}: {} models have experts in other layers than these",
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

Status check_experts(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  const bool may_be_dense = deepseek_router(config.family) ||
                            config.family == Family::kGraniteHybrid ||
                            config.family == Family::kGemma4 || config.family == Family::kJamba;
  if (may_be_dense && experts == ExpertConfig()) return {};  // dense layers alone
  JIGE_DO(check_layers(config, where));
  if (!has_experts(config.family)) {
    if (experts.count == 0) return {};
    return fail(Code::kInvalidArgument, "{}: {} models have no experts, and {} are given", where,
                family_name(config.family), experts.count);
  }
  const ExpertFields fields = expert_fields(config);
  JIGE_DO(in_expert_range(where, fields.count, experts.count, kExpertsMax));
  JIGE_DO(in_expert_range(where, fields.chosen, experts.chosen, experts.count));
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
  if (experts.beside_mlp != (config.family == Family::kGemma4)) {
    return fail(Code::kInvalidArgument, "{}: {} models have experts {} their MLPs", where,
                family_name(config.family), experts.beside_mlp ? "in place of" : "beside");
  }
  JIGE_DO(check_gate(experts, config.family, where));
  JIGE_DO(check_choice(config, where));
  if (experts.beside_mlp && experts.normalised) return {};
  if (has_own_width(config.family)) return {};
  const bool jamba = config.family == Family::kJamba;
  if (jamba && experts.normalised) {
    return fail(Code::kInvalidArgument, "{}: {} models have experts whose weights stay as they are",
                where, family_name(config.family));
  }
  const bool any_weights = is_olmo_moe(config.family) || jamba;
  if ((any_weights || experts.normalised) && experts.ffn_size == config.ffn_size) return {};
  return fail(Code::kInvalidArgument, "{}: {} models have experts of {} ({}, not {}){}", where,
              family_name(config.family), fields.ffn, config.ffn_size, experts.ffn_size,
              any_weights ? "" : " whose weights add up to one");
}

}  // namespace jige::formats

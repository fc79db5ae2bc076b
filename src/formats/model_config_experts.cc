#include "formats/model_config_experts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json.h"
#include "formats/model_config_ernie.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_gemma4.h"
#include "formats/model_config_granite.h"
#include "formats/model_config_hunyuan.h"
#include "formats/model_config_lfm2.h"
#include "formats/model_config_llama4.h"
#include "formats/model_config_parts.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr double kGateAlpha = 1.702;
constexpr double kGateLimit = 7.0;
constexpr double kGateMax = 1e4;
constexpr const char* kDenseLayersField = "mlp_only_layers";
constexpr const char* kSharedField = "shared_expert_intermediate_size";
constexpr const char* kFirstDenseField = "first_k_dense_replace";
constexpr const char* kLayerKindsField = "mlp_layer_types";
constexpr const char* kGroupsField = "n_group";
constexpr const char* kChosenGroupsField = "topk_group";
constexpr const char* kScaleField = "routed_scaling_factor";
constexpr double kScaleMin = 1e-6;
constexpr double kScaleMax = 1e4;

// Families whose layers may have no experts, and whose experts have a size of their own.
bool is_qwen_moe(Family family) {
  return family == Family::kQwen2Moe || family == Family::kQwen3Moe || family == Family::kQwen3Next;
}

// Families that choose experts as DeepSeek does, and what they take for fields left out.
struct DeepSeekRouter {
  int64_t dense = 0;  // leading layers without experts
  int64_t shared = 1;
  double scale = 1;
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  bool sigmoid = true;  // with a bias for the choice; groups by their two best
  bool normalised = sigmoid;
};

// The field that counts what every token uses.
const char* shared_count_field(Family family) {
  return family == Family::kExaoneMoe ? "num_shared_experts" : "n_shared_experts";
}

std::optional<DeepSeekRouter> deepseek_router(Family family) {
  if (family == Family::kDeepSeekV2) return DeepSeekRouter{.shared = 2, .sigmoid = false};
  if (family == Family::kDeepSeekV3) {
    return DeepSeekRouter{.dense = 3, .scale = 2.5, .groups = 8, .chosen_groups = 4};
  }
  if (family == Family::kExaoneMoe) return DeepSeekRouter{.dense = 1, .scale = 2.5};
  if (family == Family::kGlm4Moe) return DeepSeekRouter{.dense = 1};
  if (family == Family::kGlm4MoeLite) return DeepSeekRouter{.dense = 1, .scale = 1.8};
  if (family == Family::kNemotronH || family == Family::kSolarOpen) return DeepSeekRouter{};
  if (family == Family::kDots1) return DeepSeekRouter{.shared = 0, .normalised = false};
  return std::nullopt;
}

// Families that name whether a layer has experts.
bool names_layers(Family family) {
  return family == Family::kGlm4MoeLite || family == Family::kExaoneMoe;
}

// Families whose experts have a width of their own, beside intermediate_size.
bool has_own_width(Family family) {
  return is_qwen_moe(family) || deepseek_router(family) || family == Family::kLfm2Moe ||
         family == Family::kErnie45Moe || family == Family::kLlama4;
}

// Families whose first layers have no experts, as many as a field says.
bool leads_without_experts(Family family) {
  return deepseek_router(family) || family == Family::kLfm2Moe;
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

// What scoring_func says. Folders of dots1 name its choice there.
const char* score_name(Family family, bool sigmoid) {
  if (family == Family::kDots1) return "noaux_tc";
  return sigmoid ? "sigmoid" : "softmax";
}

// What transformers does not ask, but what published code of the family does.
Status refuse_other_routers(const Json& config, Family family, bool sigmoid,
                            std::string_view where) {
  const char* usual = score_name(family, sigmoid);
  JIGE_TRY(std::string scores, get_string_or(config, "scoring_func", usual, where));
  if (family == Family::kDots1 && scores == "sigmoid") scores = usual;
  JIGE_TRY(const int64_t step, get_int_or(config, "moe_layer_freq", 1, where));
  if (scores != usual || step != 1) {
    return fail(Code::kUnsupported,
                "{}: scoring_func \"{}\" and moe_layer_freq {} are not supported for {}; they must "
                "be \"{}\" and 1",
                where, scores, step, family_name(family), usual);
  }
  return {};
}

// Whether topk_method asks for groups.
Result<bool> parse_choice_method(const Json& config, Family family, bool sigmoid,
                                 std::string_view where) {
  const char* limited = sigmoid ? "noaux_tc" : "group_limited_greedy";
  const char* usual = sigmoid ? limited : "greedy";
  JIGE_TRY(const std::string method, get_string_or(config, "topk_method", usual, where));
  if (method == limited || method == usual) return method == limited;
  return fail(Code::kUnsupported, "{}: topk_method \"{}\" is not supported for {}", where, method,
              family_name(family));
}

// Leading layers without experts; GLM names every layer's kind instead, and K-EXAONE may.
Result<int64_t> parse_leading_dense(const Json& config, const ModelConfig& out, int64_t usual,
                                    std::string_view where) {
  const Json* kinds = names_layers(out.family) ? find_field(config, kLayerKindsField) : nullptr;
  if (!kinds && out.family == Family::kGlm4MoeLite) return usual;
  if (!kinds) return get_int_or(config, kFirstDenseField, usual, where);
  int64_t dense = 0;
  bool known = kinds->is_array() && static_cast<int64_t>(kinds->size()) == out.layer_count;
  for (size_t i = 0; known && i < kinds->size(); ++i) {
    const bool leading = (*kinds)[i] == "dense" && dense == static_cast<int64_t>(i);
    known = leading || (*kinds)[i] == "sparse";
    if (leading) ++dense;
  }
  if (known) return dense;
  return fail(Code::kUnsupported,
              "{}: field \"{}\" must be a list of {} layers, \"dense\" before \"sparse\"", where,
              kLayerKindsField, out.layer_count);
}

Status parse_deepseek_experts(const Json& config, const DeepSeekRouter& usual, ModelConfig& out,
                              std::string_view where) {
  JIGE_TRY(const int64_t dense, parse_leading_dense(config, out, usual.dense, where));
  if (dense >= out.layer_count) return {};
  if (dense < 0 || out.layer_count > kLayersMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {} of {} layers", where, kFirstDenseField,
                dense, out.layer_count);
  }
  JIGE_DO(refuse_other_routers(config, out.family, usual.sigmoid, where));
  const ExpertFields fields = expert_fields(out);
  ExpertConfig& experts = out.experts;
  JIGE_TRY(experts.count, parse_expert_count(config, fields, where));
  JIGE_TRY(experts.chosen, get_int_or(config, kChosenField, fields.chosen_default, where));
  JIGE_TRY(experts.ffn_size, get_int_or(config, fields.ffn, fields.ffn_default, where));
  JIGE_TRY(const int64_t shared,
           get_int_or(config, shared_count_field(out.family), usual.shared, where));
  if (shared < 0 || shared > kExpertsMax || experts.ffn_size > kFfnMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [0, {}]", where,
                shared_count_field(out.family), shared, kExpertsMax);
  }
  experts.shared_ffn_size = shared * experts.ffn_size;
  JIGE_TRY(experts.weight_scale, get_number_or(config, kScaleField, usual.scale, where));
  JIGE_TRY(experts.normalised, get_bool_or(config, "norm_topk_prob", usual.normalised, where));
  experts.sigmoid_scores = experts.choice_bias = experts.groups_by_pairs = usual.sigmoid;
  JIGE_TRY(const bool grouped, parse_choice_method(config, out.family, usual.sigmoid, where));
  if (grouped) {
    JIGE_TRY(experts.groups, get_int_or(config, kGroupsField, usual.groups, where));
    JIGE_TRY(experts.chosen_groups,
             get_int_or(config, kChosenGroupsField, usual.chosen_groups, where));
  }
  if (dense == 0) return {};
  out.layer_is_dense.assign(static_cast<size_t>(out.layer_count), 0);
  std::fill_n(out.layer_is_dense.begin(), dense, uint8_t{1});
  return {};
}

void emit_deepseek_experts(const ModelConfig& config, const DeepSeekRouter& router, Json& out) {
  const ExpertConfig& experts = config.experts;
  out[kFirstDenseField] = config.layer_count - expert_layer_count(config);
  if (names_layers(config.family)) {
    Json kinds = Json::array();
    for (int64_t i = 0; i < config.layer_count; ++i) {
      kinds.push_back(has_experts(config, i) ? "sparse" : "dense");
    }
    out[kLayerKindsField] = std::move(kinds);
  }
  if (router.sigmoid) out["num_nextn_predict_layers"] = 0;
  if (experts.count == 0) return;
  const ExpertFields fields = expert_fields(config);
  out[std::string(fields.count)] = experts.count;
  out[std::string(kChosenField)] = experts.chosen;
  out[std::string(fields.ffn)] = experts.ffn_size;
  out[shared_count_field(config.family)] = experts.shared_ffn_size / experts.ffn_size;
  out[kScaleField] = experts.weight_scale;
  out["norm_topk_prob"] = experts.normalised;
  out[kGroupsField] = experts.groups;
  out[kChosenGroupsField] = experts.chosen_groups;
  const char* limited = router.sigmoid ? "noaux_tc" : "group_limited_greedy";
  out["topk_method"] = router.sigmoid || experts.groups > 1 ? limited : "greedy";
  out["scoring_func"] = score_name(config.family, router.sigmoid);
  out["moe_layer_freq"] = 1;
}

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
      experts.groups_by_pairs != (router && sigmoid) || (!router && !plain) ||
      experts.sum_offset != (minimax ? 0 : ExpertConfig().sum_offset) || experts.sum_min != 0) {
    return fail(Code::kInvalidArgument, "{}: {} models do not choose experts so", where,
                family_name(config.family));
  }
  if (!router) return {};
  JIGE_DO(in_expert_range(where, kGroupsField, experts.groups, experts.count));
  JIGE_DO(in_expert_range(where, kChosenGroupsField, experts.chosen_groups, experts.groups));
  const int64_t size = experts.count / experts.groups;
  if (experts.count % experts.groups != 0 || (sigmoid && size < 2) ||
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
                kScaleField, experts.weight_scale, kScaleMin, kScaleMax);
  }
  if (!sigmoid && experts.normalised) {
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

Status parse_experts(const Json& config, ModelConfig& out, std::string_view where) {
  if (out.family == Family::kGemma4) return parse_gemma4_experts(config, out, where);
  if (out.family == Family::kNemotronH) return parse_nemotron_experts(config, out, where);
  if (const auto router = deepseek_router(out.family)) {
    return parse_deepseek_experts(config, *router, out, where);
  }
  if (is_granite_moe(out.family)) return parse_granite_experts(config, out, where);
  if (out.family == Family::kHunYuanMoe) return parse_hunyuan_experts(config, out, where);
  const ExpertFields fields = expert_fields(out);
  ExpertConfig& experts = out.experts;
  JIGE_TRY(experts.count, parse_expert_count(config, fields, where));
  JIGE_TRY(experts.chosen, get_int_or(config, fields.chosen, fields.chosen_default, where));
  JIGE_TRY(experts.ffn_size, get_int_or(config, fields.ffn, fields.ffn_default, where));
  if (out.family == Family::kLfm2Moe) return parse_lfm2_experts(config, out, where);
  if (out.family == Family::kErnie45Moe) return parse_ernie_experts(config, out, where);
  if (out.family == Family::kLlama4) return parse_llama4_experts(config, out, where);
  JIGE_TRY(experts.balance_loss, get_bool_or(config, "output_router_logits", false, where));
  JIGE_TRY(experts.balance_weight,
           get_number_or(config, "router_aux_loss_coef", usual_balance_weight(out.family), where));
  const bool minimax = out.family == Family::kMiniMaxM2;
  if (minimax) {
    experts.sigmoid_scores = experts.choice_bias = true;
    experts.sum_offset = 0;
  }
  if (minimax || out.family == Family::kMixtral) {
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
  if (fields.shared_default > 0) {
    JIGE_TRY(experts.shared_ffn_size,
             get_int_or(config, kSharedField, fields.shared_default, where));
    experts.shared_gate = true;
  }
  if (out.family == Family::kQwen35Moe) {
    experts.normalised = true;
    return {};
  }
  JIGE_TRY(experts.normalised,
           get_bool_or(config, "norm_topk_prob", out.family == Family::kQwen3Next, where));
  return is_qwen_moe(out.family) ? parse_dense_layers(config, out, where) : Status();
}

void emit_experts(const ModelConfig& config, Json& out) {
  if (config.family == Family::kGemma4) return emit_gemma4_experts(config, out);
  if (config.family == Family::kNemotronH) return emit_nemotron_experts(config, out);
  if (const auto router = deepseek_router(config.family)) {
    return emit_deepseek_experts(config, *router, out);
  }
  if (is_granite_moe(config.family)) return emit_granite_experts(config, out);
  if (config.family == Family::kHunYuanMoe) return emit_hunyuan_experts(config, out);
  const ExpertFields fields = expert_fields(config);
  const ExpertConfig& experts = config.experts;
  out[std::string(fields.count)] = experts.count;
  out[std::string(fields.chosen)] = experts.chosen;
  out[std::string(fields.ffn)] = experts.ffn_size;
  if (config.family == Family::kLfm2Moe) return emit_lfm2_experts(config, out);
  if (config.family == Family::kErnie45Moe) return emit_ernie_experts(config, out);
  if (config.family == Family::kLlama4) return emit_llama4_experts(config, out);
  out["output_router_logits"] = experts.balance_loss;
  out["router_aux_loss_coef"] = experts.balance_weight;
  if (config.family == Family::kMixtral || config.family == Family::kMiniMaxM2) {
    out["router_jitter_noise"] = experts.jitter;
    return;
  }
  if (config.family == Family::kGptOss) {
    out["swiglu_alpha"] = experts.gate_alpha;
    out["swiglu_limit"] = experts.gate_limit;
    return;
  }
  if (fields.shared_default > 0) out[kSharedField] = experts.shared_ffn_size;
  if (config.family == Family::kQwen35Moe) return;
  out["norm_topk_prob"] = experts.normalised;
  if (config.family == Family::kOlmoe) out["clip_qkv"] = nullptr;
  if (is_olmo_moe(config.family)) return;
  out["decoder_sparse_step"] = 1;
  Json dense = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (!has_experts(config, i)) dense.push_back(i);
  }
  out[kDenseLayersField] = std::move(dense);
}

Status check_experts(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  const bool may_be_dense = deepseek_router(config.family) ||
                            config.family == Family::kGraniteHybrid ||
                            config.family == Family::kGemma4;
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
  const bool any_weights = is_olmo_moe(config.family);
  if ((any_weights || experts.normalised) && experts.ffn_size == config.ffn_size) return {};
  return fail(Code::kInvalidArgument, "{}: {} models have experts of {} ({}, not {}){}", where,
              family_name(config.family), fields.ffn, config.ffn_size, experts.ffn_size,
              any_weights ? "" : " whose weights add up to one");
}

}  // namespace jige::formats

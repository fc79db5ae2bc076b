#include "formats/model_config_experts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_ernie.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_expert_rules.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_gemma4.h"
#include "formats/model_config_granite.h"
#include "formats/model_config_hunyuan.h"
#include "formats/model_config_jamba.h"
#include "formats/model_config_lfm2.h"
#include "formats/model_config_llama4.h"
#include "formats/model_config_parts.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr double kGateAlpha = 1.702;
constexpr double kGateLimit = 7.0;
constexpr const char* kFirstDenseField = "first_k_dense_replace";
constexpr const char* kLayerKindsField = "mlp_layer_types";

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

// Which layers have none, as a list of "dense" and "sparse" says.
Result<std::vector<uint8_t>> parse_layer_kinds(const Json& kinds, const ModelConfig& out,
                                               std::string_view where) {
  std::vector<uint8_t> dense;
  bool known = kinds.is_array() && static_cast<int64_t>(kinds.size()) == out.layer_count;
  for (size_t i = 0; known && i < kinds.size(); ++i) {
    known = kinds[i] == "dense" || kinds[i] == "sparse";
    dense.push_back(kinds[i] == "dense");
  }
  if (known) return dense;
  return fail(Code::kUnsupported,
              "{}: field \"{}\" must be a list of {} layers, each \"dense\" or \"sparse\"", where,
              kLayerKindsField, out.layer_count);
}

// Of Mellum.
Status parse_named_layers(const Json& config, ModelConfig& out, std::string_view where) {
  const Json* kinds = find_field(config, kLayerKindsField);
  if (!kinds) return {};
  JIGE_TRY(std::vector<uint8_t> dense, parse_layer_kinds(*kinds, out, where));
  const auto count = std::count(dense.begin(), dense.end(), uint8_t{1});
  if (count > 0 && count == out.layer_count) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" leaves no layer with experts; save the model as one of a family "
                "without them",
                where, kLayerKindsField);
  }
  if (count > 0) out.layer_is_dense = std::move(dense);
  return {};
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
Result<bool> parse_choice_method(const Json& config, Family family, bool pairs,
                                 std::string_view where) {
  const char* limited = pairs ? "noaux_tc" : "group_limited_greedy";
  const char* usual = pairs ? limited : "greedy";
  JIGE_TRY(const std::string method, get_string_or(config, "topk_method", usual, where));
  if (method == limited || method == usual) return method == limited;
  return fail(Code::kUnsupported, "{}: topk_method \"{}\" is not supported for {}", where, method,
              family_name(family));
}

// Leading layers without experts; GLM names every layer's kind instead, and K-EXAONE may.
Result<int64_t> parse_leading_dense(const Json& config, const ModelConfig& out, int64_t usual,
                                    std::string_view where) {
  const Json* kinds = names_layers(out.family) ? find_field(config, kLayerKindsField) : nullptr;
  if (!kinds && (out.family == Family::kGlm4MoeLite || out.family == Family::kHyV3)) return usual;
  if (!kinds) return get_int_or(config, kFirstDenseField, usual, where);
  JIGE_TRY(const std::vector<uint8_t> dense, parse_layer_kinds(*kinds, out, where));
  if (std::is_sorted(dense.rbegin(), dense.rend())) {
    return std::count(dense.begin(), dense.end(), uint8_t{1});
  }
  return fail(Code::kUnsupported,
              "{}: field \"{}\" must name \"dense\" layers before \"sparse\" ones", where,
              kLayerKindsField);
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
  JIGE_TRY(experts.weight_scale,
           get_number_or(config, scale_field(out.family), usual.scale, where));
  JIGE_TRY(experts.normalised, get_bool_or(config, "norm_topk_prob", usual.normalised, where));
  experts.sigmoid_scores = experts.choice_bias = usual.sigmoid;
  experts.groups_by_pairs = usual.pairs;
  JIGE_TRY(const bool grouped, parse_choice_method(config, out.family, usual.pairs, where));
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

void emit_layer_kinds(const ModelConfig& config, Json& out) {
  Json kinds = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    kinds.push_back(has_experts(config, i) ? "sparse" : "dense");
  }
  out[kLayerKindsField] = std::move(kinds);
}

void emit_deepseek_experts(const ModelConfig& config, const DeepSeekRouter& router, Json& out) {
  const ExpertConfig& experts = config.experts;
  out[kFirstDenseField] = config.layer_count - expert_layer_count(config);
  if (names_layers(config.family)) emit_layer_kinds(config, out);
  if (router.sigmoid) out["num_nextn_predict_layers"] = 0;
  if (experts.count == 0) return;
  const ExpertFields fields = expert_fields(config);
  out[std::string(fields.count)] = experts.count;
  out[std::string(kChosenField)] = experts.chosen;
  out[std::string(fields.ffn)] = experts.ffn_size;
  out[shared_count_field(config.family)] = experts.shared_ffn_size / experts.ffn_size;
  out[scale_field(config.family)] = experts.weight_scale;
  out["norm_topk_prob"] = experts.normalised;
  out[kGroupsField] = experts.groups;
  out[kChosenGroupsField] = experts.chosen_groups;
  const char* limited = router.pairs ? "noaux_tc" : "group_limited_greedy";
  out["topk_method"] = router.pairs || experts.groups > 1 ? limited : "greedy";
  out["scoring_func"] = score_name(config.family, router.sigmoid);
  out["moe_layer_freq"] = 1;
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
  if (out.family == Family::kJamba) return parse_jamba_experts(config, out, where);
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
  const bool mellum = out.family == Family::kMellum;
  JIGE_TRY(experts.normalised, get_bool_or(config, "norm_topk_prob",
                                           mellum || out.family == Family::kQwen3Next, where));
  if (mellum) return parse_named_layers(config, out, where);
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
  if (config.family == Family::kJamba) return emit_jamba_experts(config, out);
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
  if (config.family == Family::kMellum) return emit_layer_kinds(config, out);
  out["decoder_sparse_step"] = 1;
  Json dense = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (!has_experts(config, i)) dense.push_back(i);
  }
  out[kDenseLayersField] = std::move(dense);
}

}  // namespace jige::formats

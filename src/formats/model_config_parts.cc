#include "formats/model_config_parts.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "formats/model_config_expert_fields.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kPatternField = "hybrid_override_pattern";
constexpr const char* kSharedFfn = "moe_shared_expert_intermediate_size";

// The letter of a layer's kind by its word, old or new; 0 of any other.
char part_letter(std::string_view word) {
  if (word == kUsualLayerTypes.recurrent || word == kMambaLayerTypes.recurrent) return 'M';
  if (word == kUsualLayerTypes.attention || word == kMambaLayerTypes.attention) return '*';
  if (word == "mlp") return '-';
  return word == "moe" ? 'E' : 0;
}

// Words go before letters, as in transformers.
Result<std::string> parse_letters(const Json& config, std::string_view where) {
  for (const char* field : {"layers_block_type", "layer_types"}) {
    const Json* list = find_field(config, field);
    if (!list) continue;
    if (!list->is_array()) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of names", where, field);
    }
    std::string letters;
    for (const Json& entry : *list) {
      const std::string word = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
      const char letter = part_letter(word);
      if (letter == 0) {
        return fail(Code::kUnsupported,
                    "{}: layer type \"{}\" is not supported; supported are linear_attention, "
                    "full_attention, mlp and moe",
                    where, word.substr(0, 80));
      }
      letters.push_back(letter);
    }
    return letters;
  }
  return get_string(config, kPatternField, where);
}

}  // namespace

Status parse_single_parts(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const std::string letters, parse_letters(config, where));
  out.layer_count = static_cast<int64_t>(letters.size());
  if (letters.empty() || out.layer_count > kLayersMax) {
    return fail(Code::kCorrupt, "{}: {} layers are named; there must be 1 to {}", where,
                out.layer_count, kLayersMax);
  }
  for (const char letter : letters) {
    if (letter != 'M' && letter != '*' && letter != '-' && letter != 'E') {
      return fail(Code::kUnsupported,
                  "{}: field \"{}\" has the letter \"{}\"; supported are M, *, - and E", where,
                  kPatternField, letter);
    }
    out.layer_is_unturned.push_back(1);
    const bool feeds = letter == '-' || letter == 'E';
    out.layer_parts.push_back(feeds ? LayerParts::kFeedForward : LayerParts::kAttention);
  }
  if (letters.find('E') == std::string::npos) return {};
  for (const char letter : letters) out.layer_is_dense.push_back(letter != 'E');
  return {};
}

Status parse_nemotron_experts(const Json& config, ModelConfig& out, std::string_view where) {
  if (out.layer_is_dense.empty()) return {};
  ExpertConfig& experts = out.experts;
  const ExpertFields fields = expert_fields(out);
  JIGE_TRY(experts.count, get_int_or(config, fields.count, fields.count_default, where));
  JIGE_TRY(experts.chosen, get_int_or(config, kChosenField, fields.chosen_default, where));
  JIGE_TRY(experts.ffn_size, get_int_or(config, fields.ffn, fields.ffn_default, where));
  JIGE_TRY(experts.shared_ffn_size, get_int_or(config, kSharedFfn, 7688, where));
  JIGE_TRY(experts.weight_scale, get_number_or(config, "routed_scaling_factor", 1.0, where));
  JIGE_TRY(experts.groups, get_int_or(config, "n_group", 1, where));
  JIGE_TRY(experts.chosen_groups, get_int_or(config, "topk_group", 1, where));
  JIGE_TRY(experts.normalised, get_bool_or(config, "norm_topk_prob", true, where));
  experts.sigmoid_scores = experts.choice_bias = experts.groups_by_pairs = true;
  return {};
}

void emit_nemotron_experts(const ModelConfig& config, Json& out) {
  const ExpertConfig& experts = config.experts;
  if (experts.count == 0) return;
  const ExpertFields fields = expert_fields(config);
  out[std::string(fields.count)] = experts.count;
  out["n_shared_experts"] = 1;
  out[std::string(kChosenField)] = experts.chosen;
  out[std::string(fields.ffn)] = experts.ffn_size;
  out[kSharedFfn] = experts.shared_ffn_size;
  out["routed_scaling_factor"] = experts.weight_scale;
  out["n_group"] = experts.groups;
  out["topk_group"] = experts.chosen_groups;
  out["norm_topk_prob"] = experts.normalised;
}

Status check_nemotron_experts(const ModelConfig& config, std::string_view where) {
  if (config.experts.count > 0 && config.experts.shared_ffn_size < 1) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must be positive", where,
                kSharedFfn, config.experts.shared_ffn_size);
  }
  bool holds = config.layer_is_dense.size() == static_cast<size_t>(config.layer_count);
  for (int64_t i = 0; holds && i < config.layer_count; ++i) {
    holds = config.layer_is_dense[static_cast<size_t>(i)] || has_feed_forward(config, i);
  }
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{}: experts are given for layers with another part", where);
}

Status parse_recurrent_parts(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const std::string letters, parse_letters(config, where));
  std::vector<uint8_t> recurrent;
  for (const char letter : letters) recurrent.push_back(letter == 'M');
  set_recurrent_layers(std::move(recurrent), out);
  return {};
}

void emit_single_parts(const ModelConfig& config, Json& out) {
  std::string letters;
  for (int64_t i = 0; i < config.layer_count; ++i) {
    const bool feeds = has_feed_forward(config, i);
    letters.push_back(has_experts(config, i)    ? 'E'
                      : feeds                   ? '-'
                      : is_recurrent(config, i) ? 'M'
                                                : '*');
  }
  out[kPatternField] = letters;
}

Status check_parts(const ModelConfig& config, std::string_view where) {
  const FamilyInfo& family = family_info(config.family);
  if (!family.single_parts && !family.recurrent_only) {
    if (config.layer_parts.empty()) return {};
    return fail(Code::kInvalidArgument, "{}: {} models have both parts in every layer", where,
                family_name(config.family));
  }
  if (config.layer_parts.size() != static_cast<size_t>(config.layer_count)) {
    return fail(Code::kInvalidArgument, "{}: kinds of {} layers are given for {}", where,
                config.layer_parts.size(), config.layer_count);
  }
  for (int64_t i = 0; i < config.layer_count; ++i) {
    const LayerParts parts = config.layer_parts[static_cast<size_t>(i)];
    if (family.recurrent_only && parts != LayerParts::kAttention) {
      return fail(Code::kInvalidArgument,
                  "{}: layer {} has a feed-forward part; {} models have none", where, i,
                  family_name(config.family));
    }
    if (parts == LayerParts::kBoth ||
        (parts == LayerParts::kFeedForward && is_recurrent(config, i))) {
      return fail(Code::kInvalidArgument, "{}: layer {} has two parts; {} models have one in each",
                  where, i, family_name(config.family));
    }
  }
  return {};
}

}  // namespace jige::formats

#include "formats/model_config_hunyuan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kHunyuanCount = "num_experts";
constexpr const char* kHunyuanChosen = "moe_topk";
constexpr const char* kHunyuanWidth = "moe_intermediate_size";
constexpr const char* kHunyuanShared = "num_shared_expert";

// A number, or a list of the same one for every layer.
Result<int64_t> get_of_all_layers(const Json& config, const char* field, int64_t usual,
                                  int64_t layer_count, std::string_view where) {
  const Json* value = find_field(config, field);
  if (!value || !value->is_array()) return get_int_or(config, field, usual, where);
  if (value->empty() || static_cast<int64_t>(value->size()) != layer_count) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a number or a list of {}", where, field,
                layer_count);
  }
  if (std::any_of(value->begin(), value->end(),
                  [&](const Json& one) { return one != value->front(); })) {
    return fail(Code::kUnsupported, "{}: field \"{}\" differs by layer, which is not supported",
                where, field);
  }
  const Json first = {{field, value->front()}};
  return get_int(first, field, where);
}

// What published code can do and transformers does not look at.
Status refuse_other_layers(const Json& config, const ModelConfig& out, std::string_view where) {
  const std::pair<const char*, int64_t> numbers[] = {
      {kHunyuanShared, 1}, {kHunyuanWidth, out.ffn_size}, {"moe_layer_num_skipped", 0}};
  for (const auto& [field, wanted] : numbers) {
    JIGE_TRY(const int64_t value, get_of_all_layers(config, field, wanted, out.layer_count, where));
    if (value == wanted) continue;
    return fail(Code::kUnsupported, "{}: field \"{}\" is {}, which is not supported; it must be {}",
                where, field, value, wanted);
  }
  const std::pair<const char*, bool> flags[] = {{"use_mixed_mlp_moe", true},
                                                {"use_qk_norm", true},
                                                {"norm_topk_prob", true},
                                                {"use_cla", false}};
  for (const auto& [field, wanted] : flags) {
    JIGE_TRY(const bool value, get_bool_or(config, field, wanted, where));
    if (value == wanted) continue;
    return fail(Code::kUnsupported, "{}: field \"{}\" is {}, which is not supported for {}", where,
                field, value, family_name(out.family));
  }
  return {};
}

}  // namespace

Status parse_hunyuan_experts(const Json& config, ModelConfig& out, std::string_view where) {
  ExpertConfig& experts = out.experts;
  JIGE_TRY(experts.count, get_of_all_layers(config, kHunyuanCount, 1, out.layer_count, where));
  JIGE_TRY(experts.chosen, get_of_all_layers(config, kHunyuanChosen, 1, out.layer_count, where));
  JIGE_DO(refuse_other_layers(config, out, where));
  experts.ffn_size = experts.shared_ffn_size = out.ffn_size;
  experts.normalised = true;
  return {};
}

// Lists as published folders have them, which other readers count on.
void emit_hunyuan_experts(const ModelConfig& config, Json& out) {
  const auto of_all_layers = [&](int64_t value) {
    Json list = Json::array();
    for (int64_t i = 0; i < config.layer_count; ++i) list.push_back(value);
    return list;
  };
  out[kHunyuanCount] = config.experts.count;
  out[kHunyuanChosen] = of_all_layers(config.experts.chosen);
  out[kHunyuanWidth] = of_all_layers(config.experts.ffn_size);
  out[kHunyuanShared] = of_all_layers(1);
  out["moe_layer_num_skipped"] = 0;
  for (const char* flag : {"use_mixed_mlp_moe", "use_qk_norm", "norm_topk_prob"}) out[flag] = true;
}

Status check_hunyuan_shared(const ModelConfig& config, std::string_view where) {
  if (config.experts.shared_ffn_size == config.ffn_size) return {};
  return fail(Code::kInvalidArgument, "{}: {} models have a shared expert of {} ({}), not {}",
              where, family_name(config.family), size_fields(config.family).ffn, config.ffn_size,
              config.experts.shared_ffn_size);
}

}  // namespace jige::formats

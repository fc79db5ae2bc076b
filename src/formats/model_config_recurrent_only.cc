#include "formats/model_config_recurrent_only.h"

#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// Of models that could read texts of any length.
constexpr int64_t kUsualContext = int64_t{1} << 20;
constexpr int64_t kUnreadHeadDim = 2;
constexpr const char* kChannelsField = "intermediate_size";
constexpr const char* kStateActivation = "silu";

// transformers takes it for what the field says, and lays out its tensors by the product.
Status check_channels_field(const Json& config, const ModelConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t expand, get_size_or(config, "expand", 2, where));
  JIGE_TRY(const int64_t channels, get_int_or(config, kChannelsField, 0, where));
  if (!find_field(config, kChannelsField)) return {};
  const bool divides = out.hidden_size > 0 && channels % out.hidden_size == 0;
  if (divides && channels / out.hidden_size == expand) return {};
  return fail(Code::kCorrupt, "{}: {} ({}) is not expand ({}) times hidden_size ({})", where,
              kChannelsField, channels, expand, out.hidden_size);
}

}  // namespace

Status parse_recurrent_only(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  const SizeFields fields = size_fields(out.family);
  JIGE_TRY(out.hidden_size, get_int(config, fields.hidden, where));
  JIGE_TRY(out.layer_count, get_int(config, fields.layers, where));
  JIGE_TRY(out.context_max, get_int_or(config, fields.context, kUsualContext, where));
  JIGE_TRY(out.norm_eps, get_number_or(config, fields.norm_eps, family.norm_eps, where));
  JIGE_TRY(const std::string activation,
           get_string_or(config, "hidden_act", kStateActivation, where));
  if (activation != kStateActivation && activation != "swish") {
    return fail(Code::kUnsupported, "{}: hidden_act \"{}\" is not supported for {}; it must be {}",
                where, activation.substr(0, 80), family_name(out.family), kStateActivation);
  }
  JIGE_TRY(out.tied_embeddings, get_bool_or(config, "tie_word_embeddings", family.tied, where));
  JIGE_DO(check_channels_field(config, out, where));
  out.head_count = out.kv_head_count = out.ffn_size = 1;
  out.head_dim = kUnreadHeadDim;
  leave_unturned(out);
  out.layer_parts.assign(out.layer_is_unturned.size(), LayerParts::kAttention);
  return {};
}

void emit_recurrent_only(const ModelConfig& config, Json& out) {
  const SizeFields fields = size_fields(config.family);
  out[std::string(fields.hidden)] = config.hidden_size;
  out[std::string(fields.layers)] = config.layer_count;
  out[std::string(fields.context)] = config.context_max;
  out[std::string(fields.norm_eps)] = config.norm_eps;
  out["hidden_act"] = kStateActivation;
  emit_recurrent(config, out);
}

}  // namespace jige::formats

// Keys of families with layers that have a recurrent state in place of attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/gguf_config.h"
#include "formats/gguf_field_reader.h"
#include "formats/model_families.h"

namespace jige::formats {

bool GgufFieldReader::may_have_layers_without_attention() const {
  const FamilyInfo& family = family_info(family_);
  return family.short_conv_layers || family.mamba2_layers || family.delta_layers;
}

Status GgufFieldReader::read_delta() {
  JIGE_TRY(const auto interval, keys_.find_int(key("full_attention_interval")));
  if (interval.value_or(1) < 1) {
    return contradiction("full_attention_interval", *interval, "must be positive");
  }
  JIGE_TRY(const std::vector<uint8_t> recurrent,
           flags_by_layer("attention.recurrent_layers",
                          gguf_sliding_layers(layers_, interval.value_or(4))));
  JIGE_DO(put_layer_types(recurrent, "linear_attention", "full_attention"));
  for (int64_t i = 0; i < layers_; ++i) {
    if (!recurrent[static_cast<size_t>(i)]) out_["attention_bias"] = has_part(i, "attn_q.bias");
  }
  JIGE_DO(put_int("linear_num_key_heads", "ssm.group_count"));
  JIGE_DO(put_int("linear_num_value_heads", "ssm.time_step_rank"));
  JIGE_DO(put_int("linear_key_head_dim", "ssm.state_size"));
  JIGE_DO(put_int("linear_conv_kernel_dim", "ssm.conv_kernel"));
  JIGE_TRY(out_["linear_value_head_dim"], head_size("ssm.inner_size", "ssm.time_step_rank"));
  if (family_ == Family::kQwen35) return {};
  JIGE_DO(read_chosen_experts("num_experts", "moe_intermediate_size"));
  JIGE_DO(put_int("shared_expert_intermediate_size", "expert_shared_feed_forward_length"));
  if (family_ == Family::kQwen35Moe) return {};
  return put_int_or("intermediate_size", "feed_forward_length",
                    out_["moe_intermediate_size"].get<int64_t>());
}

// Columns of each of the heads.
Result<int64_t> GgufFieldReader::head_size(std::string_view columns, std::string_view heads) {
  JIGE_TRY(const int64_t all, keys_.get_int(key(columns)));
  JIGE_TRY(const int64_t count, keys_.get_int(key(heads)));
  if (count >= 1 && all >= 1 && all % count == 0) return all / count;
  return contradiction(columns, all, fmt::format("\"{}\" is {}", key(heads), count));
}

// Layers without key and value heads are no attention.
std::vector<uint8_t> GgufFieldReader::layers_without_attention() const {
  std::vector<uint8_t> flags;
  for (const int64_t heads : kv_heads_) flags.push_back(heads == 0);
  return flags;
}

Status GgufFieldReader::read_short_conv() {
  out_.erase("attention_bias");
  JIGE_DO(put_layer_types(layers_without_attention(), "conv", "full_attention"));
  JIGE_DO(put_int("conv_L_cache", "shortconv.l_cache"));
  if (family_ == Family::kLfm2) {
    out_["block_auto_adjust_ff_dim"] = false;
    return {};
  }
  JIGE_DO(expect_gating(2));
  JIGE_DO(read_chosen_experts("num_experts", "moe_intermediate_size"));
  JIGE_DO(put_int_or("num_dense_layers", "leading_dense_block_count", 0));
  JIGE_DO(put_scale("routed_scaling_factor", "expert_weights_scale"));
  const int64_t dense = out_["num_dense_layers"].get<int64_t>();
  out_["use_expert_bias"] = has_part(dense, "exp_probs_b.bias");
  out_["norm_topk_prob"] = true;
  return {};
}

// Sizes of layers of Mamba 2, in the fields of heads, their columns, groups, states and kernel.
Status GgufFieldReader::read_mamba2(const char* const (&fields)[5]) {
  JIGE_DO(put_int(fields[0], "ssm.time_step_rank"));
  JIGE_TRY(out_[fields[1]], head_size("ssm.inner_size", "ssm.time_step_rank"));
  JIGE_DO(put_int(fields[2], "ssm.group_count"));
  JIGE_DO(put_int(fields[3], "ssm.state_size"));
  return put_int(fields[4], "ssm.conv_kernel");
}

// Whether a layer has the tensor.
bool GgufFieldReader::any_has(std::string_view name) const {
  for (int64_t i = 0; i < layers_; ++i) {
    if (has_part(i, name)) return true;
  }
  return false;
}

Status GgufFieldReader::read_granite() {
  const double by_head =
      1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(out_["head_dim"].get<int64_t>(), 1)));
  JIGE_DO(put_number_or("attention_multiplier", "attention.scale", by_head));
  if (out_["attention_multiplier"] == 0.0) out_["attention_multiplier"] = by_head;
  JIGE_DO(put_scale("embedding_multiplier", "embedding_scale"));
  JIGE_DO(put_scale("residual_multiplier", "residual_scale"));
  JIGE_DO(put_scale("logits_scaling", "logit_scale"));
  out_["attention_bias"] = any_has("attn_q.bias");
  JIGE_DO(put_int_or("num_local_experts", "expert_count", 0));
  JIGE_DO(put_int_or("num_experts_per_tok", "expert_used_count", 0));
  if (family_ != Family::kGraniteMoe) {
    JIGE_DO(put_int_or("shared_intermediate_size", "expert_shared_feed_forward_length", 0));
  }
  if (family_ != Family::kGraniteHybrid) return {};
  const bool experts = out_["num_local_experts"] != 0;
  if (!experts && out_["shared_intermediate_size"] == 0) {
    out_["shared_intermediate_size"] = out_["intermediate_size"];
  }
  JIGE_DO(put_layer_types(layers_without_attention(), "mamba", "attention"));
  JIGE_TRY(const auto turned, keys_.find_bool(key("rope.scaling.finetuned")));
  out_["position_embedding_type"] = turned.value_or(true) ? "rope" : "nope";
  return read_expanded_mamba();
}

// Files of Bamba have the name of Granite 4, positions, and none of its multipliers.
bool GgufFieldReader::is_bamba() const {
  for (const char* name : {"embedding_scale", "logit_scale", "residual_scale", "expert_count"}) {
    if (keys_.has(prefix_ + name)) return false;
  }
  const auto turned = keys_.find_bool(prefix_ + "rope.scaling.finetuned");
  return turned && turned->value_or(true);
}

Status GgufFieldReader::read_bamba() {
  out_["attention_bias"] = any_has("attn_q.bias");
  out_["mlp_bias"] = any_has("ffn_up.bias");
  Json attention = Json::array();
  for (int64_t i = 0; i < layers_; ++i) {
    if (kv_heads_[static_cast<size_t>(i)] > 0) attention.push_back(i);
  }
  out_["attn_layer_indices"] = std::move(attention);
  return read_expanded_mamba();
}

Status GgufFieldReader::read_expanded_mamba() {
  JIGE_DO(read_mamba2(
      {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"}));
  const int64_t columns =
      out_["mamba_n_heads"].get<int64_t>() * out_["mamba_d_head"].get<int64_t>();
  const int64_t width = std::max<int64_t>(out_["hidden_size"].get<int64_t>(), 1);
  if (columns % width != 0) {
    return contradiction(
        "ssm.inner_size", columns,
        fmt::format("is no multiple of \"{}embedding_length\", {}", prefix_, width));
  }
  out_["mamba_expand"] = columns / width;
  out_["mamba_conv_bias"] = any_has("ssm_conv1d.bias");
  out_["mamba_proj_bias"] = any_has("ssm_in.bias");
  return {};
}

// What the tensors of layers say they are.
std::string GgufFieldReader::nemotron_pattern() const {
  std::string pattern;
  for (int64_t i = 0; i < layers_; ++i) {
    const bool feeds = !has_part(i, "ssm_in.weight") && !has_part(i, "attn_q.weight");
    pattern += !feeds                               ? has_part(i, "ssm_in.weight") ? 'M' : '*'
               : has_part(i, "ffn_gate_inp.weight") ? 'E'
                                                    : '-';
  }
  return pattern;
}

Status GgufFieldReader::read_nemotron_h() {
  const std::string pattern = nemotron_pattern();
  out_.erase("num_hidden_layers");
  out_["hybrid_override_pattern"] = pattern;
  const size_t dense = pattern.find('-');
  const int64_t rows =
      dense == std::string::npos ? 0 : rows_of(fmt::format("blk.{}.ffn_up.weight", dense));
  out_["intermediate_size"] = rows > 0 ? rows : out_["hidden_size"].get<int64_t>();
  out_["mlp_bias"] = any_has("ffn_up.bias");
  JIGE_DO(read_mamba2(
      {"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"}));
  out_["use_conv_bias"] = any_has("ssm_conv1d.bias");
  out_["use_bias"] = any_has("ssm_in.bias");
  if (pattern.find('E') == std::string::npos) {
    for (const char* name : {"expert_shared_count", "expert_group_count", "expert_weights_scale"}) {
      static_cast<void>(key(name));
    }
    return {};
  }
  JIGE_DO(read_deepseek_experts());
  return put_int("moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

}  // namespace jige::formats

// Keys of experts, latents, and of the families gpt-oss, Gemma 4 and Apertus.
#include <fmt/format.h>

#include <algorithm>

#include "formats/gguf_config.h"
#include "formats/gguf_config_rope.h"
#include "formats/gguf_field_reader.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kSigmoidGating = 2;
constexpr int64_t kChosenSoftmaxGating = 3;  // the softmax of those that are chosen

}  // namespace

Status GgufFieldReader::read_chosen_experts(const char* count, const char* ffn) {
  JIGE_DO(put_int(count, "expert_count"));
  JIGE_DO(put_int("num_experts_per_tok", "expert_used_count"));
  return ffn ? put_int(ffn, "expert_feed_forward_length") : Status();
}

Status GgufFieldReader::read_gpt_oss() {
  JIGE_DO(expect_gating(kChosenSoftmaxGating));
  JIGE_DO(read_chosen_experts("num_local_experts", nullptr));
  // Experts are all there is; writers name their width both ways.
  JIGE_DO(put_int_or("intermediate_size", "expert_feed_forward_length",
                     out_["intermediate_size"].get<int64_t>()));
  return put_windows(family_info(family_).full_period);
}

Status GgufFieldReader::read_deepseek_experts() {
  const bool softmax = family_ == Family::kDeepSeekV2;
  JIGE_DO(expect_gating(softmax ? 1 : kSigmoidGating));
  JIGE_TRY(const auto experts, keys_.find_int(key("expert_count")));
  if (experts.value_or(0) == 0) {
    static_cast<void>(key("leading_dense_block_count"));
    out_["first_k_dense_replace"] = layers_;
    return {};
  }
  JIGE_DO(read_chosen_experts("n_routed_experts", "moe_intermediate_size"));
  JIGE_DO(put_int_or("n_shared_experts", "expert_shared_count", 0));
  if (family_ != Family::kNemotronH) {
    JIGE_DO(put_int_or("first_k_dense_replace", "leading_dense_block_count", 0));
  }
  JIGE_DO(put_scale("routed_scaling_factor", "expert_weights_scale"));
  JIGE_DO(put_flag_or("norm_topk_prob", "expert_weights_norm", false));
  JIGE_DO(put_int_or("n_group", "expert_group_count", 1));
  JIGE_DO(put_int_or("topk_group", "expert_group_used_count", 1));
  if (out_["n_group"] == 0) out_["n_group"] = out_["topk_group"] = 1;
  if (softmax) out_["topk_method"] = out_["n_group"] == 1 ? "greedy" : "group_limited_greedy";
  return {};
}

// Files of newer writers say the shape of heads apart from that of the latents, which is what
// attention without them would have.
Status GgufFieldReader::read_latents() {
  JIGE_DO(put_int("kv_lora_rank", "attention.kv_lora_rank"));
  JIGE_TRY(const auto query, keys_.find_int(key("attention.q_lora_rank")));
  out_["q_lora_rank"] = query.value_or(0) > 0 ? Json(*query) : Json();
  const bool apart = keys_.has(prefix_ + "attention.key_length_mla");
  const char* keys = apart ? "attention.key_length_mla" : "attention.key_length";
  JIGE_TRY(const int64_t key_size, keys_.get_int(key(keys)));
  const char* values = apart ? "attention.value_length_mla" : "attention.value_length";
  if (family_ == Family::kMiniCpm3 && !keys_.has(prefix_ + values)) {
    JIGE_TRY(out_["v_head_dim"], head_size("embedding_length", "attention.head_count"));
  } else {
    JIGE_DO(put_int("v_head_dim", values));
  }
  JIGE_DO(put_int("qk_rope_head_dim", "rope.dimension_count"));
  const int64_t turned = out_["qk_rope_head_dim"].get<int64_t>();
  if (turned < 1 || turned >= key_size) {
    return contradiction("rope.dimension_count", turned,
                         fmt::format("\"{}\" is {}", key(keys), key_size));
  }
  out_["qk_nope_head_dim"] = key_size - turned;
  out_["num_key_value_heads"] = out_["num_attention_heads"];
  return {};
}

Status GgufFieldReader::read_ernie() {
  out_.erase("attention_bias");
  out_["use_bias"] = has_part(0, "attn_q.bias");
  JIGE_DO(expect_gating(1));
  JIGE_DO(put_int("moe_num_experts", "expert_count"));
  JIGE_DO(put_int("moe_k", "expert_used_count"));
  JIGE_DO(put_int("moe_intermediate_size", "expert_feed_forward_length"));
  JIGE_DO(put_int_or("moe_num_shared_experts", "expert_shared_count", 0));
  JIGE_DO(put_int_or("moe_layer_start_index", "leading_dense_block_count", 0));
  return put_int_or("moe_layer_interval", "interleave_moe_layer_step", 1);
}

Status GgufFieldReader::read_minimax() {
  out_.erase("attention_bias");
  JIGE_DO(expect_gating(kSigmoidGating));
  JIGE_DO(read_chosen_experts("num_local_experts", nullptr));
  return put_int_or("intermediate_size", "expert_feed_forward_length",
                    out_["intermediate_size"].get<int64_t>());
}

// One width is that of all: others are refused as fields of config.json.
Status GgufFieldReader::read_hunyuan() {
  JIGE_DO(expect_gating(1));
  JIGE_DO(put_int("num_experts", "expert_count"));
  JIGE_DO(put_int("moe_topk", "expert_used_count"));
  JIGE_DO(put_int_or("intermediate_size", "expert_shared_feed_forward_length",
                     out_["intermediate_size"].get<int64_t>()));
  JIGE_DO(put_int_or("num_shared_expert", "expert_shared_count", 1));
  return put_int_or("moe_intermediate_size", "expert_feed_forward_length",
                    out_["intermediate_size"].get<int64_t>());
}

Status GgufFieldReader::read_xielu() {
  for (const char* name : {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"}) {
    JIGE_TRY(const auto list, keys_.find_floats(name));
    if (list && static_cast<int64_t>(list->size()) == layers_) continue;
    return fail(Code::kCorrupt, "{}: key \"{}\" {}; it must have a number for each of {} layers",
                keys_.where(), name,
                list ? fmt::format("has {} numbers", list->size()) : "is missing", layers_);
  }
  return {};
}

Status GgufFieldReader::read_gemma4() {
  constexpr const char* kWindows = "attention.sliding_window_pattern";
  if (!keys_.has(prefix_ + kWindows)) {
    return fail(Code::kCorrupt, "{}: key \"{}\" is missing", keys_.where(), key(kWindows));
  }
  JIGE_TRY(const std::vector<uint8_t> sliding, flags_by_layer(kWindows, {}));
  JIGE_DO(put_layer_types(sliding, "sliding_attention", "full_attention"));
  JIGE_DO(put_int("sliding_window", "attention.sliding_window"));
  JIGE_TRY(const std::vector<int64_t> widths, by_layer("feed_forward_length"));
  out_["intermediate_size"] = widths.front();
  JIGE_DO(put_int_or("num_kv_shared_layers", "attention.shared_kv_layers", 0));
  const bool doubled = widths.back() == 2 * widths.front();
  out_["use_double_wide_mlp"] = doubled;
  const int64_t own = layers_ - out_["num_kv_shared_layers"].get<int64_t>();
  for (int64_t i = 0; i < layers_; ++i) {
    const int64_t width = widths[static_cast<size_t>(i)];
    if (width == (doubled && i >= own ? 2 : 1) * widths.front()) continue;
    return fail(Code::kUnsupported,
                "{}: key \"{}\" has {} for layer {} and {} for the first; Jige computes models "
                "whose layers are alike, or where those that share keys have twice the width",
                keys_.where(), key("feed_forward_length"), width, i, widths.front());
  }
  JIGE_DO(put_int_or("hidden_size_per_layer_input", "embedding_length_per_layer_input", 0));
  const int64_t rows = rows_of("per_layer_token_embd.weight");
  out_["vocab_size_per_layer_input"] = rows > 0 ? Json(rows) : out_["vocab_size"];
  JIGE_TRY(const auto cap, keys_.find_number(key("final_logit_softcapping")));
  out_["final_logit_softcapping"] = cap.value_or(0.0) == 0.0 ? Json() : Json(*cap);
  JIGE_TRY(const auto experts, keys_.find_int(key("expert_count")));
  out_["enable_moe_block"] = experts.value_or(0) > 0;
  if (experts.value_or(0) > 0) {
    JIGE_DO(put_int("num_experts", "expert_count"));
    JIGE_DO(put_int("top_k_experts", "expert_used_count"));
    JIGE_DO(put_int("moe_intermediate_size", "expert_feed_forward_length"));
  }
  return read_gemma4_heads(sliding);
}

Status GgufFieldReader::read_gemma4_heads(const std::vector<uint8_t>& sliding) {
  JIGE_DO(put_int("head_dim", "attention.key_length_swa"));
  JIGE_DO(put_int("global_head_dim", "attention.key_length"));
  const std::pair<const char*, const char*> lengths[] = {
      {"attention.value_length_swa", "head_dim"},
      {"rope.dimension_count_swa", "head_dim"},
      {"attention.value_length", "global_head_dim"},
      {"rope.dimension_count", "global_head_dim"}};
  for (const auto& [name, field] : lengths) {
    JIGE_TRY(const auto value, keys_.find_int(key(name)));
    if (!value || *value == out_[field].get<int64_t>()) continue;
    return fail(Code::kUnsupported,
                "{}: key \"{}\" is {} and heads have {}; Jige computes models where both are one",
                keys_.where(), key(name), *value, out_[field].get<int64_t>());
  }
  // Of layers with the window, and of others.
  std::optional<int64_t> heads[2];
  bool values = false;
  for (int64_t i = 0; i < layers_; ++i) {
    const auto at = static_cast<size_t>(i);
    std::optional<int64_t>& mine = heads[sliding[at] ? 0 : 1];
    if (mine && *mine != kv_heads_[at]) {
      return contradiction("attention.head_count_kv", kv_heads_[at],
                           fmt::format("other layers of the kind have {}", *mine));
    }
    mine = kv_heads_[at];
    values = values || (!sliding[at] && has_part(i, "attn_v.weight"));
  }
  const bool any_full = heads[1].has_value();
  const bool shared = any_full && !values;
  out_["num_key_value_heads"] = heads[0].value_or(kv_heads_.front());
  out_["attention_k_eq_v"] = shared;
  out_["num_global_key_value_heads"] = shared ? Json(*heads[1]) : Json();
  if (any_full && values && heads[0] && *heads[0] != *heads[1]) {
    return contradiction("attention.head_count_kv", *heads[1],
                         fmt::format("layers with a window have {}", *heads[0]));
  }
  return read_gemma4_angles(out_["global_head_dim"].get<int64_t>());
}

Status GgufFieldReader::read_gemma4_angles(int64_t full_head_dim) {
  JIGE_TRY(const auto full, keys_.find_number(key("rope.freq_base")));
  JIGE_TRY(const auto window, keys_.find_number(key("rope.freq_base_swa")));
  Json angles = {{"rope_type", "default"}, {"rope_theta", full.value_or(1e6)}};
  JIGE_TRY(const std::vector<float> divisors, gguf_rope_divisors(file_, full_head_dim));
  const auto still = std::find(divisors.begin(), divisors.end(), kGgufStandingStill);
  const auto turned = still - divisors.begin();
  const bool known =
      std::all_of(divisors.begin(), still, [](float f) { return f == 1.0f; }) &&
      std::all_of(still, divisors.end(), [](float f) { return f == kGgufStandingStill; });
  if (!known) {
    return fail(Code::kUnsupported,
                "{}: tensor \"rope_freqs.weight\" scales rotary frequencies, which Jige does not "
                "compute of such models",
                keys_.where());
  }
  if (still != divisors.end()) {
    angles["rope_type"] = "proportional";
    angles["partial_rotary_factor"] =
        static_cast<double>(turned) / static_cast<double>(divisors.size());
  }
  out_["rope_parameters"] = {
      {"full_attention", std::move(angles)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", window.value_or(1e4)}}}};
  return {};
}

}  // namespace jige::formats

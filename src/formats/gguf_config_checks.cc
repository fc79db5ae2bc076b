#include "formats/gguf_config_checks.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "formats/gguf_config.h"
#include "formats/gguf_config_writer.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// From so many layers on readers look for norms of heads.
constexpr int64_t kNormedCohereLayers = 64;
constexpr int64_t kExaone4WindowLayers = 64;
// Those whose queries have no latents.
constexpr int64_t kDeepSeekLiteLayers[] = {26, 27};
constexpr double kGptOssLimit = 7.0;
constexpr double kGptOssAlpha = 1.702;

tl::unexpected<Error> not_in_gguf(const ModelConfig& c, std::string_view where,
                                  std::string_view field) {
  const Json written = to_hf_config(c);
  const auto value = written.find(std::string(field));
  return fail(Code::kUnsupported,
              "{}: field \"{}\" {}, which readers of GGUF files would not compute, so the model "
              "cannot be written as one; take the folder",
              where, field,
              value == written.end() ? "has a value" : "is " + dump_json(*value).substr(0, 200));
}

// Whether these layers have the window, and no others.
bool is_window_pattern(const ModelConfig& c, const std::vector<uint8_t>& flags) {
  const bool all = std::count(flags.begin(), flags.end(), uint8_t{1}) == c.layer_count;
  return all ? c.layer_is_sliding.empty() : flags == c.layer_is_sliding;
}

Status check_windows(const ModelConfig& c, std::string_view where) {
  if (c.family == Family::kCohere2) {  // every fourth layer has none
    const auto flags = gguf_sliding_layers(c.layer_count, family_info(c.family).full_period);
    return is_window_pattern(c, flags) ? Status() : not_in_gguf(c, where, "layer_types");
  }
  if (c.family == Family::kOlmo3 || c.family == Family::kGptOss || c.family == Family::kGemma4) {
    return c.sliding_window > 0 ? Status() : not_in_gguf(c, where, "sliding_window");
  }
  if (c.family == Family::kExaone4) {  // the one with so many layers has windows, others have none
    const auto flags = gguf_sliding_layers(c.layer_count, family_info(c.family).full_period);
    const bool known = c.layer_count == kExaone4WindowLayers
                           ? c.sliding_window > 0 && is_window_pattern(c, flags)
                           : c.sliding_window == 0;
    return known ? Status() : not_in_gguf(c, where, "sliding_window");
  }
  if (c.sliding_window == 0) return {};
  if (family_info(c.family).gemma_scores) {
    const auto flags = gguf_sliding_layers(c.layer_count, gguf_gemma_period(c.family));
    return is_window_pattern(c, flags) ? Status() : not_in_gguf(c, where, "layer_types");
  }
  const bool everywhere =
      std::all_of(c.layer_is_sliding.begin(), c.layer_is_sliding.end(), [](auto s) { return s; });
  const bool for_all = family_info(c.family).windows == WindowRule::kAllLayers;
  if (for_all && everywhere && c.family != Family::kQwen3Moe) {
    log_warn(
        "{}: llama.cpp has no windows for this architecture: behind {} tokens it gives other "
        "answers than Jige, which reads the window from the file",
        where, c.sliding_window);
    return {};
  }
  return not_in_gguf(c, where, "sliding_window");
}

Status check_gemma(const ModelConfig& c, std::string_view where) {
  if (c.score_dim != gguf_gemma_score_dim(c)) return not_in_gguf(c, where, "query_pre_attn_scalar");
  if (c.sliding_window == 0) return not_in_gguf(c, where, "sliding_window");
  // Readers always cap what gemma2 computes, and gemma3's never.
  const bool capped = c.family == Family::kGemma2;
  if ((c.score_cap > 0) != capped) return not_in_gguf(c, where, "attn_logit_softcapping");
  return (c.logits_cap > 0) == capped ? Status() : not_in_gguf(c, where, "final_logit_softcapping");
}

// Of LFM2 readers know no biases, and of LFM2 with experts weights that add up to one.
Status check_lfm2(const ModelConfig& c, std::string_view where) {
  if (c.short_conv.bias) return not_in_gguf(c, where, "conv_bias");
  if (c.family == Family::kLfm2) return {};
  if (!c.experts.choice_bias) return not_in_gguf(c, where, "use_expert_bias");
  if (!c.experts.normalised) return not_in_gguf(c, where, "norm_topk_prob");
  return c.experts.weight_scale == 1 ? Status() : not_in_gguf(c, where, "routed_scaling_factor");
}

// Whether experts are in all layers from one on.
bool has_leading_dense_layers(const ModelConfig& c) {
  return std::is_sorted(c.layer_is_dense.rbegin(), c.layer_is_dense.rend());
}

Status check_deepseek(const ModelConfig& c, std::string_view where) {
  const bool lite = std::find(std::begin(kDeepSeekLiteLayers), std::end(kDeepSeekLiteLayers),
                              c.layer_count) != std::end(kDeepSeekLiteLayers);
  if ((c.latent.query_rank == 0) != lite) return not_in_gguf(c, where, "q_lora_rank");
  if (c.experts.count > 0 && c.experts.shared_ffn_size == 0)
    return not_in_gguf(c, where, "n_shared_experts");
  if (!c.turns_neighbours) return not_in_gguf(c, where, "rope_interleave");
  const bool by_best = c.experts.groups > 1 && !c.experts.groups_by_pairs;
  return by_best ? not_in_gguf(c, where, "topk_method") : Status();
}

// With experts all feed-forward parts are such.
Status check_nemotron_h(const ModelConfig& c, std::string_view where) {
  for (int64_t i = 0; i < c.layer_count && c.experts.count > 0; ++i) {
    if (has_feed_forward(c, i) && !has_experts(c, i)) {
      return not_in_gguf(c, where, "hybrid_override_pattern");
    }
  }
  return {};
}

Status check_granted_experts(const ModelConfig& c, std::string_view where) {
  if (c.family == Family::kLfm2Moe || c.family == Family::kHunYuanMoe) return {};
  if (c.family == Family::kMiniMaxM2) {
    return c.tied_embeddings ? not_in_gguf(c, where, "tie_word_embeddings") : Status();
  }
  if (c.family == Family::kGlm4Moe || c.family == Family::kSolarOpen) {
    return c.experts.groups > 1 ? not_in_gguf(c, where, "n_group") : Status();
  }
  if (c.family == Family::kDots1 && c.kv_head_count != c.head_count) {
    return not_in_gguf(c, where, "num_key_value_heads");
  }
  if (c.family == Family::kDots1 || c.family == Family::kErnie45Moe) {
    if (!has_leading_dense_layers(c)) return not_in_gguf(c, where, "moe_layer_interval");
    return c.experts.shared_ffn_size > 0 ? Status() : not_in_gguf(c, where, "n_shared_experts");
  }
  if (is_granite_moe(c.family)) return {};
  if (c.family == Family::kGptOss) {
    const bool usual = c.experts.gate_limit == kGptOssLimit && c.experts.gate_alpha == kGptOssAlpha;
    return usual ? Status() : not_in_gguf(c, where, "swiglu_limit");
  }
  if (c.family == Family::kNemotronH) return check_nemotron_h(c, where);
  if (c.latent.rank > 0) return {};  // below
  if (c.family == Family::kQwen35Moe || c.family == Family::kGemma4) return {};
  if (c.experts.normalised != gguf_experts_normalised(c.family)) {
    return not_in_gguf(c, where, "norm_topk_prob");
  }
  return c.layer_is_dense.empty() ? Status() : not_in_gguf(c, where, "mlp_only_layers");
}

// Layers of Mamba 2 have a bias on the convolution and no other, and a norm behind the gate.
Status check_mamba2(const ModelConfig& c, std::string_view where) {
  const bool own = c.family == Family::kNemotronH;  // which has other names for them
  if (!c.mamba2.conv_bias) return not_in_gguf(c, where, own ? "use_conv_bias" : "mamba_conv_bias");
  if (c.mamba2.bias) return not_in_gguf(c, where, own ? "use_bias" : "mamba_proj_bias");
  if (c.mamba2.output_bias) return not_in_gguf(c, where, "projectors_bias");
  return c.mamba2.norm == GatedNorm::kNormFirst ? not_in_gguf(c, where, "mamba_norm_before_gate")
                                                : Status();
}

// Layers of Mamba 2 are twice as wide as the stream; Granite 3 turns.
Status check_granite_hybrid(const ModelConfig& c, std::string_view where) {
  if (c.layer_is_recurrent.empty()) {
    return c.layer_is_unturned.empty() ? Status()
                                       : not_in_gguf(c, where, "position_embedding_type");
  }
  const bool twice = c.mamba2.value_columns() == 2 * c.hidden_size;
  return twice ? Status() : not_in_gguf(c, where, "mamba_expand");
}

Status check_delta(const ModelConfig& c, std::string_view where) {
  if (c.delta.key_dim != c.delta.value_dim) return not_in_gguf(c, where, "linear_value_head_dim");
  if (c.layer_is_recurrent.empty()) return not_in_gguf(c, where, "layer_types");
  if (c.family == Family::kQwen35) return {};
  return c.experts.shared_ffn_size > 0 ? Status()
                                       : not_in_gguf(c, where, "shared_expert_intermediate_size");
}

Status check_minicpm3(const ModelConfig& c, std::string_view where) {
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); };
  const double depth = kGgufMiniCpm3Depth / std::sqrt(static_cast<double>(c.layer_count));
  const double divisor =
      static_cast<double>(c.hidden_size) / static_cast<double>(kGgufMiniCpm3Base);
  if (!near(c.embedding_scale, kGgufMiniCpm3Embedding)) return not_in_gguf(c, where, "scale_emb");
  if (!near(c.residual_scale, depth)) return not_in_gguf(c, where, "scale_depth");
  if (!near(c.logits_divisor, divisor)) return not_in_gguf(c, where, "dim_model_base");
  return c.latent.query_rank > 0 ? Status() : not_in_gguf(c, where, "q_lora_rank");
}

// Whether readers take for granted that heads make up the width.
bool has_whole_heads(Family family) {
  constexpr Family kWhole[] = {Family::kPhi,      Family::kPhi3,    Family::kGlm,
                               Family::kGptNeoX,  Family::kOlmo2,   Family::kOlmo3,
                               Family::kLfm2,     Family::kLfm2Moe, Family::kCohere,
                               Family::kNemotron, Family::kExaone4};
  return std::find(std::begin(kWhole), std::end(kWhole), family) != std::end(kWhole);
}

// Which biases readers look for, and which they must find.
Status check_biases(const ModelConfig& c, std::string_view where) {
  switch (family_info(c.family).biases) {
    case BiasRule::kUseBias: {
      const bool wanted = c.family == Family::kStarCoder2;
      return c.qkv_bias == wanted ? Status() : not_in_gguf(c, where, "use_bias");
    }
    case BiasRule::kAttentionByMlp:
      return c.qkv_bias ? Status() : not_in_gguf(c, where, "attention_bias");
    case BiasRule::kEverywhere:
      return {};
    case BiasRule::kQkvBias:
      return c.qkv_bias ? Status() : not_in_gguf(c, where, "qkv_bias");
    case BiasRule::kQkv:
    case BiasRule::kUseQkvBias:
    case BiasRule::kAttentionQkv:
      return {};
    case BiasRule::kOutputApart:
      if (c.output_bias) return not_in_gguf(c, where, "attention_out_bias");
      return c.mlp_bias ? not_in_gguf(c, where, "mlp_bias") : Status();
    default:
      break;
  }
  if (c.family == Family::kLlama) return {};
  if (c.family == Family::kGptOss) {
    return c.qkv_bias ? Status() : not_in_gguf(c, where, "attention_bias");
  }
  if (c.family == Family::kJais2) {
    if (!c.qkv_bias) return not_in_gguf(c, where, "attention_bias");
    return c.mlp_bias ? Status() : not_in_gguf(c, where, "mlp_bias");
  }
  if (c.qkv_bias || c.output_bias) return not_in_gguf(c, where, "attention_bias");
  return c.mlp_bias ? not_in_gguf(c, where, "mlp_bias") : Status();
}

// What readers of these architectures take for granted.
Status check_granted(const ModelConfig& c, std::string_view where) {
  if (family_info(c.family).gemma_scores) JIGE_DO(check_gemma(c, where));
  const ActivationKind activation = c.family == Family::kGptNeoX
                                        ? gguf_gpt_neox_activation(c.layer_count)
                                        : family_info(c.family).activation;
  if (family_info(c.family).chooses_activation && c.activation != activation) {
    return not_in_gguf(c, where, "hidden_act");
  }
  if (has_whole_heads(c.family) && c.head_count * c.head_dim != c.hidden_size) {
    return not_in_gguf(c, where, "head_dim");
  }
  if (has_experts(c.family)) JIGE_DO(check_granted_experts(c, where));
  if (c.short_conv.kernel > 0) JIGE_DO(check_lfm2(c, where));
  if (c.family == Family::kCohere2 || c.family == Family::kCohere) {
    if (!c.tied_embeddings) return not_in_gguf(c, where, "tie_word_embeddings");
    const bool normed = c.family == Family::kCohere && c.layer_count >= kNormedCohereLayers;
    if (c.qk_norm_apart != normed) return not_in_gguf(c, where, "use_qk_norm");
  }
  if (c.mamba2.heads > 0 && !c.layer_is_recurrent.empty()) JIGE_DO(check_mamba2(c, where));
  if (c.family == Family::kGraniteHybrid) JIGE_DO(check_granite_hybrid(c, where));
  if (c.delta.key_heads > 0) JIGE_DO(check_delta(c, where));
  if (c.family == Family::kMiniCpm3) JIGE_DO(check_minicpm3(c, where));
  if (gguf_architecture(c) == "deepseek2") JIGE_DO(check_deepseek(c, where));
  if (c.family == Family::kGemma3 &&
      c.sliding_rope.value_or(c.rope).theta != kGgufGemma3SlidingTheta) {
    return not_in_gguf(c, where, "rope_local_base_freq");
  }
  if (c.family == Family::kNemotron && c.tied_embeddings) {
    return not_in_gguf(c, where, "tie_word_embeddings");
  }
  if (c.family == Family::kSmolLm3 && c.layer_is_unturned != gguf_unturned_layers(c.layer_count)) {
    return not_in_gguf(c, where, "no_rope_layers");
  }
  return {};
}

bool is_gguf_yarn(const ModelConfig& c) {
  RopeConfig usual = gguf_yarn(c.rope);
  if (c.family == Family::kGptOss) {
    usual.truncate = false;
    usual.beta_fast = c.rope.beta_fast;
    usual.beta_slow = c.rope.beta_slow;
  }
  if (c.latent.rank > 0 && c.rope.mscale_all > 0) {
    usual.mscale = usual.mscale_all = c.rope.mscale_all;
    usual.attention_factor = 1.0;
  }
  if (c.family == Family::kMinistral3) {
    usual.query_growth = c.rope.query_growth;
    if (c.rope.attention_factor == 1.0) usual.attention_factor = 1.0;
  }
  return c.rope == usual;
}

}  // namespace

Status check_gguf_expressible(const ModelConfig& c, std::string_view where) {
  if (gguf_architecture(c).empty()) {
    return fail(Code::kUnsupported,
                "{}: models of the family {} are not written as GGUF files; take the folder", where,
                family_name(c.family));
  }
  if (c.looks_ahead) {
    return fail(Code::kUnsupported,
                "{}: tokens of this model see those behind them, which its architecture of GGUF "
                "files does not say; take the folder",
                where);
  }
  if (c.family == Family::kGpt2) {
    if (c.activation != ActivationKind::kGeluTanh) {
      return not_in_gguf(c, where, "activation_function");
    }
    if (!c.scores_by_head_dim) return not_in_gguf(c, where, "scale_attn_weights");
    return c.scores_by_layer ? not_in_gguf(c, where, "scale_attn_by_inverse_layer_idx") : Status();
  }
  if (c.family == Family::kStableLm) {
    if (c.residual != ResidualForm::kSequential)
      return not_in_gguf(c, where, "use_parallel_residual");
    if (c.qk_norm_apart) return not_in_gguf(c, where, "qk_layernorm");
  }
  JIGE_DO(check_granted(c, where));
  JIGE_DO(check_biases(c, where));
  if (c.rope.scaling == RopeScaling::kYarn && !is_gguf_yarn(c)) {
    return not_in_gguf(c, where,
                       c.family == Family::kMinistral3 ? "rope_parameters" : "rope_scaling");
  }
  if (c.family == Family::kGemma4) {
    const bool plain = c.rope.scaling == RopeScaling::kNone ||
                       (c.rope.scaling == RopeScaling::kProportional && c.rope.factor == 1.0);
    if (!plain) return not_in_gguf(c, where, "rope_parameters");
  }
  if (c.family == Family::kMiniCpm3 && c.rope.attention_factor != 1.0) {
    return not_in_gguf(c, where, "rope_scaling");
  }
  if (c.rope.scaling == RopeScaling::kLlama3 &&
      !find_llama3_scaling(gguf_llama3_factors(c), c.rope.theta)) {
    return not_in_gguf(c, where, "rope_scaling");
  }
  return check_windows(c, where);
}

}  // namespace jige::formats

#include "formats/gguf_config_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "base/log.h"
#include "formats/gguf_config.h"
#include "formats/gguf_config_fields.h"
#include "formats/gguf_params.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kSigmoidGatingNumber = 2;

tl::unexpected<Error> not_in_gguf(std::string_view where, std::string_view field) {
  return fail(Code::kUnsupported,
              "{}: field \"{}\" has a value that readers of GGUF files would not compute, so the "
              "model cannot be written as one",
              where, field);
}

// Whether these layers have the window, and no others.
bool is_window_pattern(const ModelConfig& c, const std::vector<uint8_t>& flags) {
  const bool all = std::count(flags.begin(), flags.end(), uint8_t{1}) == c.layer_count;
  return all ? c.layer_is_sliding.empty() : flags == c.layer_is_sliding;
}

Status check_windows(const ModelConfig& c, std::string_view where) {
  if (c.family == Family::kCohere2) {  // every fourth layer has none
    const auto flags = gguf_sliding_layers(c.layer_count, family_info(c.family).full_period);
    return is_window_pattern(c, flags) ? Status() : not_in_gguf(where, "layer_types");
  }
  if (c.sliding_window == 0) return {};
  if (family_info(c.family).gemma_scores) {
    const auto flags = gguf_sliding_layers(c.layer_count, gguf_gemma_period(c.family));
    return is_window_pattern(c, flags) ? Status() : not_in_gguf(where, "layer_types");
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
  return not_in_gguf(where, "sliding_window");
}

Status check_gemma(const ModelConfig& c, std::string_view where) {
  if (c.score_dim != gguf_gemma_score_dim(c)) return not_in_gguf(where, "query_pre_attn_scalar");
  if (c.sliding_window == 0) return not_in_gguf(where, "sliding_window");
  // Readers always cap what gemma2 computes, and gemma3's never.
  const bool capped = c.family == Family::kGemma2;
  if ((c.score_cap > 0) != capped) return not_in_gguf(where, "attn_logit_softcapping");
  return (c.logits_cap > 0) == capped ? Status() : not_in_gguf(where, "final_logit_softcapping");
}

// Of LFM2 readers know no biases, and of LFM2 with experts weights that add up to one.
Status check_lfm2(const ModelConfig& c, std::string_view where) {
  if (c.short_conv.bias) return not_in_gguf(where, "conv_bias");
  if (c.head_count * c.head_dim != c.hidden_size) return not_in_gguf(where, "head_dim");
  if (c.family == Family::kLfm2) return {};
  if (!c.experts.choice_bias) return not_in_gguf(where, "use_expert_bias");
  if (!c.experts.normalised) return not_in_gguf(where, "norm_topk_prob");
  return c.experts.weight_scale == 1 ? Status() : not_in_gguf(where, "routed_scaling_factor");
}

Status check_granted_experts(const ModelConfig& c, std::string_view where) {
  if (c.family == Family::kLfm2Moe || c.family == Family::kHunYuanMoe) return {};
  if (c.family == Family::kMiniMaxM2) {
    return c.tied_embeddings ? not_in_gguf(where, "tie_word_embeddings") : Status();
  }
  if (c.family == Family::kGlm4Moe) {
    return c.experts.groups > 1 ? not_in_gguf(where, "n_group") : Status();
  }
  if (c.experts.normalised != gguf_experts_normalised(c.family)) {
    return not_in_gguf(where, "norm_topk_prob");
  }
  return c.layer_is_dense.empty() ? Status() : not_in_gguf(where, "mlp_only_layers");
}

// Which biases readers look for, and which they must find.
Status check_biases(const ModelConfig& c, std::string_view where) {
  switch (family_info(c.family).biases) {
    case BiasRule::kUseBias:
      return c.qkv_bias ? Status() : not_in_gguf(where, "use_bias");
    case BiasRule::kQkvBias:
      return c.qkv_bias ? Status() : not_in_gguf(where, "qkv_bias");
    case BiasRule::kQkv:
    case BiasRule::kUseQkvBias:
    case BiasRule::kAttentionQkv:
      return {};
    case BiasRule::kOutputApart:
      if (c.output_bias) return not_in_gguf(where, "attention_out_bias");
      return c.mlp_bias ? not_in_gguf(where, "mlp_bias") : Status();
    default:
      break;
  }
  if (c.family == Family::kLlama) return {};
  if (c.qkv_bias || c.output_bias) return not_in_gguf(where, "attention_bias");
  return c.mlp_bias ? not_in_gguf(where, "mlp_bias") : Status();
}

// What readers of these architectures take for granted.
Status check_granted(const ModelConfig& c, std::string_view where) {
  if (family_info(c.family).gemma_scores) JIGE_DO(check_gemma(c, where));
  if (family_info(c.family).chooses_activation &&
      c.activation != family_info(c.family).activation) {
    return not_in_gguf(where, "hidden_act");
  }
  if (has_experts(c.family)) JIGE_DO(check_granted_experts(c, where));
  if (c.short_conv.kernel > 0) JIGE_DO(check_lfm2(c, where));
  if (c.family == Family::kCohere2 && !c.tied_embeddings) {
    return not_in_gguf(where, "tie_word_embeddings");
  }
  if (c.family == Family::kGemma3 &&
      c.sliding_rope.value_or(c.rope).theta != kGgufGemma3SlidingTheta) {
    return not_in_gguf(where, "rope_local_base_freq");
  }
  if (c.family == Family::kNemotron) {
    if (c.tied_embeddings) return not_in_gguf(where, "tie_word_embeddings");
    if (c.head_count * c.head_dim != c.hidden_size) return not_in_gguf(where, "head_dim");
  }
  if (c.family == Family::kSmolLm3 && c.layer_is_unturned != gguf_unturned_layers(c.layer_count)) {
    return not_in_gguf(where, "no_rope_layers");
  }
  return {};
}

bool is_gguf_yarn(const ModelConfig& c) {
  RopeConfig usual = gguf_yarn(c.rope);
  if (c.family == Family::kMinistral3) {
    usual.query_growth = c.rope.query_growth;
    if (c.rope.attention_factor == 1.0) usual.attention_factor = 1.0;
  }
  return c.rope == usual;
}

// Of architectures that are read as fields of config.json those that are written, too.
bool is_written(std::string_view architecture) {
  constexpr std::string_view kWritten[] = {"gemma",         "glm4",       "cohere2",
                                           "hunyuan-dense", "lfm2",       "lfm2moe",
                                           "glm4moe",       "minimax-m2", "hunyuan-moe"};
  return !has_gguf_fields(architecture) ||
         std::find(std::begin(kWritten), std::end(kWritten), architecture) != std::end(kWritten);
}

Status check_expressible(const ModelConfig& c, std::string_view where) {
  const std::string_view architecture = gguf_architecture(c.family);
  const bool llama = c.family == Family::kMistral;
  if (!find_gguf_layout(architecture) || !is_written(architecture) ||
      (!llama && gguf_family(architecture, has_experts(c.family)) != c.family)) {
    return fail(Code::kUnsupported,
                "{}: models of the family {} are not written as GGUF files; take the folder", where,
                family_name(c.family));
  }
  if (c.family == Family::kGpt2) {
    if (c.activation != ActivationKind::kGeluTanh) {
      return not_in_gguf(where, "activation_function");
    }
    if (!c.scores_by_head_dim) return not_in_gguf(where, "scale_attn_weights");
    return c.scores_by_layer ? not_in_gguf(where, "scale_attn_by_inverse_layer_idx") : Status();
  }
  if (c.residual != ResidualForm::kSequential && c.family != Family::kCohere2) {
    return not_in_gguf(where, "use_parallel_residual");
  }
  if (c.qk_norm_apart) return not_in_gguf(where, "qk_layernorm");
  JIGE_DO(check_granted(c, where));
  JIGE_DO(check_biases(c, where));
  if (c.rope.scaling == RopeScaling::kYarn && !is_gguf_yarn(c)) {
    return not_in_gguf(where, c.family == Family::kMinistral3 ? "rope_parameters" : "rope_scaling");
  }
  if (c.rope.scaling == RopeScaling::kLlama3 &&
      !find_llama3_scaling(gguf_rope_factors(c), c.rope.theta)) {
    return not_in_gguf(where, "rope_scaling");
  }
  return check_windows(c, where);
}

class GgufConfigWriter {
 public:
  GgufConfigWriter(const ModelConfig& config, GgufKeys& keys)
      : c_(config), keys_(keys), prefix_(std::string(gguf_architecture(config.family)) + ".") {}

  void run() {
    keys_.text("general.architecture", gguf_architecture(c_.family));
    number("context_length", c_.context_max);
    number("embedding_length", c_.hidden_size);
    number("block_count", c_.layer_count);
    number("feed_forward_length", c_.ffn_size);
    number("attention.head_count", c_.head_count);
    number("vocab_size", c_.vocab_size);
    if (c_.family == Family::kGpt2) {
      real("attention.layer_norm_epsilon", c_.norm_eps);
    } else {
      add_rotary_family();
    }
  }

 private:
  void number(std::string_view name, int64_t value) {
    keys_.number(prefix_ + std::string(name), static_cast<uint32_t>(value));
  }
  void real(std::string_view name, double value) {
    keys_.real(prefix_ + std::string(name), static_cast<float>(value));
  }

  void add_experts() {
    number("expert_count", c_.experts.count);
    number("expert_used_count", c_.experts.chosen);
    number("expert_feed_forward_length", c_.experts.ffn_size);
    if (c_.experts.sigmoid_scores) number("expert_gating_func", kSigmoidGatingNumber);
    if (!c_.layer_is_dense.empty()) {
      number("leading_dense_block_count", c_.layer_count - expert_layer_count(c_));
    }
    if (c_.family == Family::kGlm4Moe) {
      number("expert_shared_count", c_.experts.shared_ffn_size / c_.experts.ffn_size);
      real("expert_weights_scale", c_.experts.weight_scale);
      keys_.flag(prefix_ + "expert_weights_norm", c_.experts.normalised);
      return;
    }
    if (c_.experts.shared_ffn_size > 0) {
      number("expert_shared_feed_forward_length", c_.experts.shared_ffn_size);
    }
  }

  // All families but GPT-2.
  void add_rotary_family() {
    add_kv_heads();
    number("attention.key_length", c_.head_dim);
    number("attention.value_length", c_.head_dim);
    number("rope.dimension_count", c_.rotary_dim > 0 ? c_.rotary_dim : c_.head_dim);
    const bool layer_norm = c_.norm == NormKind::kLayer;
    real(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
         c_.norm_eps);
    if (c_.family == Family::kStableLm) keys_.flag(prefix_ + "use_parallel_residual", false);
    if (c_.experts.count > 0) add_experts();
    real("rope.freq_base", c_.rope.theta);
    if (c_.family == Family::kGranite) {
      real("attention.scale", c_.score_scale);
      real("embedding_scale", c_.embedding_scale);
      real("residual_scale", c_.residual_scale);
      real("logit_scale", c_.logits_divisor);
    }
    if (c_.family == Family::kCohere2) real("logit_scale", c_.logits_scale);
    if (c_.score_cap > 0) real("attn_logit_softcapping", c_.score_cap);
    if (c_.logits_cap > 0) real("final_logit_softcapping", c_.logits_cap);
    if (c_.family == Family::kGemma3) real("rope.freq_base_swa", kGgufGemma3SlidingTheta);
    if (c_.rope.scaling == RopeScaling::kLinear) {
      keys_.text(prefix_ + "rope.scaling.type", "linear");
      real("rope.scaling.factor", c_.rope.factor);
    }
    if (c_.rope.scaling == RopeScaling::kYarn) {
      keys_.text(prefix_ + "rope.scaling.type", "yarn");
      real("rope.scaling.factor", c_.rope.factor);
      number("rope.scaling.original_context_length", c_.rope.original_context);
      if (c_.family == Family::kMinistral3) add_query_growth();
    }
    if (c_.sliding_window > 0) number("attention.sliding_window", c_.sliding_window);
  }

  // Layers with a short convolution have none.
  void add_kv_heads() {
    if (c_.short_conv.kernel == 0) return number("attention.head_count_kv", c_.kv_head_count);
    std::vector<int32_t> heads;
    for (int64_t i = 0; i < c_.layer_count; ++i) {
      heads.push_back(is_recurrent(c_, i) ? 0 : static_cast<int32_t>(c_.kv_head_count));
    }
    keys_.ints(prefix_ + "attention.head_count_kv", heads);
    number("shortconv.l_cache", c_.short_conv.kernel);
  }

  void add_query_growth() {
    real("rope.scaling.yarn_beta_fast", c_.rope.beta_fast);
    real("rope.scaling.yarn_beta_slow", c_.rope.beta_slow);
    real("rope.scaling.yarn_log_multiplier", c_.rope.attention_factor == 1.0 ? 1.0 : 0.0);
    real("attention.temperature_scale", c_.rope.query_growth);
  }

  const ModelConfig& c_;
  GgufKeys& keys_;
  std::string prefix_;
};

}  // namespace

std::string_view gguf_architecture(Family family) {
  switch (family) {
    case Family::kMistral:
    case Family::kMixtral:
      return "llama";
    case Family::kMinistral3:
      return "mistral3";
    case Family::kGemma3:
      return "gemma3";
    case Family::kQwen2Moe:
      return "qwen2moe";
    case Family::kQwen3Moe:
      return "qwen3moe";
    case Family::kHunYuanDense:
      return "hunyuan-dense";
    case Family::kHunYuanMoe:
      return "hunyuan-moe";
    case Family::kLfm2Moe:
      return "lfm2moe";
    case Family::kGlm4Moe:
      return "glm4moe";
    case Family::kMiniMaxM2:
      return "minimax-m2";
    default:
      return family_name(family);
  }
}

Status add_gguf_config(const ModelConfig& config, std::string_view where, GgufKeys& keys) {
  JIGE_DO(check_expressible(config, where));
  GgufConfigWriter(config, keys).run();
  return {};
}

std::vector<float> gguf_rope_factors(const ModelConfig& config) {
  if (config.rope.scaling != RopeScaling::kLlama3) return {};
  std::vector<float> factors;
  const auto count = static_cast<double>(config.head_dim / 2);
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double wavelength =
        2.0 * std::numbers::pi * std::pow(config.rope.theta, static_cast<double>(i) / count);
    factors.push_back(static_cast<float>(llama3_divisor(wavelength, config.rope)));
  }
  return factors;
}

}  // namespace jige::formats

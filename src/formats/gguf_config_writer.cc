#include "formats/gguf_config_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf_config.h"
#include "formats/gguf_config_checks.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kSoftmaxGatingNumber = 1;
constexpr int64_t kSigmoidGatingNumber = 2;

// What files of a family are called; those that are not here are not written.
constexpr std::pair<Family, std::string_view> kWrittenArchitectures[] = {
    {Family::kLlama, "llama"},
    {Family::kMistral, "llama"},
    {Family::kMixtral, "llama"},
    {Family::kIQuestCoder, "llama"},
    {Family::kQwen2, "qwen2"},
    {Family::kQwen3, "qwen3"},
    {Family::kGpt2, "gpt2"},
    {Family::kGemma, "gemma"},
    {Family::kGemma2, "gemma2"},
    {Family::kGemma3, "gemma3"},
    {Family::kGemma4, "gemma4"},
    {Family::kGranite, "granite"},
    {Family::kOlmo2, "olmo2"},
    {Family::kOlmo3, "olmo2"},
    {Family::kSmolLm3, "smollm3"},
    {Family::kStarCoder2, "starcoder2"},
    {Family::kStableLm, "stablelm"},
    {Family::kSeedOss, "seed_oss"},
    {Family::kQwen2Moe, "qwen2moe"},
    {Family::kQwen3Moe, "qwen3moe"},
    {Family::kOlmoe, "olmoe"},
    {Family::kMinistral3, "mistral3"},
    {Family::kArcee, "arcee"},
    {Family::kNemotron, "nemotron"},
    {Family::kGlm4, "glm4"},
    {Family::kCohere2, "cohere2"},
    {Family::kHunYuanDense, "hunyuan-dense"},
    {Family::kHunYuanMoe, "hunyuan-moe"},
    {Family::kLfm2, "lfm2"},
    {Family::kLfm2Moe, "lfm2moe"},
    {Family::kGlm4Moe, "glm4moe"},
    {Family::kMiniMaxM2, "minimax-m2"},
    {Family::kPhi, "phi2"},
    {Family::kPhi3, "phi3"},
    {Family::kGlm, "chatglm"},
    {Family::kGptNeoX, "gptneox"},
    {Family::kCohere, "command-r"},
    {Family::kErnie45, "ernie4_5"},
    {Family::kFalconH1, "falcon-h1"},
    {Family::kMiniCpm3, "minicpm3"},
    {Family::kJais2, "jais2"},
    {Family::kExaone4, "exaone4"},
    {Family::kApertus, "apertus"},
    {Family::kErnie45Moe, "ernie4_5-moe"},
    {Family::kDots1, "dots1"},
    {Family::kGptOss, "gpt-oss"},
    {Family::kQwen35, "qwen35"},
    {Family::kQwen35Moe, "qwen35moe"},
    {Family::kQwen3Next, "qwen3next"},
    {Family::kGraniteMoe, "granitemoe"},
    {Family::kGraniteMoeShared, "granitemoe"},
    {Family::kGraniteHybrid, "granitehybrid"},
    {Family::kNemotronH, "nemotron_h"},
    {Family::kDeepSeekV2, "deepseek2"},
    {Family::kDeepSeekV3, "deepseek2"},
    {Family::kGlm4MoeLite, "deepseek2"},
    {Family::kYoutu, "deepseek2"},
    {Family::kSolarOpen, "glm4moe"},
};

std::vector<float> as_floats(const std::vector<double>& values) {
  return std::vector<float>(values.begin(), values.end());
}

class GgufConfigWriter {
 public:
  GgufConfigWriter(const ModelConfig& config, GgufKeys& keys)
      : c_(config), keys_(keys), prefix_(std::string(gguf_architecture(config)) + ".") {}

  void run() {
    keys_.text("general.architecture", gguf_architecture(c_));
    number("context_length", c_.context_max);
    number("embedding_length", c_.hidden_size);
    number("block_count", c_.layer_count);
    if (c_.layer_parts.empty() && !c_.shared_double_ffn) {
      number("feed_forward_length", c_.ffn_size);
    }
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
    if (!c_.layer_is_dense.empty() && c_.layer_parts.empty()) {
      number("leading_dense_block_count", c_.layer_count - expert_layer_count(c_));
    }
    if (c_.family == Family::kErnie45Moe) number("interleave_moe_layer_step", 1);
    const bool counted = c_.family == Family::kGlm4Moe || c_.family == Family::kDots1 ||
                         c_.family == Family::kDeepSeekV2 || c_.family == Family::kDeepSeekV3 ||
                         c_.family == Family::kGlm4MoeLite || c_.family == Family::kSolarOpen ||
                         c_.family == Family::kErnie45Moe;
    if (counted) number("expert_shared_count", c_.experts.shared_ffn_size / c_.experts.ffn_size);
    if (c_.family == Family::kNemotronH) number("expert_shared_count", 1);
    if (c_.family == Family::kDeepSeekV2) number("expert_gating_func", kSoftmaxGatingNumber);
    if ((counted && c_.family != Family::kErnie45Moe) || c_.family == Family::kNemotronH) {
      real("expert_weights_scale", c_.experts.weight_scale);
      keys_.flag(prefix_ + "expert_weights_norm", c_.experts.normalised);
    }
    if (c_.experts.groups > 1) {
      number("expert_group_count", c_.experts.groups);
      number("expert_group_used_count", c_.experts.chosen_groups);
    }
    if (counted && c_.family != Family::kErnie45Moe) return;
    if (c_.experts.shared_ffn_size > 0) {
      number("expert_shared_feed_forward_length", c_.experts.shared_ffn_size);
    }
  }

  // Readers of these want the keys, too, of models that have none.
  void add_no_experts() {
    number("leading_dense_block_count", c_.layer_count);
    number("expert_feed_forward_length", c_.ffn_size);
    number("expert_shared_count", 0);
    const bool softmax = c_.family == Family::kDeepSeekV2;
    number("expert_gating_func", softmax ? kSoftmaxGatingNumber : kSigmoidGatingNumber);
  }

  // All families but GPT-2.
  void add_rotary_family() {
    add_kv_heads();
    add_head_sizes();
    const bool layer_norm = c_.norm == NormKind::kLayer;
    real(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
         c_.norm_eps);
    if (c_.family == Family::kStableLm || c_.family == Family::kGptNeoX) {
      keys_.flag(prefix_ + "use_parallel_residual", c_.residual != ResidualForm::kSequential);
    }
    if (c_.family == Family::kNemotronH) real("attention.layer_norm_epsilon", c_.norm_eps);
    if (c_.mamba2.heads > 0 && !c_.layer_is_recurrent.empty()) add_mamba2();
    if (c_.delta.key_heads > 0) add_delta();
    if (c_.experts.count > 0) add_experts();
    if (c_.experts.count == 0 && gguf_architecture(c_) == "deepseek2") add_no_experts();
    real("rope.freq_base", c_.rope.theta);
    if (family_info(c_.family).granite_scales) {
      real("attention.scale", c_.score_scale);
      real("embedding_scale", c_.embedding_scale);
      real("residual_scale", c_.residual_scale);
      real("logit_scale", c_.logits_divisor);
    }
    if (c_.family == Family::kCohere2 || c_.family == Family::kCohere) {
      real("logit_scale", c_.logits_scale);
    }
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
      if (c_.family == Family::kGptOss) {
        real("rope.scaling.yarn_beta_fast", c_.rope.beta_fast);
        real("rope.scaling.yarn_beta_slow", c_.rope.beta_slow);
      }
      if (c_.rope.mscale_all > 0) {
        real("rope.scaling.yarn_log_multiplier", kGgufLatentMultiplier * c_.rope.mscale_all);
      }
    }
    if (c_.rope.scaling == RopeScaling::kLongRope) {
      real("rope.scaling.attn_factor", c_.rope.attention_factor);
      number("rope.scaling.original_context_length", c_.rope.original_context);
    }
    if (c_.sliding_window > 0) number("attention.sliding_window", c_.sliding_window);
    if (c_.family == Family::kOlmo3 || c_.family == Family::kGptOss ||
        c_.family == Family::kExaone4) {
      keys_.flags(prefix_ + "attention.sliding_window_pattern", window_flags());
    }
    if (c_.family == Family::kOlmo3) {
      real("rope.freq_base_swa", c_.sliding_rope.value_or(c_.rope).theta);
    }
  }

  std::vector<uint8_t> window_flags() const {
    std::vector<uint8_t> flags;
    for (int64_t i = 0; i < c_.layer_count; ++i) flags.push_back(has_window(c_, i));
    return flags;
  }

  void add_mamba2() {
    number("ssm.conv_kernel", c_.mamba2.kernel);
    number("ssm.inner_size", c_.mamba2.value_columns());
    number("ssm.state_size", c_.mamba2.state_dim);
    number("ssm.time_step_rank", c_.mamba2.heads);
    number("ssm.group_count", c_.mamba2.groups);
    if (c_.family == Family::kGraniteHybrid) {
      keys_.flag(prefix_ + "rope.scaling.finetuned", c_.layer_is_unturned.empty());
      const int64_t shared = c_.experts.count > 0 ? c_.experts.shared_ffn_size : c_.ffn_size;
      if (c_.experts.count == 0) number("expert_shared_feed_forward_length", shared);
    }
  }

  void add_delta() {
    number("ssm.conv_kernel", c_.delta.kernel);
    number("ssm.inner_size", c_.delta.value_columns());
    number("ssm.state_size", c_.delta.key_dim);
    number("ssm.time_step_rank", c_.delta.value_heads);
    number("ssm.group_count", c_.delta.key_heads);
    keys_.flags(prefix_ + "attention.recurrent_layers", c_.layer_is_recurrent);
    if (c_.family == Family::kQwen3Next) return;
    // Pairs of columns that turn by positions in time, height and width, which are one for text.
    const auto pairs = static_cast<int32_t>(c_.rotary_dim > 0 ? c_.rotary_dim : c_.head_dim) / 2;
    keys_.ints(prefix_ + "rope.dimension_sections",
               std::vector<int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
  }

  // Of models with latents the shape of heads stands apart from that of attention without them.
  void add_head_sizes() {
    const LatentConfig& latent = c_.latent;
    if (latent.rank > 0) {
      number("attention.kv_lora_rank", latent.rank);
      if (latent.query_rank > 0) number("attention.q_lora_rank", latent.query_rank);
    }
    if (c_.family == Family::kGemma4) return add_gemma4();
    number("rope.dimension_count", c_.rotary_dim > 0 ? c_.rotary_dim : c_.head_dim);
    if (latent.rank == 0 || c_.family == Family::kMiniCpm3) {
      number("attention.key_length", c_.head_dim);
      number("attention.value_length", latent.rank > 0 ? latent.value_dim : c_.head_dim);
      return;
    }
    number("attention.key_length", latent.rank + c_.rotary_dim);
    number("attention.value_length", latent.rank);
    number("attention.key_length_mla", c_.head_dim);
    number("attention.value_length_mla", latent.value_dim);
  }

  // Recurrent layers have none, and so have those that are a feed-forward part alone.
  void add_kv_heads() {
    const bool latent = c_.latent.rank > 0 && c_.family != Family::kMiniCpm3;
    const bool mamba = c_.mamba2.heads > 0 && !c_.layer_is_recurrent.empty();
    const bool some = c_.short_conv.kernel > 0 || (mamba && !c_.attention_beside);
    if (c_.family == Family::kGemma4) return add_kv_heads_by_layer();
    if (!some) return number("attention.head_count_kv", latent ? 1 : c_.kv_head_count);
    std::vector<int32_t> heads, widths;
    for (int64_t i = 0; i < c_.layer_count; ++i) {
      const bool attention = has_attention_part(c_, i) && !is_recurrent(c_, i);
      heads.push_back(attention ? static_cast<int32_t>(c_.kv_head_count) : 0);
      const int64_t width = has_experts(c_, i) ? c_.experts.ffn_size : c_.ffn_size;
      widths.push_back(has_feed_forward(c_, i) ? static_cast<int32_t>(width) : 0);
    }
    keys_.ints(prefix_ + "attention.head_count_kv", heads);
    if (!c_.layer_parts.empty()) keys_.ints(prefix_ + "feed_forward_length", widths);
    if (c_.short_conv.kernel > 0) number("shortconv.l_cache", c_.short_conv.kernel);
  }

  // Layers without the window may have other heads, those that share keys other widths.
  void add_kv_heads_by_layer() {
    std::vector<int32_t> heads, widths;
    for (int64_t i = 0; i < c_.layer_count; ++i) {
      heads.push_back(static_cast<int32_t>(head_shape(c_, i).kv_head_count));
      widths.push_back(static_cast<int32_t>(ffn_size_of(c_, i)));
    }
    keys_.ints(prefix_ + "attention.head_count_kv", heads);
    if (c_.shared_double_ffn) keys_.ints(prefix_ + "feed_forward_length", widths);
  }

  void add_gemma4() {
    const int64_t full = c_.full_heads.head_dim > 0 ? c_.full_heads.head_dim : c_.head_dim;
    for (const char* name :
         {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      number(name, full);
      number(std::string(name) + "_swa", c_.head_dim);
    }
    keys_.flags(prefix_ + "attention.sliding_window_pattern", window_flags());
    real("rope.freq_base_swa", c_.sliding_rope.value_or(c_.rope).theta);
    number("attention.shared_kv_layers", c_.shared_kv_layers);
    number("embedding_length_per_layer_input", c_.layer_inputs.size);
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

std::string_view gguf_architecture(const ModelConfig& config) {
  const bool experts = config.experts.count > 0;
  // Granite 4 without recurrent layers is Granite 3 to readers.
  if (config.family == Family::kGraniteHybrid && config.layer_is_recurrent.empty()) {
    return experts ? "granitemoe" : "granite";
  }
  if (config.family == Family::kNemotronH && experts) return "nemotron_h_moe";
  for (const auto& [written, name] : kWrittenArchitectures) {
    if (written == config.family) return name;
  }
  return "";
}

Status add_gguf_config(const ModelConfig& config, std::string_view where, GgufKeys& keys) {
  JIGE_DO(check_gguf_expressible(config, where));
  GgufConfigWriter(config, keys).run();
  return {};
}

std::vector<GgufFactors> gguf_rope_factors(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.scaling == RopeScaling::kLongRope) {
    return {{"rope_factors_long.weight", as_floats(rope.long_factors)},
            {"rope_factors_short.weight", as_floats(rope.short_factors)}};
  }
  if (config.family == Family::kGemma4) {
    const int64_t full =
        config.full_heads.head_dim > 0 ? config.full_heads.head_dim : config.head_dim;
    std::vector<float> factors(static_cast<size_t>(full / 2), 1.0f);
    const bool some = rope.scaling == RopeScaling::kProportional;
    const auto turned = static_cast<double>(factors.size()) * (some ? rope.turned_share : 1.0);
    std::fill(factors.begin() + static_cast<std::ptrdiff_t>(std::llround(turned)), factors.end(),
              kGgufStandingStill);
    return {{"rope_freqs.weight", std::move(factors)}};
  }
  if (rope.scaling != RopeScaling::kLlama3) return {};
  return {{"rope_freqs.weight", gguf_llama3_factors(config)}};
}

std::vector<float> gguf_llama3_factors(const ModelConfig& config) {
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

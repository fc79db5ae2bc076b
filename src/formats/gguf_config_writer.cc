#include "formats/gguf_config_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/log.h"
#include "formats/gguf_config.h"

namespace jige::formats {
namespace {

tl::unexpected<Error> not_in_gguf(std::string_view where, std::string_view field) {
  return fail(Code::kUnsupported,
              "{}: field \"{}\" has a value that readers of GGUF files would not compute, so the "
              "model cannot be written as one",
              where, field);
}

Status check_windows(const ModelConfig& c, std::string_view where) {
  if (c.sliding_window == 0) return {};
  const bool everywhere =
      std::all_of(c.layer_is_sliding.begin(), c.layer_is_sliding.end(), [](auto s) { return s; });
  if (c.family == Family::kMistral && everywhere) {
    log_warn(
        "{}: llama.cpp has no windows for this architecture: behind {} tokens it gives other "
        "answers than Jige, which reads the window from the file",
        where, c.sliding_window);
    return {};
  }
  return not_in_gguf(where, c.family == Family::kMistral ? "layer_types" : "sliding_window");
}

Status check_expressible(const ModelConfig& c, std::string_view where) {
  if (c.family == Family::kGpt2) {
    if (c.activation != ActivationKind::kGeluTanh) {
      return not_in_gguf(where, "activation_function");
    }
    if (!c.scores_by_head_dim) return not_in_gguf(where, "scale_attn_weights");
    return c.scores_by_layer ? not_in_gguf(where, "scale_attn_by_inverse_layer_idx") : Status();
  }
  if (has_experts(c.family)) {
    return fail(Code::kUnsupported, "{}: {} models are read from GGUF files, but not written",
                where, family_name(c.family));
  }
  const bool plain_biases = c.family == Family::kQwen2 || c.family == Family::kLlama;
  if ((c.qkv_bias || c.output_bias) && !plain_biases) return not_in_gguf(where, "attention_bias");
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
      add_gated_family();
    }
  }

 private:
  void number(std::string_view name, int64_t value) {
    keys_.number(prefix_ + std::string(name), static_cast<uint32_t>(value));
  }
  void real(std::string_view name, double value) {
    keys_.real(prefix_ + std::string(name), static_cast<float>(value));
  }

  void add_gated_family() {
    number("attention.head_count_kv", c_.kv_head_count);
    number("attention.key_length", c_.head_dim);
    number("attention.value_length", c_.head_dim);
    number("rope.dimension_count", c_.head_dim);
    real("attention.layer_norm_rms_epsilon", c_.norm_eps);
    real("rope.freq_base", c_.rope.theta);
    if (c_.rope.scaling == RopeScaling::kLinear) {
      keys_.text(prefix_ + "rope.scaling.type", "linear");
      real("rope.scaling.factor", c_.rope.factor);
    }
    if (c_.sliding_window > 0) number("attention.sliding_window", c_.sliding_window);
  }

  const ModelConfig& c_;
  GgufKeys& keys_;
  std::string prefix_;
};

}  // namespace

std::string_view gguf_architecture(Family family) {
  return family == Family::kMistral ? "llama" : family_name(family);
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

#include "formats/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/file_content.h"
#include "formats/gguf_config_fields.h"
#include "formats/gguf_config_rope.h"
#include "formats/gguf_params.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr std::string_view kTurnedKey = "rope.dimension_count";

class GgufConfigReader {
 public:
  explicit GgufConfigReader(const GgufFile& file) : file_(file), keys_(file.metadata()) {}

  Result<ModelConfig> run() {
    JIGE_DO(read_family());
    JIGE_DO(refuse_what_changes_results());
    JIGE_DO(read_sizes());
    JIGE_DO(read_heads());
    JIGE_DO(read_experts());
    JIGE_DO(read_vocabulary());
    if (out_.family == Family::kGpt2) {
      JIGE_DO(read_gpt2());
    } else {
      JIGE_DO(read_rotary_family());
    }
    JIGE_DO(as_file_content(check_model_config(out_, keys_.where())));
    return out_;
  }

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  bool has_tensor(std::string_view name) const { return file_.header().find(name) != nullptr; }

  tl::unexpected<Error> contradiction(std::string_view name, int64_t value,
                                      const std::string& other) const {
    return fail(Code::kCorrupt, "{}: key \"{}\" is {}, but {}", keys_.where(), key(name), value,
                other);
  }

  Status read_family() {
    JIGE_TRY(const std::string_view name, keys_.get_text("general.architecture"));
    if (!find_gguf_layout(name)) {
      return fail(Code::kUnsupported,
                  "{}: architecture \"{}\" is not one that Jige reads from GGUF; it reads {}",
                  keys_.where(), gguf_shown(name), known_gguf_architectures());
    }
    prefix_ = std::string(name) + ".";
    JIGE_TRY(const auto experts, keys_.find_int(key("expert_count")));
    out_.experts.count = experts.value_or(0);
    out_.family = gguf_family(name, out_.experts.count != 0);
    JIGE_TRY(const auto scaling, keys_.find_text(key("rope.scaling.type")));
    // Mistral Small 3 has the same name.
    if (out_.family == Family::kMinistral3 && scaling != "yarn") out_.family = Family::kLlama;
    if (out_.experts.count == 0 || has_experts(out_.family)) return {};
    return fail(Code::kUnsupported, "{}: key \"{}\" is {}, which Jige does not compute",
                keys_.where(), key("expert_count"), out_.experts.count);
  }

  Status read_experts() {
    if (!has_experts(out_.family)) return {};
    out_.experts.normalised = gguf_experts_normalised(out_.family);
    out_.experts.balance_weight = usual_balance_weight(out_.family);
    JIGE_TRY(out_.experts.chosen, keys_.get_int(key("expert_used_count")));
    JIGE_TRY(const auto size, keys_.find_int(key("expert_feed_forward_length")));
    out_.experts.ffn_size = size.value_or(out_.ffn_size);
    if (out_.family != Family::kQwen2Moe) return {};
    JIGE_TRY(const auto shared, keys_.find_int(key("expert_shared_feed_forward_length")));
    out_.experts.shared_ffn_size = shared.value_or(out_.ffn_size);
    out_.experts.shared_gate = true;
    return {};
  }

  // Keys of some architectures that others may not have.
  bool is_own(std::string_view key) const {
    if (key == "attention.sliding_window") return true;
    if (out_.family == Family::kMinistral3) return key.starts_with("attention.temperature_");
    if (out_.family == Family::kGemma2) {
      return key == "attn_logit_softcapping" || key == "final_logit_softcapping";
    }
    return out_.family == Family::kGranite && (key == "logit_scale" || key == "embedding_scale" ||
                                               key == "residual_scale" || key == "attention.scale");
  }

  Status refuse_what_changes_results() const {
    JIGE_DO(refuse_gguf_keys(keys_, prefix_, [&](std::string_view key) { return is_own(key); }));
    JIGE_TRY(const auto parallel, keys_.find_bool(key("use_parallel_residual")));
    if (!parallel.value_or(false)) return {};
    return fail(Code::kUnsupported, "{}: key \"{}\" is true, which Jige does not compute",
                keys_.where(), key("use_parallel_residual"));
  }

  Status read_sizes() {
    JIGE_TRY(out_.hidden_size, keys_.get_int(key("embedding_length")));
    JIGE_TRY(out_.layer_count, keys_.get_int(key("block_count")));
    JIGE_TRY(out_.ffn_size, keys_.get_same_int(key("feed_forward_length")));
    JIGE_TRY(out_.context_max, keys_.get_int(key("context_length")));
    return {};
  }

  Status read_heads() {
    JIGE_TRY(out_.head_count, keys_.get_same_int(key("attention.head_count")));
    JIGE_TRY(const auto kv, keys_.find_same_int(key("attention.head_count_kv")));
    out_.kv_head_count = kv.value_or(out_.head_count);
    if (out_.head_count < 1 || out_.kv_head_count < 1) {
      return contradiction(out_.head_count < 1 ? "attention.head_count" : "attention.head_count_kv",
                           std::min(out_.head_count, out_.kv_head_count), "must be positive");
    }
    JIGE_TRY(const auto length, keys_.find_int(key("attention.key_length")));
    if (!length && out_.hidden_size % out_.head_count != 0) {
      return contradiction(
          "attention.head_count", out_.head_count,
          fmt::format("does not divide \"{}\", {}", key("embedding_length"), out_.hidden_size));
    }
    out_.head_dim = length.value_or(out_.hidden_size / out_.head_count);
    for (const std::string_view name : {std::string_view("attention.value_length"), kTurnedKey}) {
      JIGE_TRY(const auto other, keys_.find_int(key(name)));
      if (!other || *other == out_.head_dim) continue;
      if (name == kTurnedKey && family_info(out_.family).turns_parts) {
        out_.rotary_dim = *other;
        continue;
      }
      return fail(Code::kUnsupported,
                  "{}: key \"{}\" is {} and heads have {}; Jige computes models where both are one",
                  keys_.where(), key(name), *other, out_.head_dim);
    }
    return {};
  }

  Status read_vocabulary() {
    const GgufTensor* table = file_.header().find("token_embd.weight");
    if (!table || table->dims.size() != 2) {
      return fail(Code::kCorrupt, "{}: tensor \"token_embd.weight\" is {}", keys_.where(),
                  table ? "no matrix" : "missing");
    }
    out_.vocab_size = table->rows();
    JIGE_TRY(const auto stated, keys_.find_int(key("vocab_size")));
    if (stated && *stated != out_.vocab_size) {
      return contradiction(
          "vocab_size", *stated,
          fmt::format("tensor \"token_embd.weight\" has {} rows", out_.vocab_size));
    }
    out_.tied_embeddings = has_gguf_tied_head(file_);
    return {};
  }

  Status read_gpt2() {
    out_.norm = NormKind::kLayer;
    out_.position = PositionKind::kLearned;
    out_.activation = ActivationKind::kGeluTanh;
    out_.qkv_bias = out_.output_bias = out_.mlp_bias = true;
    JIGE_TRY(const auto eps, keys_.find_number(key("attention.layer_norm_epsilon")));
    out_.norm_eps = eps.value_or(1e-5);
    return {};
  }

  void read_biases() {
    const BiasRule rule = family_info(out_.family).biases;
    out_.qkv_bias = rule == BiasRule::kQkv || has_tensor("blk.0.attn_q.bias");
    const bool everywhere = rule == BiasRule::kUseBias;
    out_.output_bias = out_.qkv_bias && (everywhere || rule == BiasRule::kAttention ||
                                         rule == BiasRule::kAttentionAndMlp);
    const bool gated = rule == BiasRule::kAttentionAndMlp && has_tensor("blk.0.ffn_gate.bias");
    out_.mlp_bias = gated || (everywhere && out_.qkv_bias);
  }

  // All families but GPT-2.
  Status read_rotary_family() {
    const FamilyInfo& family = family_info(out_.family);
    const char* eps_key = family.norm == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                                          : "attention.layer_norm_rms_epsilon";
    JIGE_TRY(const auto eps, keys_.find_number(key(eps_key)));
    if (!eps) {
      return fail(Code::kCorrupt, "{}: key \"{}\" is missing", keys_.where(), key(eps_key));
    }
    out_.norm_eps = *eps;
    set_family_features(out_);
    out_.residual = ResidualForm::kSequential;  // files with another, or with norms of heads that
    out_.qk_norm_apart = false;                 // only some models of a family have, are refused
    read_biases();
    if (out_.family == Family::kGranite) JIGE_DO(read_granite());
    JIGE_DO(as_file_content(in_layer_limits()));
    if (out_.family == Family::kSmolLm3) {
      out_.layer_is_unturned = gguf_unturned_layers(out_.layer_count);
    }
    JIGE_DO(family.gemma_scores ? read_gemma() : read_window());
    return read_gguf_rope(file_, prefix_, out_);
  }

  // What follows allocates by the number of layers.
  Status in_layer_limits() const {
    if (out_.layer_count >= 1 && out_.layer_count <= kLayersMax) return {};
    return fail(Code::kInvalidArgument, "{}: key \"{}\" is {}; it must lie in [1, {}]",
                keys_.where(), key("block_count"), out_.layer_count, kLayersMax);
  }

  Status read_granite() {
    JIGE_TRY(const auto scores, keys_.find_number(key("attention.scale")));
    JIGE_TRY(const auto embedding, keys_.find_number(key("embedding_scale")));
    JIGE_TRY(const auto residual, keys_.find_number(key("residual_scale")));
    JIGE_TRY(const auto logits, keys_.find_number(key("logit_scale")));
    const double by_head =
        1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(out_.head_dim, 1)));
    out_.score_scale = scores.value_or(by_head);
    out_.embedding_scale = embedding.value_or(1.0);
    out_.residual_scale = residual.value_or(1.0);
    out_.logits_divisor = logits.value_or(1.0);
    return {};
  }

  Status read_caps() {
    if (out_.family != Family::kGemma2) return {};
    const FamilyInfo& family = family_info(out_.family);
    for (const auto& [name, usual, cap] :
         {std::tuple("attn_logit_softcapping", family.score_cap, &out_.score_cap),
          std::tuple("final_logit_softcapping", family.logits_cap, &out_.logits_cap)}) {
      JIGE_TRY(const auto value, keys_.find_number(key(name)));
      *cap = value.value_or(usual);
      if (*cap > 0) continue;
      return fail(Code::kUnsupported, "{}: key \"{}\" is {}; it must be positive", keys_.where(),
                  key(name), *cap);
    }
    return {};
  }

  Status read_gemma() {
    out_.embedding_scale = std::sqrt(static_cast<double>(std::max<int64_t>(out_.hidden_size, 1)));
    out_.score_dim = gguf_gemma_score_dim(out_);
    JIGE_DO(read_caps());
    JIGE_TRY(const auto window, keys_.find_same_int(key("attention.sliding_window")));
    JIGE_TRY(const auto period, keys_.find_int(key("attention.sliding_window_pattern")));
    if (period && *period < 1) {
      return contradiction("attention.sliding_window_pattern", *period, "must be positive");
    }
    std::vector<uint8_t> flags =
        gguf_sliding_layers(out_.layer_count, period.value_or(gguf_gemma_period(out_.family)));
    const auto sliding = std::count(flags.begin(), flags.end(), uint8_t{1});
    if (window.value_or(0) == 0 || sliding == 0) return {};
    out_.sliding_window = *window;
    if (sliding < out_.layer_count) out_.layer_is_sliding = std::move(flags);
    if (!family_info(out_.family).two_ropes) return {};
    JIGE_TRY(const auto theta, keys_.find_number(key("rope.freq_base_swa")));
    out_.sliding_rope = RopeConfig{.theta = theta.value_or(kGgufGemma3SlidingTheta)};
    return {};
  }

  Status read_window() {
    JIGE_TRY(const auto window, keys_.find_same_int(key("attention.sliding_window")));
    if (window.value_or(0) == 0) return {};
    if (out_.family == Family::kMixtral || out_.family == Family::kStarCoder2 ||
        out_.family == Family::kMinistral3) {
      out_.sliding_window = *window;
      return {};
    }
    if (out_.family != Family::kLlama) {
      return fail(Code::kUnsupported,
                  "{}: key \"{}\" is {}, but nothing says which layers it is for; Jige reads it of "
                  "llama and starcoder2 alone",
                  keys_.where(), key("attention.sliding_window"), *window);
    }
    out_.family = Family::kMistral;
    out_.sliding_window = *window;
    return {};
  }

  const GgufFile& file_;
  const GgufMetadata& keys_;
  std::string prefix_;  // "llama."
  ModelConfig out_;
};

}  // namespace

std::vector<uint8_t> gguf_unturned_layers(int64_t layer_count) {
  constexpr int64_t kPeriod = 4;
  if (layer_count < kPeriod) return {};
  std::vector<uint8_t> flags;
  for (int64_t i = 1; i <= layer_count; ++i) flags.push_back(i % kPeriod == 0);
  return flags;
}

std::vector<uint8_t> gguf_sliding_layers(int64_t layer_count, int64_t period) {
  std::vector<uint8_t> flags;
  for (int64_t i = 1; i <= layer_count; ++i) flags.push_back(i % period != 0);
  return flags;
}

int64_t gguf_gemma_period(Family family) { return family_info(family).full_period; }

bool gguf_experts_normalised(Family family) {
  return family == Family::kMixtral || family == Family::kQwen3Moe || family == Family::kQwen3Next;
}

double gguf_gemma_score_dim(const ModelConfig& config) {
  const int64_t layers_of_27b = config.family == Family::kGemma2 ? 46 : 62;
  if (config.layer_count != layers_of_27b || config.head_count < 1) {
    return static_cast<double>(config.head_dim);
  }
  return static_cast<double>(config.hidden_size / config.head_count);
}

Result<ModelConfig> read_gguf_config(const GgufFile& file) {
  JIGE_TRY(const std::string_view name, file.metadata().get_text("general.architecture"));
  return has_gguf_fields(name) ? read_gguf_fields(file) : GgufConfigReader(file).run();
}

}  // namespace jige::formats

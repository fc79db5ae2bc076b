// Keys of Phi, Phi-3, OLMo 3, GPT-NeoX, Falcon-H1 and Bamba.
#include <fmt/format.h>

#include <algorithm>

#include "formats/gguf_config.h"
#include "formats/gguf_config_rope.h"
#include "formats/gguf_field_reader.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// The one of 20 B has the form of GELU that files are computed with, others the exact one.
constexpr int64_t kLayersOfNeoX20B = 44;

}  // namespace

ActivationKind gguf_gpt_neox_activation(int64_t layer_count) {
  return layer_count == kLayersOfNeoX20B ? ActivationKind::kGeluTanh : ActivationKind::kGeluErf;
}

Status GgufFieldReader::read_further_parts(bool biases) {
  switch (family_) {
    case Family::kPhi:
      out_["hidden_act"] = "gelu_new";
      return {};
    case Family::kPhi3:
      return read_phi3();
    case Family::kOlmo3:
      return read_olmo3();
    case Family::kGptNeoX:
      return read_gpt_neox();
    case Family::kFalconH1:
      return read_falcon();
    case Family::kMiniCpm3:
      return read_minicpm3();
    case Family::kJais2:
      return read_jais2();
    case Family::kErnie45:
      out_.erase("attention_bias");
      out_["use_bias"] = biases;
      return {};
    case Family::kCohere:
      out_["use_qk_norm"] = has_part(0, "attn_q_norm.weight");
      return put_number_or("logit_scale", "logit_scale", 1.0);
    default:
      return {};
  }
}

Status GgufFieldReader::read_phi3() {
  constexpr const char* kTurned = "rope.dimension_count";
  JIGE_TRY(const auto window, keys_.find_same_int(key("attention.sliding_window")));
  out_["sliding_window"] = window.value_or(0) == 0 ? Json() : Json(*window);
  const int64_t head_dim = out_["head_dim"].get<int64_t>();
  JIGE_TRY(const auto stated, keys_.find_int(key(kTurned)));
  const int64_t turned = stated.value_or(head_dim);
  if (turned < 1 || turned > head_dim) {
    return contradiction(kTurned, turned, fmt::format("heads have {} columns", head_dim));
  }
  JIGE_TRY(const int64_t context, keys_.get_int(key("context_length")));
  JIGE_TRY(out_["rope_parameters"], read_gguf_longrope(file_, prefix_, turned, context));
  Json& rope = out_["rope_parameters"];
  rope["partial_rotary_factor"] = partial_rotary_factor(turned, head_dim);
  if (rope.contains("original_max_position_embeddings")) {
    out_["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
  }
  return {};
}

Status GgufFieldReader::read_minicpm3() {
  JIGE_DO(read_latents());
  JIGE_TRY(const int64_t context, keys_.get_int(key("context_length")));
  JIGE_TRY(out_["rope_parameters"],
           read_gguf_longrope(file_, prefix_, out_["qk_rope_head_dim"].get<int64_t>(), context));
  // No key says them.
  out_["scale_emb"] = kGgufMiniCpm3Embedding;
  out_["scale_depth"] = kGgufMiniCpm3Depth;
  out_["dim_model_base"] = kGgufMiniCpm3Base;
  return {};
}

// Layers without the window turn scaled, the others by a theta that may be their own.
Status GgufFieldReader::read_olmo3() { return put_windows(family_info(family_).full_period); }

Status GgufFieldReader::set_sliding_rope(ModelConfig& config) {
  if (config.family != Family::kOlmo3) return {};
  JIGE_TRY(const auto theta, keys_.find_number(key("rope.freq_base_swa")));
  config.sliding_rope = RopeConfig{.theta = theta.value_or(config.rope.theta)};
  if (*config.sliding_rope == config.rope) config.sliding_rope.reset();
  return {};
}

Status GgufFieldReader::read_gpt_neox() {
  constexpr const char* kParallel = "use_parallel_residual";
  JIGE_TRY(const auto parallel, keys_.find_bool(key(kParallel)));
  if (!parallel) {
    return fail(Code::kCorrupt, "{}: key \"{}\" is missing", keys_.where(), key(kParallel));
  }
  out_["use_parallel_residual"] = *parallel;
  out_["attention_bias"] = has_part(0, "attn_qkv.bias");
  const bool exact = gguf_gpt_neox_activation(layers_) == ActivationKind::kGeluErf;
  out_["hidden_act"] = exact ? "gelu" : "gelu_new";
  return {};
}

// What files hold is the product of weights and multipliers.
Status GgufFieldReader::read_falcon() {
  JIGE_DO(read_mamba2(
      {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv"}));
  JIGE_DO(put_int("mamba_d_ssm", "ssm.inner_size"));
  out_["mamba_conv_bias"] = any_has("ssm_conv1d.bias");
  out_["mamba_proj_bias"] = any_has("ssm_in.bias");
  out_["projectors_bias"] = any_has("ssm_out.bias");
  out_["mamba_rms_norm"] = any_has("ssm_norm.weight");
  out_["mamba_norm_before_gate"] = false;
  out_["attention_bias"] = any_has("attn_q.bias");
  out_["mlp_bias"] = any_has("ffn_up.bias");
  return {};
}

Status GgufFieldReader::read_jais2() {
  out_["mlp_bias"] = any_has("ffn_up.bias");
  return {};
}

}  // namespace jige::formats

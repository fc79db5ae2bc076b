#include "model/layer_names.h"

#include <optional>
#include <utility>

#include "model/early_names.h"
#include "model/encoder_names.h"

namespace jige::model {
namespace {

ExpertNames llama4_expert_names(const std::string& layer) {
  const std::string own = layer + ".feed_forward.";
  const std::string shared = own + "shared_expert.";
  return {.router = own + "router",
          .prefix = own + "experts.",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .stacked_input = own + "experts.gate_up_proj",
          .stacked_output = own + "experts.down_proj",
          .stacked_usual = true,
          .stacked_transposed = true,
          .shared_input = {shared + "gate_proj", shared + "up_proj"},
          .shared_output = shared + "down_proj"};
}

ExpertNames granite_expert_names(formats::Family family, const std::string& layer) {
  const bool swa = family == formats::Family::kGraniteMoeSwa;
  const std::string own = layer + ".block_sparse_moe.";
  const std::string shared = layer + ".shared_mlp.";
  return {.router = own + (swa ? "router" : "router.layer"),
          .prefix = own + "experts.",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .stacked_input = own + (swa ? "experts.gate_up_proj" : "input_linear.weight"),
          .stacked_output = own + (swa ? "experts.down_proj" : "output_linear.weight"),
          .stacked_usual = true,
          .shared_input = {shared + "input_linear"},
          .shared_output = shared + "output_linear"};
}

ExpertNames expert_names(formats::Family family, const std::string& layer) {
  const std::string at = layer + ".mlp.";
  const std::string stacked = at + "experts.";
  const bool kimi = family == formats::Family::kKimiLinear;
  if (kimi || family == formats::Family::kMixtral || family == formats::Family::kMiniMaxM2) {
    const std::string own = layer + ".block_sparse_moe.";
    return {.router = own + "gate",
            .choice_bias = own + (kimi ? "gate." : "") + "e_score_correction_bias",
            .prefix = own + "experts.",
            .gate = "w1",
            .up = "w3",
            .down = "w2",
            .stacked_input = stacked + "gate_up_proj",
            .stacked_output = stacked + "down_proj",
            .shared_input = {own + "shared_experts.gate_proj", own + "shared_experts.up_proj"},
            .shared_output = own + "shared_experts.down_proj"};
  }
  if (family == formats::Family::kGraniteHybrid || family == formats::Family::kGraniteMoe ||
      family == formats::Family::kGraniteMoeShared || family == formats::Family::kGraniteMoeSwa) {
    return granite_expert_names(family, layer);
  }
  if (family == formats::Family::kLlama4) return llama4_expert_names(layer);
  if (family == formats::Family::kGemma4) {
    return {.router = layer + ".router.proj",
            .scales = layer + ".router.per_expert_scale",
            .prefix = layer + ".experts.",
            .gate = "gate_proj",
            .up = "up_proj",
            .down = "down_proj",
            .stacked_input = layer + ".experts.gate_up_proj",
            .stacked_output = layer + ".experts.down_proj",
            .stacked_usual = true};
  }
  const bool qwen = family == formats::Family::kQwen2Moe || family == formats::Family::kQwen35Moe ||
                    family == formats::Family::kQwen3Next;
  const bool ernie = family == formats::Family::kErnie45Moe;
  const bool keeps_apart = family == formats::Family::kExaoneMoe;
  const bool hunyuan = family == formats::Family::kHunYuanMoe;
  const bool hy = family == formats::Family::kHyV3;
  const std::string shared = at + (qwen            ? "shared_expert."
                                   : hunyuan || hy ? "shared_mlp."
                                                   : "shared_experts.");
  const bool gpt_oss = family == formats::Family::kGptOss;
  return {.router = at + (gpt_oss   ? "router"
                          : hy      ? "router.gate"
                          : hunyuan ? "gate.wg"
                                    : "gate"),
          .choice_bias = hy ? at + "expert_bias"
                            : (ernie         ? at + "moe_statics."
                               : keeps_apart ? at
                                             : at + "gate.") +
                                  "e_score_correction_bias",
          .choice_bias_as_row = ernie,
          .prefix = at + "experts.",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .stacked_input = stacked + "gate_up_proj",
          .stacked_output = stacked + "down_proj",
          .stacked_usual = gpt_oss || family == formats::Family::kMistral4,
          .stacked_transposed = gpt_oss,
          .shared_input = {shared + "gate_proj", shared + "up_proj"},
          .shared_output = shared + "down_proj",
          .shared_gate = at + "shared_expert_gate"};
}

LatentAttentionNames latent_names(const std::string& attention) {
  return {.query = attention + "q_proj",
          .query_down = attention + "q_a_proj",
          .query_norm = attention + "q_a_layernorm",
          .query_up = attention + "q_b_proj",
          .down = attention + "kv_a_proj_with_mqa",
          .norm = attention + "kv_a_layernorm",
          .up = attention + "kv_b_proj"};
}

// Of a layer that has a delta net in place of attention.
void set_recurrent_names(LayerNames& names, formats::Family family, const std::string& layer) {
  const std::string at = layer + ".linear_attn.";
  names.delta = {.qkv = {at + "in_proj_qkv"},
                 .gate = at + "in_proj_z",
                 .rate = at + "in_proj_b",
                 .decay = at + "in_proj_a",
                 .conv = {at + "conv1d"},
                 .log_scale = at + "A_log",
                 .decay_bias = at + "dt_bias",
                 .norm = at + "norm"};
  if (family == formats::Family::kQwen3Next) {
    names.delta.qkv = {at + "in_proj_qkvz"};
    names.delta.rate = at + "in_proj_ba";
    names.delta.gate = names.delta.decay = "";
  }
  names.attention_output = at + "out_proj";
  if (family != formats::Family::kOlmoHybrid) return;
  names.delta.qkv = {at + "q_proj", at + "k_proj", at + "v_proj"};
  names.delta.gate = at + "g_proj";
  names.delta.rate = at + "b_proj";
  names.delta.decay = at + "a_proj";
  names.delta.conv = {at + "q_conv1d", at + "k_conv1d", at + "v_conv1d"};
  names.delta.conv_whole = at + "conv1d";
  names.delta.norm = at + "o_norm";
  names.attention_output = at + "o_proj";
  names.norm1 = layer + ".attention_layer_norm";
  names.norm2 = layer + ".feedforward_layer_norm";
}

// Of Kimi Linear, whichever a layer has of attention and a delta net.
void set_kimi_names(LayerNames& names, const std::string& layer) {
  const std::string at = layer + ".self_attn.";
  names.kimi_delta = {.qkv = {at + "q_proj", at + "k_proj", at + "v_proj"},
                      .rate = at + "b_proj",
                      .decay_down = at + "f_a_proj",
                      .decay_up = at + "f_b_proj",
                      .gate_down = at + "g_a_proj",
                      .gate_up = at + "g_b_proj",
                      .conv = {at + "q_conv1d", at + "k_conv1d", at + "v_conv1d"},
                      .conv_whole = at + "conv1d",
                      .log_scale = at + "A_log",
                      .decay_bias = at + "dt_bias",
                      .norm = at + "o_norm"};
}

// Behind the name of the module that holds them.
Mamba2Names mamba2_names(const std::string& at) {
  return {.in = at + "in_proj",
          .conv = at + "conv1d",
          .log_scale = at + "A_log",
          .step_bias = at + "dt_bias",
          .skip = at + "D",
          .norm = at + "norm"};
}

// The same of Mamba; without weights of norms.
Mamba1Names mamba1_names(const std::string& at) {
  return {.in = at + "in_proj",
          .conv = at + "conv1d",
          .parts = at + "x_proj",
          .steps = at + "dt_proj",
          .log_scale = at + "A_log",
          .skip = at + "D"};
}

// Of Jamba, whichever a layer has of attention and Mamba.
void set_jamba_names(LayerNames& names, const std::string& layer, bool recurrent) {
  const std::string at = layer + ".mamba.";
  const std::string mlp = layer + ".feed_forward.";
  names.mamba1 = mamba1_names(at);
  names.mamba1.norms = {at + "dt_layernorm", at + "b_layernorm", at + "c_layernorm"};
  if (recurrent) names.attention_output = at + "out_proj";
  names.norm2 = layer + ".pre_ff_layernorm";
  names.ffn_input = {mlp + "gate_proj", mlp + "up_proj"};
  names.ffn_output = mlp + "down_proj";
  names.experts = {.router = mlp + "router",
                   .prefix = mlp + "experts.",
                   .gate = "gate_proj",
                   .up = "up_proj",
                   .down = "down_proj",
                   .stacked_input = mlp + "experts.gate_up_proj",
                   .stacked_output = mlp + "experts.down_proj"};
}

// Of families whose recurrent layers are those of Mamba 2.
void set_mamba2_names(LayerNames& names, const formats::ModelConfig& config,
                      const std::string& layer, bool recurrent) {
  const std::string at = layer + ".mamba.";
  names.mamba2 = mamba2_names(at);
  names.recurrent_output = at + "out_proj";
  if (recurrent && !config.attention_beside) names.attention_output = names.recurrent_output;
  if (config.family != formats::Family::kGraniteHybrid) {
    const std::string mlp = layer + ".feed_forward.";
    names.norm2 = layer + ".pre_ff_layernorm";
    names.ffn_input = {mlp + "gate_proj", mlp + "up_proj"};
    names.ffn_output = mlp + "down_proj";
  } else {
    names.ffn_input = {layer + ".shared_mlp.input_linear"};
    names.ffn_output = layer + ".shared_mlp.output_linear";
  }
}

// Of Nemotron-H and of Mamba and Mamba 2, whose layers have one norm and one part.
LayerNames single_part_names(const std::string& number, bool recurrent) {
  const std::string layer = "backbone.layers." + number;
  const std::string at = layer + ".mixer.";
  return {.norm1 = layer + ".norm",
          .attention = {.qkv = {at + "q_proj", at + "k_proj", at + "v_proj"}},
          .mamba1 = mamba1_names(at),
          .mamba2 = mamba2_names(at),
          .attention_output = at + (recurrent ? "out_proj" : "o_proj"),
          .norm2 = layer + ".norm",
          .ffn_input = {at + "up_proj"},
          .ffn_output = at + "down_proj",
          .experts = {.router = at + "gate",
                      .choice_bias = at + "gate.e_score_correction_bias",
                      .prefix = at + "experts.",
                      .up = "up_proj",
                      .down = "down_proj",
                      .stacked_input = at + "experts.up_proj",
                      .stacked_output = at + "experts.down_proj",
                      .shared_input = {at + "shared_experts.up_proj"},
                      .shared_output = at + "shared_experts.down_proj"}};
}

bool has_single_parts(formats::Family family) {
  return family == formats::Family::kNemotronH || family == formats::Family::kMamba ||
         family == formats::Family::kFalconMamba || family == formats::Family::kMamba2;
}

// Of families that have all names of a layer to themselves.
std::optional<LayerNames> own_layer_names(const formats::ModelConfig& config,
                                          const std::string& number) {
  const formats::Family family = config.family;
  if (auto names = encoder_layer_names(config, number)) return names;
  if (auto names = early_layer_names(config, number)) return names;
  if (family == formats::Family::kExaone) {
    const std::string at = "transformer.h." + number;
    const std::string attention = at + ".attn.attention.";
    return LayerNames{
        .norm1 = at + ".ln_1",
        .attention = {.qkv = {attention + "q_proj", attention + "k_proj", attention + "v_proj"}},
        .attention_output = attention + "out_proj",
        .norm2 = at + ".ln_2",
        .ffn_input = {at + ".mlp.c_fc_0", at + ".mlp.c_fc_1"},
        .ffn_output = at + ".mlp.c_proj"};
  }
  return std::nullopt;
}

// Of LFM2, whichever a layer has of attention and a short convolution.
void set_lfm2_names(LayerNames& names, const std::string& layer, bool recurrent) {
  const std::string attention = layer + ".self_attn.";
  const std::string conv = layer + ".conv.";
  const std::string mlp = layer + ".feed_forward.";
  names.norm1 = layer + ".operator_norm";
  names.attention.q_norm = attention + "q_layernorm";
  names.attention.k_norm = attention + "k_layernorm";
  names.short_conv = {.in = conv + "in_proj", .conv = conv + "conv"};
  names.attention_output = (recurrent ? conv : attention) + "out_proj";
  names.norm2 = layer + ".ffn_norm";
  names.ffn_input = {mlp + "w1", mlp + "w3"};
  names.ffn_output = mlp + "w2";
  names.experts = {.router = mlp + "gate",
                   .choice_bias = mlp + "expert_bias",
                   .prefix = mlp + "experts.",
                   .gate = "w1",
                   .up = "w3",
                   .down = "w2",
                   .stacked_input = mlp + "experts.gate_up_proj",
                   .stacked_output = mlp + "experts.down_proj"};
}

// What LFM3 names in other ways, and has for itself.
void set_lfm3_names(LayerNames& names, const std::string& layer, bool recurrent) {
  const std::string attention = layer + ".self_attn.";
  names.attention.q_norm = attention + "q_norm";
  names.attention.k_norm = attention + "k_norm";
  names.attention.head_gates = attention + "gate_proj";
  if (!recurrent) names.attention_output = attention + "o_proj";
  names.norm1_after = layer + ".post_operator_norm";
  names.norm2_after = layer + ".post_ffn_norm";
}

// What only Gemma 4 and Gemma 3n have, and of queries, keys and values those that the layer has.
void set_gemma4_names(LayerNames& names, const formats::ModelConfig& config, const std::string& at,
                      int64_t index) {
  names.beside = {.before = at + ".pre_feedforward_layernorm_2",
                  .router = at + ".router.scale",
                  .dense_after = at + ".post_feedforward_layernorm_1",
                  .sparse_after = at + ".post_feedforward_layernorm_2"};
  names.input = {.gate = at + ".per_layer_input_gate",
                 .projection = at + ".per_layer_projection",
                 .norm = at + ".post_per_layer_input_norm"};
  names.scale = at + ".layer_scalar";
  names.altup = {.router = at + ".altup.modality_router",
                 .router_norm = at + ".altup.router_norm",
                 .prediction = at + ".altup.prediction_coefs",
                 .correction = at + ".altup.correction_coefs",
                 .output_scale = at + ".altup.correct_output_scale"};
  names.laurel = {.left = at + ".laurel.linear_left",
                  .right = at + ".laurel.linear_right",
                  .norm = at + ".laurel.post_laurel_norm"};
  if (formats::shares_keys(config, index)) {
    names.attention.qkv.resize(1);
  } else if (formats::keys_are_values(config, index)) {
    names.attention.qkv.pop_back();
  }
}

// What some families name in other ways than most.
void set_own_names(LayerNames& names, formats::Family family, const std::string& layer) {
  const std::string attention = layer + ".self_attn.";
  const std::string mlp = layer + ".mlp.";
  switch (family) {
    case formats::Family::kVaultGemma:
      names.norm2 = layer + ".pre_feedforward_layernorm";
      break;
    case formats::Family::kLlama4:
      names.ffn_input = {layer + ".feed_forward.gate_proj", layer + ".feed_forward.up_proj"};
      names.ffn_output = layer + ".feed_forward.down_proj";
      break;
    case formats::Family::kInternLm2:
      names.norm1 = layer + ".attention_norm";
      names.attention.qkv = {layer + ".attention.wqkv"};
      names.attention_output = layer + ".attention.wo";
      names.norm2 = layer + ".ffn_norm";
      names.ffn_input = {layer + ".feed_forward.w1", layer + ".feed_forward.w3"};
      names.ffn_output = layer + ".feed_forward.w2";
      break;
    case formats::Family::kStarCoder2:
      names.ffn_input = {mlp + "c_fc"};
      names.ffn_output = mlp + "c_proj";
      break;
    case formats::Family::kApertus:
      names.norm1 = layer + ".attention_layernorm";
      names.norm2 = layer + ".feedforward_layernorm";
      names.ffn_curve = mlp + "act_fn.";
      [[fallthrough]];
    case formats::Family::kArcee:
    case formats::Family::kJais2:
    case formats::Family::kNemotron:
      names.ffn_input = {mlp + "up_proj"};
      break;
    case formats::Family::kHunYuanDense:
    case formats::Family::kHunYuanMoe:
      names.attention.q_norm = attention + "query_layernorm";
      names.attention.k_norm = attention + "key_layernorm";
      break;
    case formats::Family::kPhi:
      names.attention_output = attention + "dense";
      [[fallthrough]];
    case formats::Family::kNanoChat:
      names.ffn_input = {mlp + "fc1"};
      names.ffn_output = mlp + "fc2";
      break;
    case formats::Family::kStableLm:
      names.attention.q_norm = attention + "q_layernorm.norms";
      names.attention.k_norm = attention + "k_layernorm.norms";
      break;
    case formats::Family::kGlm:
    case formats::Family::kGlm4:
      names.ffn_input = {mlp + "gate_up_proj"};
      break;
    default:
      break;
  }
}

}  // namespace

LayerNames layer_names(const formats::ModelConfig& config, int64_t index) {
  const std::string number = std::to_string(index);
  if (auto names = own_layer_names(config, number)) return *std::move(names);
  if (has_single_parts(config.family)) {
    return single_part_names(number, formats::is_recurrent(config, index));
  }
  const std::string at = "model.layers." + number;
  const std::string attention = at + ".self_attn.";
  const std::string mlp = at + ".mlp.";
  LayerNames names{
      .norm1 = at + ".input_layernorm",
      .attention = {.qkv = {attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                    .q_norm = attention + "q_norm",
                    .k_norm = attention + "k_norm",
                    .head_norms_stacked = config.family == formats::Family::kCohere,
                    .sinks = attention + "sinks"},
      .latent = latent_names(attention),
      .attention_output = attention + "o_proj",
      .norm2 = at + ".post_attention_layernorm",
      .ffn_input = {mlp + "gate_proj", mlp + "up_proj"},
      .ffn_output = mlp + "down_proj",
      .experts = expert_names(config.family, at)};
  const bool gemma3n = config.family == formats::Family::kGemma3n;
  if (gemma3n || config.family == formats::Family::kGemma4) {
    set_gemma4_names(names, config, at, index);
  }
  set_own_names(names, config.family, at);
  if (config.family == formats::Family::kGlm4) {
    names.norm1_after = at + ".post_self_attn_layernorm";
    names.norm2_after = at + ".post_mlp_layernorm";
  } else if (config.family == formats::Family::kHyperClovaX) {
    names.norm1_after = at + ".post_norm1";
    names.norm2_after = at + ".post_norm2";
  } else if (formats::norm_place(config, index) != formats::NormPlace::kBefore) {
    names.norm1_after = at + ".post_attention_layernorm";
    names.norm2 = at + ".pre_feedforward_layernorm";
    names.norm2_after = at + ".post_feedforward_layernorm";
  }
  if (config.fused_projections) {
    names.attention.qkv = {attention + "qkv_proj"};
    names.ffn_input = {mlp + "gate_up_proj"};
  }
  const bool recurrent = formats::is_recurrent(config, index);
  if (config.short_conv.kernel > 0) {
    set_lfm2_names(names, at, recurrent);
    if (config.family == formats::Family::kLfm3) set_lfm3_names(names, at, recurrent);
  } else if (config.family == formats::Family::kJamba) {
    set_jamba_names(names, at, recurrent);
  } else if (config.mamba2.heads > 0) {
    set_mamba2_names(names, config, at, recurrent);
  } else if (config.delta.by_key) {
    set_kimi_names(names, at);
  } else if (recurrent) {
    set_recurrent_names(names, config.family, at);
  }
  return names;
}

}  // namespace jige::model

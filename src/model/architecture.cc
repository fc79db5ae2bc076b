#include "model/architecture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "formats/image_model_names.h"
#include "model/rope_table.h"

namespace jige::model {
namespace {

// What the tensors of a base class have in front of their names as part of a language model.
constexpr std::string_view kBasePrefixes[] = {"transformer.", "model.", "gpt_neox.", "backbone."};
constexpr std::string_view kMixtralMlp = ".block_sparse_moe.";
constexpr std::string_view kNeoXHead = "embed_out.";

struct ModelNames {
  std::string table;
  std::string positions;
  std::string final_norm;
  std::string head;  // where it is not the table
};

ModelNames model_names(const formats::ModelConfig& config) {
  switch (config.family) {
    case formats::Family::kGpt2:
      return {"transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"};
    case formats::Family::kGptNeoX:
      return {"gpt_neox.embed_in", "", "gpt_neox.final_layer_norm", "embed_out"};
    case formats::Family::kPhi:
      return {"model.embed_tokens", "", "model.final_layernorm", "lm_head"};
    case formats::Family::kLfm2:
    case formats::Family::kLfm2Moe:
      return {"model.embed_tokens", "", "model.embedding_norm", "lm_head"};
    case formats::Family::kNemotronH:
      return {"backbone.embeddings", "", "backbone.norm_f", "lm_head"};
    case formats::Family::kBamba:
      return {"model.embed_tokens", "", "model.final_layernorm", "lm_head"};
    default:
      return {"model.embed_tokens", "", "model.norm", "lm_head"};
  }
}

LayerInputsNames layer_inputs_names() {
  return {.table = "model.embed_tokens_per_layer",
          .projection = "model.per_layer_model_projection",
          .norm = "model.per_layer_projection_norm"};
}

ExpertNames expert_names(formats::Family family, const std::string& layer) {
  const std::string at = layer + ".mlp.";
  const std::string stacked = at + "experts.";
  if (family == formats::Family::kMixtral || family == formats::Family::kMiniMaxM2) {
    const std::string own = layer + ".block_sparse_moe.";
    return {.router = own + "gate",
            .choice_bias = own + "e_score_correction_bias",
            .prefix = own + "experts.",
            .gate = "w1",
            .up = "w3",
            .down = "w2",
            .stacked_input = stacked + "gate_up_proj",
            .stacked_output = stacked + "down_proj"};
  }
  if (family == formats::Family::kGraniteHybrid || family == formats::Family::kGraniteMoe ||
      family == formats::Family::kGraniteMoeShared) {
    const std::string own = layer + ".block_sparse_moe.";
    const std::string shared = layer + ".shared_mlp.";
    return {.router = own + "router.layer",
            .prefix = own + "experts.",
            .gate = "gate_proj",
            .up = "up_proj",
            .down = "down_proj",
            .stacked_input = own + "input_linear.weight",
            .stacked_output = own + "output_linear.weight",
            .stacked_usual = true,
            .shared_input = {shared + "input_linear"},
            .shared_output = shared + "output_linear"};
  }
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
  const std::string shared = at + (qwen ? "shared_expert." : "shared_experts.");
  return {.router = at + (family == formats::Family::kGptOss ? "router" : "gate"),
          .choice_bias = at + (ernie ? "moe_statics" : "gate") + ".e_score_correction_bias",
          .choice_bias_as_row = ernie,
          .prefix = at + "experts.",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj",
          .stacked_input = stacked + "gate_up_proj",
          .stacked_output = stacked + "down_proj",
          .stacked_usual = family == formats::Family::kGptOss,
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
  names.delta = {.qkv = at + "in_proj_qkv",
                 .gate = at + "in_proj_z",
                 .rate = at + "in_proj_b",
                 .decay = at + "in_proj_a",
                 .conv = at + "conv1d",
                 .log_scale = at + "A_log",
                 .decay_bias = at + "dt_bias",
                 .norm = at + "norm"};
  if (family == formats::Family::kQwen3Next) {
    names.delta.qkv = at + "in_proj_qkvz";
    names.delta.rate = at + "in_proj_ba";
    names.delta.gate = names.delta.decay = "";
  }
  names.attention_output = at + "out_proj";
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

// Of families whose recurrent layers are those of Mamba 2.
void set_mamba2_names(LayerNames& names, formats::Family family, const std::string& layer,
                      bool recurrent) {
  const std::string at = layer + ".mamba.";
  names.mamba2 = mamba2_names(at);
  if (recurrent) names.attention_output = at + "out_proj";
  if (family == formats::Family::kBamba) {
    const std::string mlp = layer + ".feed_forward.";
    names.norm2 = layer + ".pre_ff_layernorm";
    names.ffn_input = {mlp + "gate_proj", mlp + "up_proj"};
    names.ffn_output = mlp + "down_proj";
  } else {
    names.ffn_input = {layer + ".shared_mlp.input_linear"};
    names.ffn_output = layer + ".shared_mlp.output_linear";
  }
}

// Of Nemotron-H, whose layers have one norm and one part.
LayerNames nemotron_h_names(const std::string& number, bool recurrent) {
  const std::string layer = "backbone.layers." + number;
  const std::string at = layer + ".mixer.";
  return {.norm1 = layer + ".norm",
          .attention = {.qkv = {at + "q_proj", at + "k_proj", at + "v_proj"}},
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

// Of families that have all names of a layer to themselves.
std::optional<LayerNames> own_layer_names(formats::Family family, const std::string& number) {
  if (family == formats::Family::kGpt2) {
    const std::string at = "transformer.h." + number;
    return LayerNames{.norm1 = at + ".ln_1",
                      .attention = {.qkv = {at + ".attn.c_attn"}},
                      .attention_output = at + ".attn.c_proj",
                      .norm2 = at + ".ln_2",
                      .ffn_input = {at + ".mlp.c_fc"},
                      .ffn_output = at + ".mlp.c_proj"};
  }
  if (family == formats::Family::kGptNeoX) {
    const std::string at = "gpt_neox.layers." + number;
    return LayerNames{.norm1 = at + ".input_layernorm",
                      .attention = {.qkv = {at + ".attention.query_key_value"}},
                      .attention_output = at + ".attention.dense",
                      .norm2 = at + ".post_attention_layernorm",
                      .ffn_input = {at + ".mlp.dense_h_to_4h"},
                      .ffn_output = at + ".mlp.dense_4h_to_h"};
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

// What only Gemma 4 has, and of queries, keys and values those that the layer has.
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
    case formats::Family::kNemotron:
      names.ffn_input = {mlp + "up_proj"};
      break;
    case formats::Family::kHunYuanDense:
      names.attention.q_norm = attention + "query_layernorm";
      names.attention.k_norm = attention + "key_layernorm";
      break;
    case formats::Family::kPhi:
      names.attention_output = attention + "dense";
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

LayerNames layer_names(const formats::ModelConfig& config, int64_t index) {
  const std::string number = std::to_string(index);
  if (auto names = own_layer_names(config.family, number)) return *std::move(names);
  if (config.family == formats::Family::kNemotronH) {
    return nemotron_h_names(number, formats::is_recurrent(config, index));
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
  if (config.family == formats::Family::kGemma4) set_gemma4_names(names, config, at, index);
  set_own_names(names, config.family, at);
  if (config.family == formats::Family::kGlm4) {
    names.norm1_after = at + ".post_self_attn_layernorm";
    names.norm2_after = at + ".post_mlp_layernorm";
  } else if (config.norm_place != formats::NormPlace::kBefore) {
    names.norm1_after = at + ".post_attention_layernorm";
    names.norm2 = at + ".pre_feedforward_layernorm";
    names.norm2_after = at + ".post_feedforward_layernorm";
  }
  if (config.fused_projections) {
    names.attention.qkv = {attention + "qkv_proj"};
    names.ffn_input = {mlp + "gate_up_proj"};
  }
  const bool recurrent = formats::is_recurrent(config, index);
  if (config.family == formats::Family::kLfm2 || config.family == formats::Family::kLfm2Moe) {
    set_lfm2_names(names, at, recurrent);
  } else if (config.mamba2.heads > 0) {
    set_mamba2_names(names, config.family, at, recurrent);
  } else if (recurrent) {
    set_recurrent_names(names, config.family, at);
  }
  return names;
}

std::vector<std::string> attention_modules(const formats::ModelConfig& config,
                                           const LayerNames& names, int64_t layer) {
  const bool recurrent = formats::is_recurrent(config, layer);
  if (recurrent && config.short_conv.kernel > 0) return {names.short_conv.in};
  if (recurrent && config.mamba2.heads > 0) return {names.mamba2.in};
  if (recurrent) {
    if (names.delta.gate.empty()) return {names.delta.qkv, names.delta.rate};
    return {names.delta.qkv, names.delta.gate, names.delta.rate, names.delta.decay};
  }
  if (config.latent.rank == 0) return names.attention.qkv;
  const LatentAttentionNames& latent = names.latent;
  if (config.latent.query_rank == 0) return {latent.query, latent.down, latent.up};
  return {latent.query_down, latent.query_up, latent.down, latent.up};
}

// Of the linear layers that adapters may be added to, in all kinds of layers.
std::vector<std::string> linear_names(const formats::ModelConfig& config) {
  std::vector<std::string> all;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const LayerNames names = layer_names(config, layer);
    if (formats::has_attention_part(config, layer)) {
      const std::vector<std::string> attention = attention_modules(config, names, layer);
      all.insert(all.end(), attention.begin(), attention.end());
      all.push_back(names.attention_output);
    }
    if (config.experts.count > 0 || !formats::has_feed_forward(config, layer)) continue;
    all.insert(all.end(), names.ffn_input.begin(), names.ffn_input.end());
    all.push_back(names.ffn_output);
  }
  return all;
}

// Of the heads that attention meets, in training or in a cache.
Status check_head_width(const formats::ModelConfig& config) {
  int64_t width = config.head_dim;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    width = std::max(width, cache_shape(config, layer).head_dim);
  }
  if (width <= ops::kAttentionDimMax) return {};
  return fail(Code::kUnsupported,
              "config.json: {} makes heads of {} columns, which are not supported; attention "
              "takes up to {}",
              config.latent.rank > 0 ? "kv_lora_rank with qk_rope_head_dim" : "head_dim", width,
              ops::kAttentionDimMax);
}

Status check_lora(const formats::ModelConfig& config, const formats::LoraConfig& lora) {
  if (lora.rank < 1 || lora.rank > formats::kLoraRankMax) {
    return fail(Code::kInvalidArgument, "LoRA rank {} is not in 1..{}", lora.rank,
                formats::kLoraRankMax);
  }
  const std::vector<std::string> linears = linear_names(config);
  for (const std::string& target : lora.target_modules) {
    const bool found = std::any_of(linears.begin(), linears.end(), [&](const std::string& linear) {
      return linear.ends_with("." + target);
    });
    if (!found) {
      return fail(Code::kInvalidArgument,
                  "LoRA target \"{}\" is no linear layer of a {} model; known are {}", target,
                  formats::family_name(config.family),
                  fmt::join(formats::lora_linear_modules(config), ", "));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<const Architecture>> Architecture::create(
    const formats::ModelConfig& config, const std::optional<formats::LoraConfig>& lora,
    HeadKind head, DeviceKind device) {
  JIGE_DO(formats::check_model_config(config, "model configuration"));
  JIGE_DO(check_head_width(config));
  if (lora) JIGE_DO(check_lora(config, *lora));
  return std::unique_ptr<const Architecture>(new Architecture(config, lora, head, device));
}

Architecture::Architecture(const formats::ModelConfig& config,
                           const std::optional<formats::LoraConfig>& lora, HeadKind head,
                           DeviceKind device)
    : config_(config), lora_(lora), device_(device) {
  ModelNames names = model_names(config);
  own_head_name_ = names.head;
  if (config.tied_embeddings) names.head = names.table;
  if (head == HeadKind::kNormAlone) names.head.clear();
  const EmbeddingOptions table{.table_name = names.table,
                               .positions_name = names.positions,
                               .vocab_size = config.vocab_size,
                               .width = config.hidden_size,
                               .position_count = config.context_max,
                               .scale = config.embedding_scale,
                               .device = device};
  embedding_ = config.layer_inputs.size > 0
                   ? std::make_unique<Embedding>(table, config, layer_inputs_names())
                   : std::make_unique<Embedding>(table);
  for (int64_t i = 0; i < config.layer_count; ++i) {
    layers_.push_back(std::make_unique<TransformerLayer>(
        config, LayerOptions{.index = i,
                             .names = layer_names(config, i),
                             .transposed = config.family == formats::Family::kGpt2,
                             .lora = lora,
                             .device = device}));
  }
  head_ = std::make_unique<Head>(config, names.final_norm, names.head, device);
  const auto append = [this](const Block& block) {
    const auto index = static_cast<int32_t>(graph_.nodes.size());
    graph_.nodes.push_back({.block = &block});
    if (index > 0) graph_.nodes.back().inputs = {index - 1};
  };
  append(*embedding_);
  for (const auto& layer : layers_) append(*layer);
  append(*head_);
}

int64_t Architecture::rope_columns() const { return model::rope_columns(config_); }

std::string Architecture::base_name(const std::string& name) {
  for (const std::string_view prefix : kBasePrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

std::vector<std::string> Architecture::stored_names(const ParamSpec& spec) {
  std::vector<std::string> names{spec.name};
  if (spec.adapter) return names;
  // transformers 5 names Mixtral's router as that of other families where it stacks the experts.
  if (const size_t at = spec.name.find(kMixtralMlp); at != std::string::npos) {
    std::string renamed = spec.name;
    names.push_back(renamed.replace(at, kMixtralMlp.size(), ".mlp."));
  }
  // And GPT-NeoX's head as that of other families where it keeps the names it has in memory.
  if (spec.name.starts_with(kNeoXHead)) {
    names.push_back("lm_head." + spec.name.substr(kNeoXHead.size()));
  }
  std::vector<std::string> all;
  for (const std::string& name : names) {
    for (std::string& one : names_in_files(name)) all.push_back(std::move(one));
  }
  return all;
}

std::vector<std::string> Architecture::names_in_files(const std::string& name) {
  std::vector<std::string> names{name};
  for (std::string& beside : formats::names_beside_images(name)) {
    names.push_back(std::move(beside));
  }
  for (size_t i = 0, count = names.size(); i < count; ++i) {
    std::string base = base_name(names[i]);
    if (base != names[i]) names.push_back(std::move(base));
  }
  return names;
}

double Architecture::forward_flops(double token_count, double context_mean) const {
  double flops = 0;
  for (const auto& at : graph_.nodes) flops += at.block->forward_flops(token_count, context_mean);
  return flops;
}

}  // namespace jige::model

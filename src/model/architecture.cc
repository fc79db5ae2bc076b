#include "model/architecture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "formats/image_model_names.h"
#include "model/layer_names.h"
#include "model/rope_table.h"

namespace jige::model {
namespace {

// What the tensors of a base class have in front of their names as part of a language model.
constexpr std::string_view kBasePrefixes[] = {
    "transformer.", "model.", "gpt_neox.",   "backbone.", "bert.", "roberta.",
    "distilbert.",  "mpnet.", "nomic_bert.", "deberta.",  "new."};
// Names of modules in some files, and in others.
struct OtherName {
  std::string_view name;
  std::string_view other;
};
constexpr OtherName kOtherNames[] = {
    // transformers 5 names Mixtral's router as that of other families where it stacks the experts.
    {".block_sparse_moe.", ".mlp."},
    // Norms of OLMo Hybrid, published and as transformers has them in memory; it may write those of
    // attention layers by the published names of others.
    {".attention_layer_norm.", ".input_layernorm."},
    {".feedforward_layer_norm.", ".post_attention_layernorm."},
    {".post_attention_layernorm.", ".feedforward_layer_norm."},
    // transformers writes MLPs of Kimi Linear beside its experts.
    {".mlp.gate_proj.", ".block_sparse_moe.gate_proj."},
    {".mlp.up_proj.", ".block_sparse_moe.up_proj."},
    {".mlp.down_proj.", ".block_sparse_moe.down_proj."},
    // The gates of LFM3's heads, as files have them and as transformers does in memory.
    {".self_attn.gate_proj.", ".self_attn.g_proj."},
    // Classes with a head, as published.
    {"nomic_bert.", "bert."},
    // Towers of SigLIP since transformers 5.
    {"vision_tower.vision_model.", "vision_tower."},
    // Norms of BERT in files of early days.
    {".LayerNorm.weight", ".LayerNorm.gamma"},
    {".LayerNorm.bias", ".LayerNorm.beta"},
};
constexpr std::string_view kNeoXHead = "embed_out.";

struct ModelNames {
  std::string table;
  std::string positions;
  std::string final_norm;
  std::string head;  // where it is not the table
  std::string types = {};
  std::string embedding_norm = {};
};

// Of encoders as BERT is, which end with the last layer's norm.
ModelNames encoder_names_of(const formats::ModelConfig& config, const std::string& prefix) {
  const std::string at = prefix + ".embeddings.";
  return {.table = at + "word_embeddings",
          .positions =
              config.position == formats::PositionKind::kLearned ? at + "position_embeddings" : "",
          .final_norm = "",
          .head = "",
          .types = config.token_types > 0 ? at + "token_type_embeddings" : "",
          .embedding_norm = at + "LayerNorm"};
}

ModelNames model_names(const formats::ModelConfig& config) {
  switch (config.family) {
    case formats::Family::kGpt2:
    case formats::Family::kGptBigCode:
    case formats::Family::kGptNeo:
      return {"transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"};
    case formats::Family::kOpt:
      return {"model.decoder.embed_tokens", "model.decoder.embed_positions",
              "model.decoder.final_layer_norm", "lm_head"};
    case formats::Family::kFalcon:
      return {"transformer.word_embeddings", "", "transformer.ln_f", "lm_head"};
    case formats::Family::kBert:
      return encoder_names_of(config, "bert");
    case formats::Family::kRoberta:
    case formats::Family::kXlmRoberta:
      return encoder_names_of(config, "roberta");
    case formats::Family::kMpNet:
      return encoder_names_of(config, "mpnet");
    case formats::Family::kDebertaV2:
      return encoder_names_of(config, "deberta");
    case formats::Family::kGte:
      return encoder_names_of(config, "new");
    case formats::Family::kDistilBert:
      return encoder_names_of(config, "distilbert");
    case formats::Family::kNomicBert:
      return {.table = "nomic_bert.embeddings.word_embeddings",
              .positions = "",
              .final_norm = "",
              .head = "",
              .types = "nomic_bert.embeddings.token_type_embeddings",
              .embedding_norm = "nomic_bert.emb_ln"};
    case formats::Family::kModernBert:
      return {.table = "model.embeddings.tok_embeddings",
              .positions = "",
              .final_norm = "model.final_norm",
              .head = "",
              .embedding_norm = "model.embeddings.norm"};
    case formats::Family::kGptJ:
    case formats::Family::kExaone:
      return {"transformer.wte", "", "transformer.ln_f", "lm_head"};
    case formats::Family::kGptNeoX:
      return {"gpt_neox.embed_in", "", "gpt_neox.final_layer_norm", "embed_out"};
    case formats::Family::kPhi:
      return {"model.embed_tokens", "", "model.final_layernorm", "lm_head"};
    case formats::Family::kInternLm2:
      return {"model.tok_embeddings", "", "model.norm", "output"};
    case formats::Family::kLfm2:
    case formats::Family::kLfm2Moe:
    case formats::Family::kLfm3:
      return {"model.embed_tokens", "", "model.embedding_norm", "lm_head"};
    case formats::Family::kNemotronH:
    case formats::Family::kMamba:
    case formats::Family::kFalconMamba:
    case formats::Family::kMamba2:
      return {"backbone.embeddings", "", "backbone.norm_f", "lm_head"};
    case formats::Family::kBamba:
    case formats::Family::kJamba:
    case formats::Family::kFalconH1:
      return {"model.embed_tokens", "", "model.final_layernorm", "lm_head"};
    default:
      return {"model.embed_tokens", "", "model.norm", "lm_head"};
  }
}

LayerInputsNames layer_inputs_names() {
  return {.table = "model.embed_tokens_per_layer",
          .projection = "model.per_layer_model_projection",
          .norm = "model.per_layer_projection_norm",
          .streams = "model.altup_projections"};
}

std::vector<std::string> recurrent_modules(const formats::ModelConfig& config,
                                           const LayerNames& names) {
  if (config.short_conv.kernel > 0) return {names.short_conv.in};
  if (config.mamba1.columns > 0) return {names.mamba1.in, names.mamba1.parts};
  if (config.mamba2.heads > 0) return {names.mamba2.in};
  if (config.delta.by_key) {
    const KimiDeltaNames& kimi = names.kimi_delta;
    std::vector<std::string> modules = kimi.qkv;
    modules.insert(modules.end(), {kimi.rate, kimi.gate_down, kimi.gate_up});
    return modules;
  }
  std::vector<std::string> modules = names.delta.qkv;
  modules.push_back(names.delta.rate);
  if (!names.delta.gate.empty()) {
    modules.insert(modules.end(), {names.delta.gate, names.delta.decay});
  }
  return modules;
}

std::vector<std::string> attention_modules(const formats::ModelConfig& config,
                                           const LayerNames& names) {
  if (config.latent.rank == 0) return names.attention.qkv;
  const LatentAttentionNames& latent = names.latent;
  if (config.latent.query_rank == 0) return {latent.query, latent.down, latent.up};
  return {latent.query_down, latent.query_up, latent.down, latent.up};
}

// Of the linear layers that adapters may be added to, in all kinds of layers.
std::vector<std::string> linear_names(const formats::ModelConfig& config) {
  std::vector<std::string> all;
  const auto add = [&](const std::vector<std::string>& modules) {
    all.insert(all.end(), modules.begin(), modules.end());
  };
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    const LayerNames names = layer_names(config, layer);
    if (formats::has_attention(config, layer)) {
      add(attention_modules(config, names));
      add({names.attention_output});
    }
    if (formats::is_recurrent(config, layer)) {
      add(recurrent_modules(config, names));
      if (formats::adapts_recurrent_output(config.family)) {
        add({config.attention_beside ? names.recurrent_output : names.attention_output});
      }
    }
    if (config.experts.count > 0 || !formats::has_feed_forward(config, layer)) continue;
    add(names.ffn_input);
    add({names.ffn_output});
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

Status check_looks_back(const formats::ModelConfig& config) {
  if (!config.looks_ahead) return {};
  return fail(Code::kUnsupported,
              "config.json: tokens of this {} model see those behind them, so it makes vectors of "
              "texts (jige embed; jige serve with --embeddings) and can neither answer, score nor "
              "be trained",
              formats::family_name(config.family));
}

Status check_lora(const formats::ModelConfig& config, const formats::LoraConfig& lora) {
  JIGE_DO(check_adapts(config));
  if (lora.rank < 1 || lora.rank > formats::kLoraRankMax) {
    return fail(Code::kInvalidArgument, "--lora-rank is {}; it must be in 1..{}", lora.rank,
                formats::kLoraRankMax);
  }
  const std::vector<std::string> linears = linear_names(config);
  for (const std::string& target : lora.target_modules) {
    const bool found = std::any_of(linears.begin(), linears.end(), [&](const std::string& linear) {
      return linear.ends_with("." + target);
    });
    if (!found) {
      return fail(Code::kInvalidArgument,
                  "--lora-target: \"{}\" is no linear layer of a {} model; known are {}", target,
                  formats::family_name(config.family),
                  fmt::join(formats::lora_linear_modules(config), ", "));
    }
  }
  return {};
}

}  // namespace

Status check_adapts(const formats::ModelConfig& config) {
  if (config.distance_rows.side == 0) return {};
  return fail(Code::kUnsupported,
              "config.json: a {} model runs without adapters, as its rows by distance would need "
              "each adapter's own; merge the adapter into the model",
              formats::family_name(config.family));
}

Result<std::unique_ptr<const Architecture>> Architecture::create(
    const formats::ModelConfig& config, const std::optional<formats::LoraConfig>& lora,
    HeadKind head, DeviceKind device) {
  JIGE_DO(formats::check_model_config(config, "model configuration"));
  JIGE_DO(check_head_width(config));
  if (head == HeadKind::kLanguageModel) JIGE_DO(check_looks_back(config));
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
                               .types_name = names.types,
                               .vocab_size = config.vocab_size,
                               .width = config.hidden_size,
                               .position_count = config.context_max,
                               .position_offset = config.position_offset,
                               .type_count = config.token_types,
                               .scale = config.embedding_scale,
                               .norm_of = config.embedding_norm ? &config : nullptr,
                               .norm_name = names.embedding_norm,
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
  head_ = std::make_unique<Head>(config, names.final_norm, names.head,
                                 "model.altup_unembed_projections", device);
  const auto append = [this](const Block& block) {
    const auto index = static_cast<int32_t>(graph_.nodes.size());
    graph_.nodes.push_back({.block = &block});
    if (index > 0) graph_.nodes.back().inputs = {index - 1};
  };
  append(*embedding_);
  for (const auto& layer : layers_) append(*layer);
  append(*head_);
}

int64_t Architecture::adapter_rank_useful() const {
  int64_t most = 0;
  for (const auto& at : graph_.nodes) {
    int64_t inputs = 0;
    for (const ParamSpec& param : at.block->params()) {
      if (!param.adapter) continue;
      // A is [r, K], and B [N, r] follows it.
      if (inputs > 0) most = std::max(most, std::min(inputs, param.shape[0]));
      inputs = inputs > 0 ? 0 : param.shape[1];
    }
  }
  return most;
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
  for (const OtherName& one : kOtherNames) {
    const size_t at = spec.name.find(one.name);
    if (at == std::string::npos) continue;
    std::string renamed = spec.name;
    names.push_back(renamed.replace(at, one.name.size(), one.other));
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

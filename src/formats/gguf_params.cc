#include "formats/gguf_params.h"

#include <fmt/format.h>

#include <utility>

namespace jige::formats {
namespace {

struct GgufArchitecture {
  std::string_view name;
  Family family;
  GgufLayout layout;
};

// Those of the second group compute what Llama does, under other names.
constexpr GgufArchitecture kGgufArchitectures[] = {
    {"llama", Family::kLlama, GgufLayout::kPaired},
    {"qwen2", Family::kQwen2, GgufLayout::kPlain},
    {"qwen3", Family::kQwen3, GgufLayout::kPlain},
    {"gpt2", Family::kGpt2, GgufLayout::kPlain},
    {"gemma2", Family::kGemma2, GgufLayout::kPlain},
    {"gemma3", Family::kGemma3, GgufLayout::kPlain},
    {"granite", Family::kGranite, GgufLayout::kPaired},
    {"olmo2", Family::kOlmo2, GgufLayout::kPlain},
    {"smollm3", Family::kSmolLm3, GgufLayout::kPaired},
    {"starcoder2", Family::kStarCoder2, GgufLayout::kPlain},
    {"stablelm", Family::kStableLm, GgufLayout::kPlain},
    {"seed_oss", Family::kSeedOss, GgufLayout::kPlain},
    {"qwen2moe", Family::kQwen2Moe, GgufLayout::kPlain},
    {"qwen3moe", Family::kQwen3Moe, GgufLayout::kPlain},
    {"olmoe", Family::kOlmoe, GgufLayout::kPlain},
    {"mistral3", Family::kMinistral3, GgufLayout::kPaired},
    {"arcee", Family::kArcee, GgufLayout::kPaired},
    {"nemotron", Family::kNemotron, GgufLayout::kPlain},

    {"ernie4_5", Family::kLlama, GgufLayout::kPaired},
    {"exaone", Family::kLlama, GgufLayout::kPlain},
    {"internlm2", Family::kLlama, GgufLayout::kPaired},
    {"phi3", Family::kLlama, GgufLayout::kFused},
    {"xverse", Family::kLlama, GgufLayout::kPaired},
};

// The parameters of a model, in the order of its layers.
class GgufParamList {
 public:
  GgufParamList(const ModelConfig& config, GgufLayout layout) : c_(config), layout_(layout) {}

  std::vector<GgufParam> make() {
    c_.family == Family::kGpt2 ? add_gpt2() : add_gated_family();
    return std::move(params_);
  }

 private:
  void add(std::string stored, std::string name, Shape shape, RowOrder order = RowOrder::kSame,
           int64_t heads = 1) {
    params_.push_back({std::move(stored), std::move(name), shape, order, heads});
  }

  void add_head(std::string name) {
    if (!c_.tied_embeddings) add("output.weight", std::move(name), {c_.vocab_size, c_.hidden_size});
  }

  // Weight and, if there is one, bias of a linear.
  void add_linear(const std::string& stored, const std::string& name, int64_t out, int64_t in,
                  bool bias, int64_t paired_heads = 0) {
    const RowOrder order = paired_heads > 0 ? RowOrder::kPairedHeads : RowOrder::kSame;
    add(stored + ".weight", name + ".weight", {out, in}, order, paired_heads);
    if (bias) add(stored + ".bias", name + ".bias", {out}, order, paired_heads);
  }

  void add_gated_family() {
    add("token_embd.weight", "model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size});
    for (int64_t i = 0; i < c_.layer_count; ++i) add_gated_layer(i);
    add_norm("output_norm", "model.norm", c_.hidden_size);
    add_head("lm_head.weight");
  }

  void add_norm(const std::string& stored, const std::string& name, int64_t columns) {
    add(stored + ".weight", name + ".weight", {columns});
    params_.back().adds_one = c_.norm_adds_one;
    if (c_.norm == NormKind::kLayer) add(stored + ".bias", name + ".bias", {columns});
  }

  void add_gated_layer(int64_t layer) {
    const std::string from = fmt::format("blk.{}.", layer);
    const std::string to = fmt::format("model.layers.{}.", layer);
    const bool paired = layout_ == GgufLayout::kPaired;
    const int64_t query = c_.head_count * c_.head_dim;
    const int64_t kv = c_.kv_head_count * c_.head_dim;
    const int64_t width = c_.hidden_size;
    const bool before = c_.norm_place != NormPlace::kAfter;
    const bool after = c_.norm_place != NormPlace::kBefore;
    if (before) add_norm(from + "attn_norm", to + "input_layernorm", width);
    if (layout_ == GgufLayout::kFused) return add_fused_layer(from, to);
    add_linear(from + "attn_q", to + "self_attn.q_proj", query, width, c_.qkv_bias,
               paired ? c_.head_count : 0);
    add_linear(from + "attn_k", to + "self_attn.k_proj", kv, width, c_.qkv_bias,
               paired ? c_.kv_head_count : 0);
    add_linear(from + "attn_v", to + "self_attn.v_proj", kv, width, c_.qkv_bias);
    add_linear(from + "attn_output", to + "self_attn.o_proj", width, query, c_.output_bias);
    if (c_.qk_norm || c_.qk_norm_whole) {
      const bool whole = c_.qk_norm_whole;
      add_norm(from + "attn_q_norm", to + "self_attn.q_norm", whole ? query : c_.head_dim);
      add_norm(from + "attn_k_norm", to + "self_attn.k_norm", whole ? kv : c_.head_dim);
    }
    if (after) add_norm(from + "post_attention_norm", to + "post_attention_layernorm", width);
    const char* second = after ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    const char* before_mlp = c_.family == Family::kSeedOss ? "post_attention_norm" : "ffn_norm";
    if (before) add_norm(from + before_mlp, to + second, width);
    if (c_.experts.count > 0) {
      add_experts(from, to);
    } else {
      add_mlp(from, to);
    }
    if (after) add_norm(from + "post_ffw_norm", to + "post_feedforward_layernorm", width);
  }

  void add_mlp(const std::string& from, const std::string& to) {
    const int64_t width = c_.hidden_size;
    if (!has_gate(c_.activation)) {
      const bool star = c_.family == Family::kStarCoder2;
      add_linear(from + "ffn_up", to + (star ? "mlp.c_fc" : "mlp.up_proj"), c_.ffn_size, width,
                 c_.mlp_bias);
      add_linear(from + "ffn_down", to + (star ? "mlp.c_proj" : "mlp.down_proj"), width,
                 c_.ffn_size, c_.mlp_bias);
      return;
    }
    add_linear(from + "ffn_gate", to + "mlp.gate_proj", c_.ffn_size, width, c_.mlp_bias);
    add_linear(from + "ffn_up", to + "mlp.up_proj", c_.ffn_size, width, c_.mlp_bias);
    add_linear(from + "ffn_down", to + "mlp.down_proj", width, c_.ffn_size, c_.mlp_bias);
  }

  void add_experts(const std::string& from, const std::string& to) {
    const ExpertConfig& experts = c_.experts;
    const bool mixtral = c_.family == Family::kMixtral;
    const std::string at = to + (mixtral ? "block_sparse_moe." : "mlp.");
    add(from + "ffn_gate_inp.weight", at + "gate.weight", {experts.count, c_.hidden_size});
    const auto add_stack = [&](const char* stored, const char* name, int64_t out, int64_t in) {
      for (int64_t expert = 0; expert < experts.count; ++expert) {
        add(from + stored + ".weight", fmt::format("{}experts.{}.{}.weight", at, expert, name),
            {out, in});
        params_.back().first_row = expert * out;
        params_.back().stored_matrices = experts.count;
      }
    };
    add_stack("ffn_gate_exps", mixtral ? "w1" : "gate_proj", experts.ffn_size, c_.hidden_size);
    add_stack("ffn_up_exps", mixtral ? "w3" : "up_proj", experts.ffn_size, c_.hidden_size);
    add_stack("ffn_down_exps", mixtral ? "w2" : "down_proj", c_.hidden_size, experts.ffn_size);
    if (experts.shared_ffn_size > 0) add_shared_expert(from, at);
  }

  void add_shared_expert(const std::string& from, const std::string& at) {
    const int64_t ffn = c_.experts.shared_ffn_size;
    const int64_t width = c_.hidden_size;
    add(from + "ffn_gate_inp_shexp.weight", at + "shared_expert_gate.weight", {1, width});
    params_.back().flat = true;
    add_linear(from + "ffn_gate_shexp", at + "shared_expert.gate_proj", ffn, width, false);
    add_linear(from + "ffn_up_shexp", at + "shared_expert.up_proj", ffn, width, false);
    add_linear(from + "ffn_down_shexp", at + "shared_expert.down_proj", width, ffn, false);
  }

  // What follows the first norm.
  void add_fused_layer(const std::string& from, const std::string& to) {
    const int64_t width = c_.hidden_size;
    const int64_t query = c_.head_count * c_.head_dim;
    const int64_t kv = c_.kv_head_count * c_.head_dim;
    const auto add_part = [&](const char* stored, const char* name, int64_t first, int64_t rows,
                              int64_t all) {
      add(from + stored + ".weight", to + name + ".weight", {rows, width});
      params_.back().first_row = first;
      params_.back().stored_rows = all;
    };
    add_part("attn_qkv", "self_attn.q_proj", 0, query, query + 2 * kv);
    add_part("attn_qkv", "self_attn.k_proj", query, kv, query + 2 * kv);
    add_part("attn_qkv", "self_attn.v_proj", query + kv, kv, query + 2 * kv);
    add_linear(from + "attn_output", to + "self_attn.o_proj", width, query, false);
    add(from + "ffn_norm.weight", to + "post_attention_layernorm.weight", {width});
    add_part("ffn_up", "mlp.gate_proj", 0, c_.ffn_size, 2 * c_.ffn_size);
    add_part("ffn_up", "mlp.up_proj", c_.ffn_size, c_.ffn_size, 2 * c_.ffn_size);
    add_linear(from + "ffn_down", to + "mlp.down_proj", width, c_.ffn_size, false);
  }

  void add_turned(const std::string& stored, const std::string& name, int64_t in, int64_t out) {
    add(stored + ".weight", name + ".weight", {in, out}, RowOrder::kTransposed);
    add(stored + ".bias", name + ".bias", {out});
  }

  void add_gpt2() {
    const int64_t width = c_.hidden_size;
    add("token_embd.weight", "transformer.wte.weight", {c_.vocab_size, width});
    add("position_embd.weight", "transformer.wpe.weight", {c_.context_max, width});
    for (int64_t i = 0; i < c_.layer_count; ++i) {
      const std::string from = fmt::format("blk.{}.", i);
      const std::string to = fmt::format("transformer.h.{}.", i);
      add_norm(from + "attn_norm", to + "ln_1", width);
      add_turned(from + "attn_qkv", to + "attn.c_attn", width, 3 * width);
      add_turned(from + "attn_output", to + "attn.c_proj", width, width);
      add_norm(from + "ffn_norm", to + "ln_2", width);
      add_turned(from + "ffn_up", to + "mlp.c_fc", width, c_.ffn_size);
      add_turned(from + "ffn_down", to + "mlp.c_proj", c_.ffn_size, width);
    }
    add_norm("output_norm", "transformer.ln_f", width);
    add_head("lm_head.weight");
  }

  const ModelConfig& c_;
  const GgufLayout layout_;
  std::vector<GgufParam> params_;
};

}  // namespace

std::optional<GgufLayout> find_gguf_layout(std::string_view architecture) {
  for (const GgufArchitecture& one : kGgufArchitectures) {
    if (one.name == architecture) return one.layout;
  }
  return std::nullopt;
}

Family gguf_family(std::string_view architecture, bool experts) {
  if (architecture == "llama" && experts) return Family::kMixtral;
  for (const GgufArchitecture& one : kGgufArchitectures) {
    if (one.name == architecture) return one.family;
  }
  return Family::kLlama;
}

std::string known_gguf_architectures() {
  std::string names;
  for (const GgufArchitecture& one : kGgufArchitectures) {
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return names;
}

int64_t GgufParam::stored_row(int64_t row) const {
  if (order != RowOrder::kPairedHeads) return first_row + row;
  const int64_t dim = shape[0] / heads;
  const int64_t in_head = row % dim;
  return row - in_head + in_head % (dim / 2) * 2 + in_head / (dim / 2);
}

int64_t GgufParam::folder_row(int64_t row) const {
  if (order != RowOrder::kPairedHeads) return row;
  const int64_t dim = shape[0] / heads;
  const int64_t in_head = row % dim;
  return row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
}

std::vector<GgufParam> gguf_params(const ModelConfig& config, GgufLayout layout) {
  return GgufParamList(config, layout).make();
}

}  // namespace jige::formats

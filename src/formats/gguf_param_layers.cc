// The layers of families with a feed-forward part behind each attention.
#include <fmt/format.h>

#include "formats/gguf_param_list.h"

namespace jige::formats {

namespace {

// The number that an array of keys has for a layer; 0 where it has none, which the configuration
// refuses.
float number_of_layer(const GgufHeader* file, const char* key, int64_t layer) {
  if (!file) return 0.0f;
  const auto list = file->metadata.find_floats(key);
  if (!list || !*list || static_cast<size_t>(layer) >= (*list)->size()) return 0.0f;
  return (**list)[static_cast<size_t>(layer)];
}

}  // namespace

GgufLayerNames gguf_layer_names(Family family) {
  GgufLayerNames names;
  switch (family) {
    case Family::kGemma2:
    case Family::kGemma3:
    case Family::kGemma4:
      names.second = "pre_feedforward_layernorm";
      break;
    case Family::kGlm4:
      names.after_attention = "post_self_attn_layernorm";
      names.after_mlp = "post_mlp_layernorm";
      break;
    case Family::kSeedOss:
    case Family::kGptOss:
    case Family::kGlm4Moe:
    case Family::kQwen35:
    case Family::kQwen35Moe:
    case Family::kQwen3Next:
      names.second_stored = "post_attention_norm";
      break;
    case Family::kApertus:
      names.first = "attention_layernorm";
      names.second = "feedforward_layernorm";
      break;
    case Family::kHunYuanDense:
    case Family::kHunYuanMoe:
      names.query_norm = "self_attn.query_layernorm";
      names.key_norm = "self_attn.key_layernorm";
      break;
    case Family::kStarCoder2:
      names.up = "mlp.c_fc";
      names.down = "mlp.c_proj";
      break;
    case Family::kLfm2:
    case Family::kLfm2Moe:
      names = {.first = "operator_norm",
               .second = "ffn_norm",
               .query_norm = "self_attn.q_layernorm",
               .key_norm = "self_attn.k_layernorm",
               .output = "self_attn.out_proj",
               .gate = "feed_forward.w1",
               .up = "feed_forward.w3",
               .down = "feed_forward.w2"};
      break;
    default:
      break;
  }
  return names;
}

void GgufParamList::add_gated_family() {
  add("token_embd.weight", "model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size});
  if (c_.layer_inputs.size > 0) add_layer_inputs();
  for (int64_t i = 0; i < c_.layer_count; ++i) add_layer(i);
  if (c_.short_conv.kernel > 0) {
    add_norm("token_embd_norm", "model.embedding_norm", c_.hidden_size);
  } else {
    add_norm("output_norm", "model.norm", c_.hidden_size);
  }
  add_head("lm_head.weight");
}

void GgufParamList::add_layer(int64_t layer) {
  const std::string from = fmt::format("blk.{}.", layer);
  const std::string to = fmt::format("model.layers.{}.", layer);
  const int64_t width = c_.hidden_size;
  const bool before = c_.norm_place != NormPlace::kAfter;
  const bool after = c_.norm_place != NormPlace::kBefore;
  if (before) add_norm(from + "attn_norm", to + names_.first, width);
  if (layout_ == GgufLayout::kFused) return add_fused_layer(from, to);
  if (is_recurrent(c_, layer)) {
    add_recurrent(from, to);
  } else if (c_.latent.rank > 0) {
    add_latent(from, to);
  } else {
    add_attention(from, to, layer);
  }
  if (after) add_norm(from + "post_attention_norm", to + names_.after_attention, width);
  if (before && c_.residual == ResidualForm::kSequential) {
    add_norm(from + names_.second_stored, to + names_.second, width);
  }
  add_feed_forward(from, to, layer);
  if (after) add_norm(from + "post_ffw_norm", to + names_.after_mlp, width);
  if (c_.layer_scales) add_gemma4_end(from, to);
}

void GgufParamList::add_attention(const std::string& from, const std::string& to, int64_t layer) {
  const bool paired = layout_ == GgufLayout::kPaired;
  const HeadShape heads = head_shape(c_, layer);
  const int64_t query = c_.head_count * heads.head_dim;
  const int64_t kv = heads.kv_head_count * heads.head_dim;
  const int64_t width = c_.hidden_size;
  // The query's matrix may hold gates, too.
  add_linear(from + "attn_q", to + "self_attn.q_proj", c_.attention_gate ? 2 * query : query, width,
             c_.qkv_bias, paired ? c_.head_count : 0);
  const bool own_keys = !shares_keys(c_, layer);
  if (own_keys) {
    add_linear(from + "attn_k", to + "self_attn.k_proj", kv, width, c_.qkv_bias,
               paired ? heads.kv_head_count : 0);
  }
  if (own_keys && !keys_are_values(c_, layer)) {
    add_linear(from + "attn_v", to + "self_attn.v_proj", kv, width, c_.qkv_bias);
  }
  add_linear(from + "attn_output", to + names_.output, width, query, c_.output_bias);
  if (c_.attention_sinks) add(from + "attn_sinks.weight", to + "self_attn.sinks", {c_.head_count});
  if (!c_.qk_norm && !c_.qk_norm_whole) return;
  const bool whole = c_.qk_norm_whole;
  add_norm(from + "attn_q_norm", to + names_.query_norm, whole ? query : heads.head_dim);
  if (!own_keys) return;
  add_norm(from + "attn_k_norm", to + names_.key_norm, whole ? kv : heads.head_dim);
}

void GgufParamList::add_feed_forward(const std::string& from, const std::string& to,
                                     int64_t layer) {
  const bool experts = has_experts(c_, layer);
  const bool granite = c_.family == Family::kGraniteMoe || c_.family == Family::kGraniteMoeShared ||
                       c_.family == Family::kGraniteHybrid;
  if (granite) return add_granite_mlp(from, to, experts);
  if (!experts || c_.experts.beside_mlp) add_mlp(from, to, layer);
  if (!experts) return;
  if (c_.experts.beside_mlp) return add_gemma4_experts(from, to);
  if (c_.family == Family::kGptOss) return add_gpt_oss_experts(from, to);
  add_experts(from, to);
}

void GgufParamList::add_mlp(const std::string& from, const std::string& to, int64_t layer) {
  const int64_t width = c_.hidden_size;
  const int64_t ffn = ffn_size_of(c_, layer);
  if (c_.family == Family::kGlm4) {  // one tensor here and there
    add_linear(from + "ffn_up", to + "mlp.gate_up_proj", 2 * ffn, width, false);
  } else {
    if (has_gate(c_.activation)) {
      add_linear(from + "ffn_gate", to + names_.gate, ffn, width, c_.mlp_bias);
    }
    add_linear(from + "ffn_up", to + names_.up, ffn, width, c_.mlp_bias);
  }
  add_linear(from + "ffn_down", to + names_.down, width, ffn, c_.mlp_bias);
  if (c_.activation == ActivationKind::kXielu) add_xielu(to, layer);
}

// What follows the first norm.
void GgufParamList::add_fused_layer(const std::string& from, const std::string& to) {
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

// Files hold the part of kv_b_proj that makes keys transposed, head by head, and apart from the one
// that makes values; old ones hold the whole.
void GgufParamList::add_latent(const std::string& from, const std::string& to) {
  const int64_t width = c_.hidden_size;
  const int64_t heads = c_.head_count;
  const int64_t rank = c_.latent.rank;
  const int64_t unturned = c_.head_dim - c_.rotary_dim;
  const int64_t values = c_.latent.value_dim;
  const int64_t query = heads * c_.head_dim;
  const std::string at = to + "self_attn.";
  if (c_.latent.query_rank > 0) {
    add_linear(from + "attn_q_a", at + "q_a_proj", c_.latent.query_rank, width, false);
    add_norm(from + "attn_q_a_norm", at + "q_a_layernorm", c_.latent.query_rank);
    add_linear(from + "attn_q_b", at + "q_b_proj", query, c_.latent.query_rank, false);
  } else {
    add_linear(from + "attn_q", at + "q_proj", query, width, false);
  }
  add_linear(from + "attn_kv_a_mqa", at + "kv_a_proj_with_mqa", rank + c_.rotary_dim, width, false);
  add_norm(from + "attn_kv_a_norm", at + "kv_a_layernorm", rank);
  const int64_t rows = unturned + values;
  if (file_has(from + "attn_kv_b.weight")) {
    add_linear(from + "attn_kv_b", at + "kv_b_proj", heads * rows, rank, false);
  } else {
    const auto head = [=](const GgufRows& stored, int64_t piece, float* out) {
      std::vector<float> turned(static_cast<size_t>(rank * unturned));
      stored.read(0, piece * rank, rank, turned.data());
      for (int64_t row = 0; row < unturned; ++row) {
        for (int64_t column = 0; column < rank; ++column) {
          *out++ = turned[static_cast<size_t>(column * unturned + row)];
        }
      }
      stored.read(1, piece * values, values, out);
    };
    add_made(at + "kv_b_proj.weight", {heads * rows, rank},
             {.from = {{from + "attn_k_b.weight", {heads, rank, unturned}},
                       {from + "attn_v_b.weight", {heads, values, rank}}},
              .pieces = heads,
              .values = head});
  }
  add_linear(from + "attn_output", at + "o_proj", width, heads * values, false);
}

// The numbers of xIELU stand in keys.
void GgufParamList::add_xielu(const std::string& to, int64_t layer) {
  for (const auto& [key, name, shape] :
       {std::tuple("xielu.alpha_p", "alpha_p", Shape{1}),
        std::tuple("xielu.alpha_n", "alpha_n", Shape{1}), std::tuple("xielu.beta", "beta", Shape()),
        std::tuple("xielu.eps", "eps", Shape())}) {
    const float value = number_of_layer(file_, key, layer);
    add_made(fmt::format("{}mlp.act_fn.{}", to, name), shape,
             {.values = [value](const GgufRows&, int64_t, float* out) { *out = value; }});
  }
}

void GgufParamList::add_layer_inputs() {
  const int64_t columns = c_.layer_count * c_.layer_inputs.size;
  add("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight",
      {c_.layer_inputs.vocab_size, columns});
  add("per_layer_model_proj.weight", "model.per_layer_model_projection.weight",
      {columns, c_.hidden_size});
  add_norm("per_layer_proj_norm", "model.per_layer_projection_norm", c_.layer_inputs.size);
}

void GgufParamList::add_gemma4_end(const std::string& from, const std::string& to) {
  const int64_t size = c_.layer_inputs.size;
  if (size > 0) {
    add_linear(from + "inp_gate", to + "per_layer_input_gate", size, c_.hidden_size, false);
    add_linear(from + "proj", to + "per_layer_projection", c_.hidden_size, size, false);
    add_norm(from + "post_norm", to + "post_per_layer_input_norm", c_.hidden_size);
  }
  add(from + "layer_output_scale.weight", to + "layer_scalar", {1});
}

}  // namespace jige::formats

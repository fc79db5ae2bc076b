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

bool has_joined_gate(Family family) {
  return family == Family::kPhi3 || family == Family::kGlm || family == Family::kGlm4;
}

// Of families whose products or last norm are called otherwise.
void set_other_parts(Family family, GgufLayerNames& names) {
  switch (family) {
    case Family::kPhi:
      names.last = "model.final_layernorm";
      names.head_wanted = true;
      names.output = "self_attn.dense";
      names.up = "mlp.fc1";
      names.down = "mlp.fc2";
      break;
    case Family::kGptNeoX:
      names = {.table = "gpt_neox.embed_in",
               .layers = "gpt_neox.layers.",
               .last = "gpt_neox.final_layer_norm",
               .head = "embed_out",
               .head_wanted = true,
               .output = "attention.dense",
               .up = "mlp.dense_h_to_4h",
               .down = "mlp.dense_4h_to_h"};
      break;
    case Family::kBamba:
    case Family::kFalconH1:
      names.last = "model.final_layernorm";
      names.second = "pre_ff_layernorm";
      names.gate = "feed_forward.gate_proj";
      names.up = "feed_forward.up_proj";
      names.down = "feed_forward.down_proj";
      break;
    default:
      break;
  }
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
    case Family::kOlmo2:
    case Family::kOlmo3:
      names.head_wanted = true;
      break;
    case Family::kGlm4:
      names.after_attention = "post_self_attn_layernorm";
      names.after_mlp = "post_mlp_layernorm";
      break;
    case Family::kGptOss:
      names.head_wanted = true;
      [[fallthrough]];
    case Family::kSeedOss:
    case Family::kGlm4Moe:
    case Family::kSolarOpen:
    case Family::kQwen35:
    case Family::kQwen35Moe:
    case Family::kQwen3Next:
      names.second_stored = "post_attention_norm";
      break;
    case Family::kApertus:
      names.head_wanted = true;
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
      names = {.last = "model.embedding_norm",
               .last_stored = "token_embd_norm",
               .first = "operator_norm",
               .second = "ffn_norm",
               .query_norm = "self_attn.q_layernorm",
               .key_norm = "self_attn.k_layernorm",
               .output = "self_attn.out_proj",
               .gate = "feed_forward.w1",
               .up = "feed_forward.w3",
               .down = "feed_forward.w2"};
      break;
    default:
      set_other_parts(family, names);
      break;
  }
  return names;
}

void GgufParamList::add_gated_family() {
  const std::string table = names_.table + ".weight";
  add("token_embd.weight", table, {c_.vocab_size, c_.hidden_size});
  const bool falcon = c_.family == Family::kFalconH1;
  if (falcon) scale_last(c_.embedding_scale);
  if (c_.layer_inputs.size > 0) add_layer_inputs();
  for (int64_t i = 0; i < c_.layer_count; ++i) add_layer(i);
  add_norm(names_.last_stored, names_.last, c_.hidden_size);
  const bool scaled_apart = falcon && c_.embedding_scale != c_.logits_scale;
  const bool has_own = !c_.tied_embeddings || (!file_ && (names_.head_wanted || scaled_apart));
  add_head(names_.head + ".weight", has_own ? table : "");
  if (falcon && has_own) scale_last(c_.logits_scale);
  if (c_.head_bias) add("output.bias", names_.head + ".bias", {c_.vocab_size});
}

void GgufParamList::add_layer(int64_t layer) {
  const std::string from = fmt::format("blk.{}.", layer);
  const std::string to = fmt::format("{}{}.", names_.layers, layer);
  const int64_t width = c_.hidden_size;
  const bool before = c_.norm_place != NormPlace::kAfter;
  const bool after = c_.norm_place != NormPlace::kBefore;
  if (before) add_norm(from + "attn_norm", to + names_.first, width);
  const bool recurrent = is_recurrent(c_, layer);
  if (recurrent) add_recurrent(from, to);
  if (c_.latent.rank > 0) {
    add_latent(from, to);
  } else if (!recurrent || c_.attention_beside) {
    add_attention(from, to, layer);
  }
  if (after) add_norm(from + "post_attention_norm", to + names_.after_attention, width);
  if (before && c_.residual != ResidualForm::kParallelOneNorm) {
    add_norm(from + names_.second_stored, to + names_.second, width);
    // The one tensor of a layer whose name says no more.
    if (c_.family == Family::kFalconH1) params_.back().stored = from + names_.second_stored;
  }
  add_feed_forward(from, to, layer);
  if (after) add_norm(from + "post_ffw_norm", to + names_.after_mlp, width);
  if (c_.layer_scales) add_gemma4_end(from, to);
}

void GgufParamList::add_attention(const std::string& from, const std::string& to, int64_t layer) {
  const HeadShape heads = head_shape(c_, layer);
  const int64_t query = c_.head_count * heads.head_dim;
  const int64_t kv = heads.kv_head_count * heads.head_dim;
  const bool own_keys = !shares_keys(c_, layer);
  if (c_.qkv_by_head) {
    const std::string name = to + "attention.query_key_value";
    add(from + "attn_qkv.weight", name + ".weight", {3 * query, c_.hidden_size}, RowOrder::kByHead,
        c_.head_count);
    if (c_.qkv_bias) {
      add(from + "attn_qkv.bias", name + ".bias", {3 * query}, RowOrder::kByHead, c_.head_count);
    }
  } else if (c_.fused_projections) {
    add_linear(from + "attn_qkv", to + "self_attn.qkv_proj", query + 2 * kv, c_.hidden_size, false);
  } else if (layout_ == GgufLayout::kPlain && file_has(from + "attn_qkv.weight")) {
    add_parts_of_one(from, to, query, kv);
  } else {
    add_query_key_value(from, to, heads, own_keys, own_keys && !keys_are_values(c_, layer));
  }
  add_linear(from + "attn_output", to + names_.output, c_.hidden_size, query, c_.output_bias);
  scale_last(c_.attention_out_scale);
  if (c_.attention_sinks) add(from + "attn_sinks.weight", to + "self_attn.sinks", {c_.head_count});
  add_head_norms(from, to, heads, own_keys);
}

void GgufParamList::add_query_key_value(const std::string& from, const std::string& to,
                                        const HeadShape& heads, bool keys, bool values) {
  const bool paired = layout_ == GgufLayout::kPaired;
  const int64_t query = c_.head_count * heads.head_dim;
  const int64_t kv = heads.kv_head_count * heads.head_dim;
  const int64_t width = c_.hidden_size;
  // The query's matrix may hold gates, too.
  add_linear(from + "attn_q", to + "self_attn.q_proj", c_.attention_gate ? 2 * query : query, width,
             c_.qkv_bias, paired ? c_.head_count : 0);
  scale_last(c_.attention_in_scale);
  if (keys) {
    add_linear(from + "attn_k", to + "self_attn.k_proj", kv, width, c_.qkv_bias,
               paired ? heads.kv_head_count : 0);
    scale_last(c_.attention_in_scale * c_.key_scale);
  }
  if (values) {
    add_linear(from + "attn_v", to + "self_attn.v_proj", kv, width, c_.qkv_bias);
    scale_last(c_.attention_in_scale);
  }
}

// Queries, keys and values that the file has in one tensor.
void GgufParamList::add_parts_of_one(const std::string& from, const std::string& to, int64_t query,
                                     int64_t kv) {
  const auto add_part = [&](const std::string& end, const char* name, int64_t first, int64_t rows) {
    const std::string part = to + "self_attn." + name + end;
    add(from + "attn_qkv" + end, part, end == ".bias" ? Shape{rows} : Shape{rows, c_.hidden_size});
    params_.back().first_row = first;
    params_.back().stored_rows = query + 2 * kv;
  };
  for (const char* end : {".weight", ".bias"}) {
    if (end == std::string_view(".bias") && !c_.qkv_bias) continue;
    add_part(end, "q_proj", 0, query);
    add_part(end, "k_proj", query, kv);
    add_part(end, "v_proj", query + kv, kv);
  }
}

void GgufParamList::add_head_norms(const std::string& from, const std::string& to,
                                   const HeadShape& heads, bool keys) {
  const int64_t query = c_.head_count * heads.head_dim;
  const int64_t kv = heads.kv_head_count * heads.head_dim;
  if (c_.qk_norm_apart) {
    add(from + "attn_q_norm.weight", to + names_.query_norm + ".weight",
        {c_.head_count, heads.head_dim});
    add(from + "attn_k_norm.weight", to + names_.key_norm + ".weight",
        {heads.kv_head_count, heads.head_dim});
    return;
  }
  if (!c_.qk_norm && !c_.qk_norm_whole) return;
  const bool whole = c_.qk_norm_whole;
  add_norm(from + "attn_q_norm", to + names_.query_norm, whole ? query : heads.head_dim);
  if (!keys) return;
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
  if (has_joined_gate(c_.family)) {  // one tensor here and there
    add_linear(from + "ffn_up", to + "mlp.gate_up_proj", 2 * ffn, width, false);
  } else {
    if (has_gate(c_.activation)) {
      add_linear(from + "ffn_gate", to + names_.gate, ffn, width, c_.mlp_bias);
      scale_last(c_.mlp_gate_scale);
    }
    add_linear(from + "ffn_up", to + names_.up, ffn, width, c_.mlp_bias);
  }
  add_linear(from + "ffn_down", to + names_.down, width, ffn, c_.mlp_bias);
  scale_last(c_.mlp_out_scale);
  if (c_.activation == ActivationKind::kXielu) add_xielu(to, layer);
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
  if (c_.family == Family::kMiniCpm3 || file_has(from + "attn_kv_b.weight")) {
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
    const auto write_keys = [=](const GgufFolderRows& folder, int64_t row, float* out) {
      const int64_t first = row / rank * rows;
      for (int64_t i = 0; i < unturned; ++i) out[i] = folder.number(first + i, row % rank);
    };
    const auto write_values = [=](const GgufFolderRows& folder, int64_t row, float* out) {
      folder.read(row / values * rows + unturned + row % values, out);
    };
    add_made(at + "kv_b_proj.weight", {heads * rows, rank},
             {.from = {{from + "attn_k_b.weight", {heads, rank, unturned}, write_keys},
                       {from + "attn_v_b.weight", {heads, values, rank}, write_values}},
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

#include "model/encoder_names.h"

namespace jige::model {
namespace {

// Of encoders as BERT is.
LayerNames encoder_names(const std::string& at) {
  const std::string own = at + ".attention.self.";
  return {.attention = {.qkv = {own + "query", own + "key", own + "value"}},
          .attention_output = at + ".attention.output.dense",
          .norm1_after = at + ".attention.output.LayerNorm",
          .ffn_input = {at + ".intermediate.dense"},
          .ffn_output = at + ".output.dense",
          .norm2_after = at + ".output.LayerNorm"};
}

LayerNames mpnet_names(const std::string& encoder, const std::string& number) {
  const std::string at = encoder + "layer." + number;
  const std::string own = at + ".attention.attn.";
  return {.attention = {.qkv = {own + "q", own + "k", own + "v"},
                        .distances = encoder + "relative_attention_bias"},
          .attention_output = own + "o",
          .norm1_after = at + ".attention.LayerNorm",
          .ffn_input = {at + ".intermediate.dense"},
          .ffn_output = at + ".output.dense",
          .norm2_after = at + ".output.LayerNorm"};
}

LayerNames distil_bert_names(const std::string& at) {
  const std::string own = at + ".attention.";
  return {.attention = {.qkv = {own + "q_lin", own + "k_lin", own + "v_lin"}},
          .attention_output = own + "out_lin",
          .norm1_after = at + ".sa_layer_norm",
          .ffn_input = {at + ".ffn.lin1"},
          .ffn_output = at + ".ffn.lin2",
          .norm2_after = at + ".output_layer_norm"};
}

LayerNames nomic_bert_names(const std::string& at) {
  return {.attention = {.qkv = {at + ".attn.Wqkv"}},
          .attention_output = at + ".attn.out_proj",
          .norm1_after = at + ".norm1",
          .ffn_input = {at + ".mlp.fc12", at + ".mlp.fc11"},
          .ffn_output = at + ".mlp.fc2",
          .norm2_after = at + ".norm2"};
}

LayerNames deberta_names(const std::string& encoder, const std::string& number) {
  const std::string at = encoder + "layer." + number;
  const std::string own = at + ".attention.self.";
  return {.attention = {.qkv = {own + "query_proj", own + "key_proj", own + "value_proj"},
                        .distance_rows = {.table = encoder + "rel_embeddings",
                                          .norm = encoder + "LayerNorm",
                                          .for_queries = own + "pos_key_proj",
                                          .for_keys = own + "pos_query_proj"}},
          .attention_output = at + ".attention.output.dense",
          .norm1_after = at + ".attention.output.LayerNorm",
          .ffn_input = {at + ".intermediate.dense"},
          .ffn_output = at + ".output.dense",
          .norm2_after = at + ".output.LayerNorm"};
}

LayerNames gte_names(const std::string& at, bool fused) {
  const std::string own = at + ".attention.";
  LayerNames names{.attention = {.qkv = {own + "q_proj", own + "k_proj", own + "v_proj"}},
                   .attention_output = own + "o_proj",
                   .norm1_after = at + ".attn_ln",
                   .ffn_input = {at + ".mlp.up_gate_proj"},
                   .gate_last = true,
                   .ffn_output = at + ".mlp.down_proj",
                   .norm2_after = at + ".mlp_ln"};
  if (fused) names.attention.qkv = {own + "qkv_proj"};
  return names;
}

LayerNames modern_bert_names(const std::string& at) {
  return {.norm1 = at + ".attn_norm",
          .attention = {.qkv = {at + ".attn.Wqkv"}},
          .attention_output = at + ".attn.Wo",
          .norm2 = at + ".mlp_norm",
          .ffn_input = {at + ".mlp.Wi"},
          .ffn_output = at + ".mlp.Wo"};
}

}  // namespace

std::optional<LayerNames> encoder_layer_names(const formats::ModelConfig& config,
                                              const std::string& number) {
  const formats::Family family = config.family;
  if (family == formats::Family::kBert) return encoder_names("bert.encoder.layer." + number);
  if (family == formats::Family::kRoberta || family == formats::Family::kXlmRoberta) {
    return encoder_names("roberta.encoder.layer." + number);
  }
  if (family == formats::Family::kMpNet) return mpnet_names("mpnet.encoder.", number);
  if (family == formats::Family::kDistilBert) {
    return distil_bert_names("distilbert.transformer.layer." + number);
  }
  if (family == formats::Family::kNomicBert) {
    return nomic_bert_names("nomic_bert.encoder.layers." + number);
  }
  if (family == formats::Family::kDebertaV2) return deberta_names("deberta.encoder.", number);
  if (family == formats::Family::kGte) {
    return gte_names("new.encoder.layer." + number, config.fused_projections);
  }
  if (family == formats::Family::kModernBert) return modern_bert_names("model.layers." + number);
  return std::nullopt;
}

}  // namespace jige::model

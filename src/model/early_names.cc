#include "model/early_names.h"

#include <vector>

namespace jige::model {
namespace {

std::vector<std::string> separate_qkv(const std::string& attention) {
  return {attention + "q_proj", attention + "k_proj", attention + "v_proj"};
}

LayerNames gpt2_names(const std::string& number) {
  const std::string at = "transformer.h." + number;
  return {.norm1 = at + ".ln_1",
          .attention = {.qkv = {at + ".attn.c_attn"}},
          .attention_output = at + ".attn.c_proj",
          .norm2 = at + ".ln_2",
          .ffn_input = {at + ".mlp.c_fc"},
          .ffn_output = at + ".mlp.c_proj"};
}

LayerNames gpt_neo_names(const std::string& number) {
  LayerNames names = gpt2_names(number);
  const std::string attention = "transformer.h." + number + ".attn.attention.";
  names.attention.qkv = separate_qkv(attention);
  names.attention_output = attention + "out_proj";
  return names;
}

LayerNames gptj_names(const std::string& number) {
  const std::string at = "transformer.h." + number;
  return {.norm1 = at + ".ln_1",
          .attention = {.qkv = separate_qkv(at + ".attn.")},
          .attention_output = at + ".attn.out_proj",
          .ffn_input = {at + ".mlp.fc_in"},
          .ffn_output = at + ".mlp.fc_out"};
}

LayerNames opt_names(const std::string& number) {
  const std::string at = "model.decoder.layers." + number;
  return {.norm1 = at + ".self_attn_layer_norm",
          .attention = {.qkv = separate_qkv(at + ".self_attn.")},
          .attention_output = at + ".self_attn.out_proj",
          .norm2 = at + ".final_layer_norm",
          .ffn_input = {at + ".fc1"},
          .ffn_output = at + ".fc2"};
}

LayerNames neox_names(const std::string& number) {
  const std::string at = "gpt_neox.layers." + number;
  return {.norm1 = at + ".input_layernorm",
          .attention = {.qkv = {at + ".attention.query_key_value"}},
          .attention_output = at + ".attention.dense",
          .norm2 = at + ".post_attention_layernorm",
          .ffn_input = {at + ".mlp.dense_h_to_4h"},
          .ffn_output = at + ".mlp.dense_4h_to_h"};
}

LayerNames falcon_names(const formats::ModelConfig& config, const std::string& number) {
  const std::string at = "transformer.h." + number;
  const bool two_norms = config.residual == formats::ResidualForm::kParallel;
  return {.norm1 = at + (two_norms ? ".ln_attn" : ".input_layernorm"),
          .attention = {.qkv = {at + ".self_attention.query_key_value"}},
          .attention_output = at + ".self_attention.dense",
          .norm2 = at + (two_norms ? ".ln_mlp" : ".post_attention_layernorm"),
          .ffn_input = {at + ".mlp.dense_h_to_4h"},
          .ffn_output = at + ".mlp.dense_4h_to_h"};
}

}  // namespace

std::optional<LayerNames> early_layer_names(const formats::ModelConfig& config,
                                            const std::string& number) {
  switch (config.family) {
    case formats::Family::kGpt2:
    case formats::Family::kGptBigCode:
      return gpt2_names(number);
    case formats::Family::kGptNeo:
      return gpt_neo_names(number);
    case formats::Family::kGptJ:
      return gptj_names(number);
    case formats::Family::kOpt:
      return opt_names(number);
    case formats::Family::kGptNeoX:
      return neox_names(number);
    case formats::Family::kFalcon:
      return falcon_names(config, number);
    default:
      return std::nullopt;
  }
}

}  // namespace jige::model

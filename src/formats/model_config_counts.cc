// What a layer of a ModelConfig has where layers differ, and how many parameters all have.
#include <algorithm>

#include "formats/model_config.h"
#include "formats/model_config_deberta.h"
#include "formats/model_config_experts.h"
#include "formats/model_config_latent.h"
#include "formats/model_config_recurrent.h"
#include "formats/model_families.h"

namespace jige::formats {

bool has_window(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  const auto& sliding = config.layer_is_sliding;
  return config.sliding_window > 0 && (sliding.empty() || (at < sliding.size() && sliding[at]));
}

bool turns(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  const auto& unturned = config.layer_is_unturned;
  return config.position == PositionKind::kRotary && (at >= unturned.size() || !unturned[at]);
}

NormPlace norm_place(const ModelConfig& config, int64_t layer) {
  const bool before = config.recurrent_norms_before && is_recurrent(config, layer);
  return before ? NormPlace::kBefore : config.norm_place;
}

HeadShape head_shape(const ModelConfig& config, int64_t layer) {
  const FullHeadsConfig& full = config.full_heads;
  if (full.head_dim > 0 && !has_window(config, layer)) return {full.kv_head_count, full.head_dim};
  return {config.kv_head_count, config.head_dim};
}

bool keys_are_values(const ModelConfig& config, int64_t layer) {
  return config.full_heads.keys_are_values && !has_window(config, layer);
}

int64_t key_source(const ModelConfig& config, int64_t layer) {
  if (!shares_keys(config, layer)) return layer;
  for (int64_t i = config.layer_count - config.shared_kv_layers - 1; i >= 0; --i) {
    if (has_window(config, i) == has_window(config, layer)) return i;
  }
  return -1;
}

bool shares_keys(const ModelConfig& config, int64_t layer) {
  return layer >= config.layer_count - config.shared_kv_layers;
}

bool gives_keys(const ModelConfig& config, int64_t layer) {
  const int64_t own = config.layer_count - config.shared_kv_layers;
  const bool window = has_window(config, layer);
  for (int64_t i = layer + 1; i < config.layer_count; ++i) {
    if (has_window(config, i) == window) return layer < own && i >= own;
  }
  return false;
}

int64_t ffn_size_of(const ModelConfig& config, int64_t layer) {
  const bool twice = config.shared_double_ffn && shares_keys(config, layer);
  return twice ? 2 * config.ffn_size : config.ffn_size;
}

int64_t inner_columns(const ModelConfig& config) {
  if (feed_forward_count(config) > 0) return config.ffn_size;
  return std::max(config.mamba1.columns, config.mamba2.value_columns());
}

double ffn_sparsity(const ModelConfig& config, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at < config.ffn_sparsity.size() ? config.ffn_sparsity[at] : 0.0;
}

namespace {

// Of a layer's attention.
int64_t attention_parameter_count(const ModelConfig& config, int64_t layer) {
  const HeadShape heads = head_shape(config, layer);
  const int64_t width = config.hidden_size;
  const int64_t query_width = config.head_count * heads.head_dim;
  const int64_t kv_width = heads.kv_head_count * heads.head_dim;
  int64_t count = 0;
  if (shares_keys(config, layer)) {
    const int64_t biases = (config.qkv_bias ? query_width : 0) + (config.output_bias ? width : 0);
    return 2 * width * query_width + biases + (config.qk_norm ? heads.head_dim : 0);
  }
  if (config.latent.rank > 0) {
    count = latent_parameter_count(config);
  } else {
    const int64_t queries = config.attention_gate ? 2 * query_width : query_width;
    const int64_t rows = queries + (keys_are_values(config, layer) ? 1 : 2) * kv_width;
    count = width * rows + query_width * width;
    if (config.qkv_bias) count += rows;
    if (config.output_bias) count += width;
  }
  if (config.attention_sinks) count += config.head_count;
  if (config.head_gates) count += width * config.head_count;
  if (config.qk_norm) count += 2 * heads.head_dim;
  if (config.qk_norm_whole || config.qk_norm_apart) count += query_width + kv_width;
  return count;
}

// With so many experts in every layer that has any.
int64_t count_parameters(const ModelConfig& config, int64_t experts) {
  const int64_t width = config.hidden_size;
  const bool gated = has_gate(config.activation);
  const bool norm_bias = config.norm == NormKind::kLayer && config.norm_bias;
  const int64_t norm = !config.norm_weights ? 0 : norm_bias ? 2 * width : width;
  int64_t dense = (gated ? 3 : 2) * width * config.ffn_size;  // a feed-forward part
  if (config.mlp_bias) dense += width;
  if (config.mlp_bias && config.mlp_input_bias) dense += (gated ? 2 : 1) * config.ffn_size;
  if (config.activation == ActivationKind::kXielu) dense += 4;  // two of which are not trained

  const int64_t with_experts = expert_layer_count(config);
  const int64_t recurrent = recurrent_layer_count(config);
  const int64_t parts = attention_part_count(config) + feed_forward_count(config);
  const bool one_norm = config.residual == ResidualForm::kParallelOneNorm;
  const bool around = config.norm_place == NormPlace::kAround;
  // Of all layers, and behind and in front of them.
  int64_t norms = around ? 2 * parts : one_norm ? config.layer_count : parts;
  if (config.norm_place != NormPlace::kSum) ++norms;
  if (config.embedding_norm) ++norms;
  if (config.bare_entry) --norms;
  int64_t total = norms * norm;
  for (int64_t layer = 0; layer < config.layer_count; ++layer) {
    if (!has_attention(config, layer)) continue;
    total += attention_parameter_count(config, layer);
  }
  if (config.layer_scales) total += config.layer_count;
  total += config.distance_buckets * config.head_count + distance_row_parameters(config);
  if (config.shared_double_ffn)
    total += config.shared_kv_layers * (gated ? 3 : 2) * width * config.ffn_size;
  if (const int64_t size = config.layer_inputs.size; size > 0) {
    total +=
        size + config.layer_count * ((config.layer_inputs.vocab_size + 3 * width) * size + width);
  }
  if (const int64_t streams = config.altup.streams; streams > 0) {
    const int64_t maps = streams * streams * (streams + 1);
    total += config.layer_count * ((2 + streams) * width + maps);
    total += 2 * (streams - 1) * width * width;
  }
  if (const int64_t rank = config.laurel_rank; rank > 0) {
    total += config.layer_count * (2 * rank + 1) * width;
  }
  if (recurrent > 0) total += recurrent * recurrent_parameter_count(config);
  total += with_experts * expert_parameter_count(config, experts);
  const int64_t replaced = config.experts.beside_mlp ? 0 : with_experts;
  total += (feed_forward_count(config) - replaced) * dense;
  total += config.vocab_size * width * (config.tied_embeddings ? 1 : 2);
  if (config.head_bias) total += config.vocab_size;
  if (config.position == PositionKind::kLearned) {
    total += (config.context_max + config.position_offset) * width;
  }
  total += config.token_types * width;
  return total;
}

}  // namespace

int64_t parameter_count(const ModelConfig& config) {
  return count_parameters(config, config.experts.count);
}

int64_t active_parameter_count(const ModelConfig& config) {
  return count_parameters(config, config.experts.chosen);
}

bool has_experts(const ModelConfig& config, int64_t layer) {
  if (config.experts.count == 0) return false;
  const auto index = static_cast<size_t>(layer);
  return index >= config.layer_is_dense.size() || !config.layer_is_dense[index];
}

int64_t expert_layer_count(const ModelConfig& config) {
  int64_t count = 0;
  for (int64_t i = 0; i < config.layer_count; ++i) count += has_experts(config, i) ? 1 : 0;
  return count;
}

int64_t expert_parameter_count(const ModelConfig& config, int64_t experts) {
  const bool biases = config.experts.biases;
  const int64_t ffn = config.experts.ffn_size;
  const int64_t products = has_gate(config.activation) ? 3 : 2;
  const int64_t one =
      products * config.hidden_size * ffn + (biases ? 2 * ffn + config.hidden_size : 0);
  const int64_t shared_ffn = config.experts.shared_ffn_size;
  const int64_t shared =
      (products * shared_ffn + (config.experts.shared_gate ? 1 : 0)) * config.hidden_size;
  const bool beside = config.experts.beside_mlp;
  const int64_t vectors =
      (biases ? 1 : 0) + (config.experts.choice_bias ? 1 : 0) + (beside ? 1 : 0);
  const int64_t norms = beside ? 4 * config.hidden_size : 0;
  return (config.hidden_size + vectors) * config.experts.count + experts * one + shared + norms;
}

}  // namespace jige::formats

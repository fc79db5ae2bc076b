// Features of the Gemma families for tiny_config_test_support.h.
//
// Threads: free functions.
#pragma once

#include <cmath>

#include "formats/model_config.h"

namespace jige::model::testing {

inline void add_gemma_features(formats::ModelConfig& config) {
  if (config.family != formats::Family::kVaultGemma) {
    config.norm_place = formats::NormPlace::kAround;
  }
  config.norm_adds_one = true;
  config.activation = formats::ActivationKind::kGeGlu;
  config.embedding_scale = std::sqrt(20.0);
  config.tied_embeddings = true;
  config.sliding_window = 5;
  config.layer_is_sliding = {1, 0};
  if (config.family != formats::Family::kGemma3) {
    config.score_dim = 2;
    config.score_cap = 3;
    config.logits_cap = 4;
  } else {
    config.qk_norm = true;
    config.score_dim = 9;
    config.sliding_rope = formats::RopeConfig{.theta = 100.0};
  }
}

inline void add_gemma4_features(formats::ModelConfig& config) {
  config.norm_place = formats::NormPlace::kAround;
  config.activation = formats::ActivationKind::kGeGlu;
  config.embedding_scale = std::sqrt(20.0);
  config.tied_embeddings = true;
  config.sliding_window = 5;
  config.layer_count = 4;
  config.layer_is_sliding = {1, 0, 1, 0};
  config.shared_kv_layers = 2;
  config.shared_double_ffn = true;
  config.layer_inputs = {.size = 4, .vocab_size = 41};
  config.qk_norm = config.value_norm = config.layer_scales = true;
  config.scores_by_head_dim = false;
  config.logits_cap = 4;
  config.experts = {
      .count = 5, .chosen = 3, .ffn_size = 12, .normalised = true, .beside_mlp = true};
  config.full_heads = {.head_dim = 10, .kv_head_count = 1, .keys_are_values = true};
  config.rope = {.theta = 1e3, .scaling = formats::RopeScaling::kProportional, .turned_share = 0.5};
  config.sliding_rope = formats::RopeConfig{.theta = 100.0};
}

inline void add_gemma3n_features(formats::ModelConfig& config) {
  config.norm_place = formats::NormPlace::kAround;
  config.activation = formats::ActivationKind::kGeGlu;
  config.embedding_scale = std::sqrt(20.0);
  config.tied_embeddings = true;
  config.sliding_window = 5;
  config.layer_count = 4;
  config.layer_is_sliding = {1, 0, 1, 0};
  config.shared_kv_layers = 2;
  config.layer_inputs = {.size = 4, .vocab_size = 33};
  config.altup = {.streams = 3};
  config.laurel_rank = 3;
  config.ffn_sparsity = {0.6, 0.0, 0.0, 0.4};
  config.qk_norm = config.value_norm = true;
  config.scores_by_head_dim = false;
  config.logits_cap = 4;
  config.sliding_rope = formats::RopeConfig{.theta = 100.0};
}

}  // namespace jige::model::testing

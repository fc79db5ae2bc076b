// What tiny models have in recurrent layers and beside them (tiny_config_test_support.h).
//
// Included by tests only. Threads: free functions.
#pragma once

#include "formats/model_config.h"

namespace jige::model::testing {

inline void add_granite_scales(formats::ModelConfig& config) {
  config.embedding_scale = 3.0;
  config.residual_scale = 0.6;
  config.score_scale = 0.25;
  config.logits_divisor = 1.5;
}

// Sinks, and layers that turn by thetas of their own.
inline void add_granite_swa_features(formats::ModelConfig& config) {
  add_granite_scales(config);
  config.attention_sinks = true;
  config.sliding_window = 5;
  config.layer_is_sliding = {0, 1};
  config.sliding_rope = formats::RopeConfig{.theta = 50.0};
}

// A delta net with norms before its parts, and attention without positions and norms behind them.
inline void add_olmo_hybrid_features(formats::ModelConfig& config) {
  config.delta = {.key_heads = 2,
                  .value_heads = 4,
                  .key_dim = 10,
                  .value_dim = 12,
                  .kernel = 3,
                  .doubles_rate = true,
                  .draws_steps = true,
                  .norm_eps = 1e-5};
  config.layer_is_recurrent = {1, 0};
  config.layer_is_unturned = {1, 1};
  config.norm_place = formats::NormPlace::kAfter;
  config.recurrent_norms_before = true;
  config.qk_norm_whole = true;
  config.norm_eps = 1e-2;
}

// A delta net and a layer with gated attention.
inline void add_recurrent_features(formats::ModelConfig& config) {
  config.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 7, .value_dim = 9, .kernel = 3};
  config.layer_is_recurrent = {1, 0};
  config.norm_eps = 1e-2;  // a head's first results may be near zero
  config.norm_adds_one = true;
  config.qk_norm = true;
  config.attention_gate = true;
  config.rotary_dim = 2;
  if (config.family == formats::Family::kQwen35) return;
  config.experts = {.count = 5,
                    .chosen = 3,
                    .ffn_size = config.ffn_size,
                    .shared_ffn_size = 16,
                    .shared_gate = true,
                    .normalised = true};
  if (config.family == formats::Family::kQwen3Next) {
    config.experts.ffn_size = 12;
    config.layer_is_dense = {0, 1};
  } else {
    config.layer_is_recurrent = {0, 1};
    config.norm_eps = 0.1;  // no token is close to another choice
  }
}

// A short convolution below a layer with attention.
inline void add_short_conv_features(formats::ModelConfig& config) {
  config.short_conv = {.kernel = 3, .bias = true};
  config.layer_is_recurrent = {1, 0};
  config.qk_norm = true;
  config.tied_embeddings = true;
  if (config.family == formats::Family::kLfm3) {
    config.short_conv = {.kernel = 7, .bias = false};
    config.layer_is_recurrent = {0, 1};
    config.layer_is_sliding = {1, 0};
    config.sliding_window = 5;
    config.sliding_rope = formats::RopeConfig{
        .theta = 500.0, .scaling = formats::RopeScaling::kProportional, .turned_share = 0.7};
    config.norm_place = formats::NormPlace::kAround;
    config.head_gates = config.qkv_bias = config.output_bias = true;
  }
  if (config.family == formats::Family::kLfm2Moe) {
    config.experts = {.count = 5,
                      .chosen = 3,
                      .ffn_size = 12,
                      .normalised = true,
                      .sigmoid_scores = true,
                      .choice_bias = true,
                      .weight_scale = 1.5,
                      .sum_offset = 1e-6};
    config.layer_is_dense = {1, 0};
    config.layer_is_recurrent = {0, 1};
  }
}

// A layer of Mamba 2 beside attention in every layer, and all multipliers.
inline void add_falcon_features(formats::ModelConfig& config) {
  config.attention_beside = true;
  config.layer_is_recurrent = {1, 1};
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.embedding_scale = 3.0;
  config.logits_scale = 0.4;
  config.attention_in_scale = 1.3;
  config.attention_out_scale = 0.8;
  config.key_scale = 0.7;
  config.mlp_gate_scale = 0.9;
  config.mlp_out_scale = 0.7;
  config.mamba2.norm = formats::GatedNorm::kNormFirst;
  config.mamba2.in_scale = 1.25;
  config.mamba2.out_scale = 0.6;
  config.mamba2.part_scales = {0.7, 1.2, 0.8, 1.5, 0.9};
}

// A layer of Mamba 2 below one with attention.
inline void add_mamba2_features(formats::ModelConfig& config) {
  config.mamba2 = {.heads = 8,
                   .head_dim = 5,
                   .groups = 2,
                   .state_dim = 7,
                   .kernel = 3,
                   .conv_bias = true,
                   .bias = true,
                   .output_bias = true};
  config.layer_is_recurrent = {1, 0};
  config.norm_eps = 1e-2;  // a head's first results may be near zero
  if (config.family == formats::Family::kFalconH1) return add_falcon_features(config);
  if (config.family == formats::Family::kNemotronH) {
    config.activation = formats::ActivationKind::kReluSquared;
    const auto mixes = formats::LayerParts::kAttention, feeds = formats::LayerParts::kFeedForward;
    config.layer_count = 4;
    config.layer_parts = {mixes, feeds, mixes, feeds};
    config.layer_is_recurrent = {1, 0, 0, 0};
    config.layer_is_unturned = {1, 1, 1, 1};
    config.layer_is_dense = {1, 1, 1, 0};
    config.experts = {.count = 6,
                      .chosen = 2,
                      .ffn_size = 12,
                      .shared_ffn_size = 16,
                      .normalised = true,
                      .sigmoid_scores = true,
                      .choice_bias = true,
                      .weight_scale = 1.5,
                      .groups = 2,
                      .chosen_groups = 1,
                      .groups_by_pairs = true};
    return;
  }
  if (config.family == formats::Family::kBamba) {
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
    config.rotary_dim = 2;
    return;
  }
  add_granite_scales(config);
  config.layer_is_unturned = {1, 1};
  config.experts = {.count = 5,
                    .chosen = 3,
                    .ffn_size = config.ffn_size,
                    .shared_ffn_size = 16,
                    .normalised = true};
}

// A layer of Mamba with experts above one with attention.
inline void add_jamba_features(formats::ModelConfig& config) {
  config.layer_is_recurrent = {0, 1};
  config.layer_is_unturned = {1, 1};
  config.layer_is_dense = {1, 0};
  config.mamba1 = {.columns = 2 * config.hidden_size,
                   .state_dim = 5,
                   .kernel = 3,
                   .step_rank = 3,
                   .conv_bias = true,
                   .bias = true,
                   .norms = formats::StepNorms::kWeighted};
  config.norm_eps = 0.1;  // steps are bent, and no token is close to another choice
  config.experts = {.count = 5, .chosen = 3, .ffn_size = config.ffn_size};
}

// Layers of Mamba or Mamba 2 and nothing else.
inline void add_recurrent_only_features(formats::ModelConfig& config) {
  config.head_count = config.kv_head_count = config.ffn_size = 1;
  config.head_dim = 2;
  config.layer_parts = {formats::LayerParts::kAttention, formats::LayerParts::kAttention};
  config.layer_is_recurrent = config.layer_is_unturned = {1, 1};
  if (config.family == formats::Family::kMamba2) {
    config.norm_eps = 1e-2;  // a head's first results may be near zero
    config.mamba2 = {.heads = 8,
                     .head_dim = 5,
                     .groups = 2,
                     .state_dim = 7,
                     .kernel = 3,
                     .conv_bias = true,
                     .bias = true,
                     .output_bias = true};
    return;
  }
  config.tied_embeddings = true;
  config.mamba1 = {.columns = 2 * config.hidden_size,
                   .state_dim = 5,
                   .kernel = 3,
                   .step_rank = 3,
                   .conv_bias = true,
                   .bias = true};
  if (config.family == formats::Family::kMamba) return;
  config.mamba1.norms = formats::StepNorms::kPlain;
  config.mamba1.norm_eps = 0.3;  // norms of few numbers are bent
}

}  // namespace jige::model::testing

// What tiny models have in layers of experts behind usual attention, and beside them
// (tiny_config_test_support.h).
//
// Included by tests only. Threads: free functions.
#pragma once

#include "formats/model_config.h"
#include "model/tiny_recurrent_test_support.h"

namespace jige::model::testing {

// As DeepSeek-V3 chooses them.
inline formats::ExpertConfig sigmoid_experts() {
  return {.count = 6,
          .chosen = 2,
          .ffn_size = 12,
          .shared_ffn_size = 12,
          .normalised = true,
          .sigmoid_scores = true,
          .choice_bias = true,
          .weight_scale = 2.5,
          .groups = 2,
          .chosen_groups = 1,
          .groups_by_pairs = true};
}

// Hunyuan's, beside one that every token uses.
inline void add_hunyuan_features(formats::ModelConfig& config) {
  config.qk_norm = config.qk_norm_turned = true;
  config.experts = {.count = 5,
                    .chosen = 3,
                    .ffn_size = config.ffn_size,
                    .shared_ffn_size = config.ffn_size,
                    .normalised = true};
}

// Of families that choose experts as DeepSeek-V3 does.
inline void add_sigmoid_features(formats::ModelConfig& config) {
  config.experts = sigmoid_experts();
  const bool exaone = config.family == formats::Family::kExaoneMoe;
  config.qkv_bias = !exaone;
  config.qk_norm = config.family != formats::Family::kSolarOpen;
  if (config.family == formats::Family::kSolarOpen) {
    config.ffn_size = config.experts.ffn_size;
  } else if (config.family == formats::Family::kGlm4Moe) {
    config.rotary_dim = 2;
  } else {
    config.output_bias = !exaone;
    if (exaone) config.layer_is_unturned = {1, 0};
    config.sliding_window = 5;
    config.layer_is_sliding = {0, 1};
    config.layer_is_dense = {1, 0};
  }
}

// Hy3's, behind norms of heads.
inline void add_hy3_features(formats::ModelConfig& config) {
  config.experts = sigmoid_experts();
  config.experts.groups = 1;
  config.experts.shared_ffn_size = 24;
  config.qk_norm = config.qkv_bias = config.output_bias = true;
  config.layer_is_dense = {1, 0};
}

// Chunks in a layer with experts, and one that neither turns nor has them.
inline void add_llama4_features(formats::ModelConfig& config) {
  config.turns_neighbours = config.qk_norm_plain = config.qk_norm_turned = true;
  config.layer_is_unturned = config.layer_is_dense = {0, 1};
  config.attention_chunk = 16;
  config.query_growth = {.rate = 0.2, .context = 5};
  config.experts = {.count = 5,
                    .chosen = 2,
                    .ffn_size = 12,
                    .shared_ffn_size = 12,
                    .sigmoid_scores = true,
                    .weighs_inputs = true};
}

// Of Mellum layers of two kinds, too, of which one has no experts.
inline void add_qwen3_moe_features(formats::ModelConfig& config) {
  config.qk_norm = true;
  config.experts = {.count = 5, .chosen = 3, .ffn_size = 12};
  if (config.family == formats::Family::kQwen3Moe) return;
  config.sliding_window = 5;
  config.layer_is_sliding = {1, 0};
  config.sliding_rope = formats::RopeConfig{.theta = 50.0};
  config.rope.theta = 1000.0;
  config.layer_is_dense = {0, 1};
}

inline void add_granite_moe_features(formats::ModelConfig& config) {
  if (config.family == formats::Family::kGraniteMoeSwa) add_granite_swa_features(config);
  add_granite_scales(config);
  config.experts = {.count = 5, .chosen = 3, .ffn_size = config.ffn_size, .normalised = true};
  if (config.family != formats::Family::kGraniteMoe) config.experts.shared_ffn_size = 16;
}

// What layers of experts do behind usual attention.
inline void add_expert_features(formats::ModelConfig& config) {
  switch (config.family) {
    case formats::Family::kMixtral:
      config.sliding_window = 5;
      config.experts = {.count = 4, .chosen = 2, .ffn_size = config.ffn_size, .normalised = true};
      break;
    case formats::Family::kFlexOlmo:
      config.norm_place = formats::NormPlace::kAfter;
      [[fallthrough]];
    case formats::Family::kOlmoe:
      config.qk_norm_whole = true;
      config.experts = {.count = 5, .chosen = 3, .ffn_size = config.ffn_size};
      break;
    case formats::Family::kQwen2Moe:
      config.qkv_bias = true;
      config.experts = {
          .count = 5, .chosen = 3, .ffn_size = 12, .shared_ffn_size = 16, .shared_gate = true};
      config.layer_is_dense = {0, 1};
      break;
    case formats::Family::kMellum:
    case formats::Family::kQwen3Moe:
      add_qwen3_moe_features(config);
      break;
    case formats::Family::kHunYuanMoe:
      add_hunyuan_features(config);
      break;
    case formats::Family::kExaoneMoe:
    case formats::Family::kSolarOpen:
    case formats::Family::kGlm4Moe:
    case formats::Family::kDots1:
      add_sigmoid_features(config);
      break;
    case formats::Family::kHyV3:
      add_hy3_features(config);
      break;
    case formats::Family::kLlama4:
      add_llama4_features(config);
      break;
    case formats::Family::kMiniMaxM2:
      config.qk_norm_whole = true;
      config.rotary_dim = 4;
      config.experts = {.count = 5,
                        .chosen = 3,
                        .ffn_size = config.ffn_size,
                        .normalised = true,
                        .sigmoid_scores = true,
                        .choice_bias = true,
                        .sum_offset = 0};
      break;
    case formats::Family::kErnie45Moe:
      config.turns_neighbours = config.tied_embeddings = true;
      config.layer_is_dense = {1, 0};
      config.experts = {.count = 6,
                        .chosen = 2,
                        .ffn_size = 12,
                        .shared_ffn_size = 24,
                        .normalised = true,
                        .choice_bias = true,
                        .sum_min = 1e-12};
      break;
    case formats::Family::kGraniteMoeSwa:
    case formats::Family::kGraniteMoe:
    case formats::Family::kGraniteMoeShared:
      add_granite_moe_features(config);
      break;
    default:
      break;
  }
}

}  // namespace jige::model::testing

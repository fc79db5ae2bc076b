// Small configurations of the families before Llama.
//
// Threads: free functions.
#pragma once

#include "formats/model_config.h"

namespace jige::model::testing {

// Of those without a table of positions.
inline void add_early_turning_features(formats::ModelConfig& config) {
  switch (config.family) {
    case formats::Family::kGptJ:
      config.residual = formats::ResidualForm::kParallelOneNorm;
      config.activation = formats::ActivationKind::kGeluTanh;
      config.turns_neighbours = config.head_bias = true;
      config.qkv_bias = config.output_bias = false;
      config.head_count = config.kv_head_count = 2;
      config.head_dim = 10;
      config.rotary_dim = 4;
      break;
    case formats::Family::kFalcon:
      config.residual = formats::ResidualForm::kParallel;
      config.activation = formats::ActivationKind::kGeluErf;
      config.qkv_by_head = config.tied_embeddings = true;
      config.qkv_bias = config.output_bias = config.mlp_bias = false;
      config.head_count = 10;
      config.kv_head_count = 2;
      config.head_dim = 2;
      break;
    default:  // GPT-NeoX
      config.residual = formats::ResidualForm::kParallel;
      config.activation = formats::ActivationKind::kGeluErf;
      config.qkv_by_head = true;
      config.head_count = config.kv_head_count = 2;
      config.head_dim = 10;
      config.rotary_dim = 4;
  }
}

inline void add_early_features(formats::ModelConfig& config) {
  config.norm = formats::NormKind::kLayer;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.kv_head_count = 4;
  config.head_dim = 5;
  switch (config.family) {
    case formats::Family::kOpt:
      config.position_offset = 2;
      config.activation = formats::ActivationKind::kGeluErf;  // differences meet no kinks
      break;
    case formats::Family::kGptNeo:
      config.qkv_bias = config.scores_by_head_dim = false;
      config.sliding_window = 5;
      config.layer_is_sliding = {0, 1};
      config.activation = formats::ActivationKind::kGeluTanh;
      break;
    case formats::Family::kGptBigCode:
      config.kv_head_count = 1;
      config.qkv_by_head = true;
      config.activation = formats::ActivationKind::kGeluTanh;
      break;
    case formats::Family::kGpt2:
      config.activation = formats::ActivationKind::kGeluTanh;
      break;
    default:
      return add_early_turning_features(config);
  }
  config.position = formats::PositionKind::kLearned;
  config.tied_embeddings = true;
}

}  // namespace jige::model::testing

// Small configurations of every family; the names of those of tests/fixtures/model come with them.
//
// Threads: free functions.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "formats/model_config.h"
#include "model/fixture_names_test_support.h"
#include "model/tiny_early_test_support.h"
#include "model/tiny_experts_test_support.h"
#include "model/tiny_gemma_test_support.h"
#include "model/tiny_recurrent_test_support.h"

namespace jige::model::testing {

// A delta net with decays by key below attention with latents and experts, without positions.
inline void add_kimi_features(formats::ModelConfig& config) {
  config.latent = {.rank = 9, .value_dim = 5};
  config.turns_neighbours = false;
  config.layer_is_unturned = {1, 1};
  config.layer_is_recurrent = {1, 0};
  config.delta = {.key_heads = 3,
                  .value_heads = 3,
                  .key_dim = 7,
                  .value_dim = 7,
                  .kernel = 3,
                  .by_key = true,
                  .draws_steps = true};
  config.norm_eps = 0.1;  // a head's first results may be near zero
  config.experts = sigmoid_experts();
  config.experts.groups = 1;
  config.layer_is_dense = {1, 0};
}

// What layers do whose keys and values come from a latent.
inline void add_latent_features(formats::ModelConfig& config) {
  config.kv_head_count = 4;
  config.head_dim = 10;
  config.rotary_dim = 4;
  config.latent = {.rank = 9, .query_rank = 7, .value_dim = 5};
  config.turns_neighbours = true;
  if (config.family == formats::Family::kYoutu) {
    config.tied_embeddings = true;
    config.latent.value_dim = 10;
  }
  if (config.family == formats::Family::kDeepSeekV2) {
    config.latent = {.rank = 12, .value_dim = 5};
    config.experts = {.count = 6,
                      .chosen = 2,
                      .ffn_size = 12,
                      .shared_ffn_size = 24,
                      .weight_scale = 1.5,
                      .groups = 3,
                      .chosen_groups = 2};
  }
  if (config.family == formats::Family::kMiniCpm3) {
    config.turns_neighbours = false;
    config.tied_embeddings = true;
    config.embedding_scale = 3.0;
    config.residual_scale = 0.6;
    config.logits_divisor = 2;
  }
  if (config.family == formats::Family::kMistral4) {
    config.experts = sigmoid_experts();
    config.experts.sigmoid_scores = config.experts.choice_bias = false;
    config.layer_is_dense = {1, 0};
    config.rope = {.theta = 100.0,
                   .scaling = formats::RopeScaling::kYarn,
                   .factor = 4.0,
                   .original_context = 4,
                   .query_growth = 0.2,
                   .mscale = 0.7,
                   .mscale_all = 0.7};
  }
  if (config.family == formats::Family::kKimiLinear) return add_kimi_features(config);
  const bool lite = config.family == formats::Family::kGlm4MoeLite;
  if (lite || config.family == formats::Family::kDeepSeekV3) {
    config.experts = sigmoid_experts();
    config.layer_is_dense = {1, 0};
    config.qkv_bias = config.output_bias = true;
    config.rope = {.theta = 100.0,
                   .scaling = formats::RopeScaling::kYarn,
                   .factor = 4.0,
                   .original_context = 16,
                   .mscale = 0.7,
                   .mscale_all = 0.7};
  }
}

inline void add_nanochat_features(formats::ModelConfig& config) {
  config.norm_weights = false;
  config.embedding_norm = config.turns_backwards = true;
  config.qk_norm_plain = config.qk_norm_turned = true;
  config.activation = formats::ActivationKind::kReluSquared;
  config.logits_cap = 3;
}

inline bool has_latents(formats::Family family) {
  switch (family) {
    case formats::Family::kYoutu:
    case formats::Family::kDeepSeekV2:
    case formats::Family::kDeepSeekV3:
    case formats::Family::kMiniCpm3:
    case formats::Family::kGlm4MoeLite:
    case formats::Family::kMistral4:
    case formats::Family::kKimiLinear:
      return true;
    default:
      return false;
  }
}

// What layers do that turn in other ways, or not all, and those of the first Gemma.
inline void add_turning_features(formats::ModelConfig& config) {
  if (has_latents(config.family)) return add_latent_features(config);
  switch (config.family) {
    case formats::Family::kGemma:
      config.norm_adds_one = true;
      config.activation = formats::ActivationKind::kGeGlu;
      config.embedding_scale = std::sqrt(20.0);
      config.tied_embeddings = true;
      break;
    case formats::Family::kGlm4:
      config.norm_place = formats::NormPlace::kAround;
      [[fallthrough]];
    case formats::Family::kGlm:
      config.qkv_bias = config.turns_neighbours = true;
      config.rotary_dim = 4;
      break;
    case formats::Family::kExaone4:
      config.norm_place = formats::NormPlace::kAfter;
      config.qk_norm = true;
      config.sliding_window = 5;
      config.layer_is_sliding = {1, 0};
      config.layer_is_unturned = {0, 1};
      break;
    case formats::Family::kMinistral3:
      config.rope = {.theta = 100.0,
                     .scaling = formats::RopeScaling::kYarn,
                     .factor = 4.0,
                     .original_context = 4,
                     .query_growth = 0.5};
      break;
    case formats::Family::kArcee:
      config.activation = formats::ActivationKind::kReluSquared;
      config.mlp_bias = true;
      break;
    case formats::Family::kHunYuanDense:
      config.qk_norm = config.qk_norm_turned = config.tied_embeddings = true;
      break;
    case formats::Family::kJais2:
      config.norm = formats::NormKind::kLayer;
      config.activation = formats::ActivationKind::kReluSquared;
      config.qkv_bias = config.output_bias = config.mlp_bias = true;
      break;
    case formats::Family::kCwm:
      config.mlp_bias = true;
      config.sliding_window = 5;
      config.layer_is_sliding = {0, 1};
      break;
    case formats::Family::kApertus:
      config.activation = formats::ActivationKind::kXielu;
      config.qk_norm = true;
      break;
    case formats::Family::kNemotron:
      config.norm = formats::NormKind::kLayer;
      config.norm_adds_one = true;
      config.activation = formats::ActivationKind::kReluSquared;
      config.rotary_dim = 4;
      break;
    case formats::Family::kErnie45:
      config.qkv_bias = config.output_bias = config.mlp_bias = config.turns_neighbours = true;
      config.tied_embeddings = true;
      break;
    default:
      add_expert_features(config);
  }
}

// Granite without experts, and what was made of it.
inline void add_granite_features(formats::ModelConfig& config) {
  if (config.family == formats::Family::kGraniteSwa) return add_granite_swa_features(config);
  add_granite_scales(config);
  if (config.family == formats::Family::kGranite) {
    config.tied_embeddings = true;
    return;
  }
  config.norm_place = formats::NormPlace::kAround;
  config.logits_divisor = 1;
  config.logits_scale = 0.7;
}

// What layers of the newer families do that others do not.
inline void add_layer_features(formats::ModelConfig& config) {
  switch (config.family) {
    case formats::Family::kPhi3:
      config.fused_projections = true;
      config.rotary_dim = 4;
      break;
    case formats::Family::kVaultGemma:
    case formats::Family::kGemma2:
    case formats::Family::kGemma3:
      add_gemma_features(config);
      break;
    case formats::Family::kGemma4:
      add_gemma4_features(config);
      break;
    case formats::Family::kGemma3n:
      add_gemma3n_features(config);
      break;
    case formats::Family::kOlmo2:
      config.norm_place = formats::NormPlace::kAfter;
      config.qk_norm_whole = true;
      break;
    case formats::Family::kOlmo3:
      config.norm_place = formats::NormPlace::kAfter;
      config.qk_norm_whole = true;
      config.sliding_window = 5;
      config.layer_is_sliding = {1, 0};
      config.rope.scaling = formats::RopeScaling::kLinear;
      config.rope.factor = 2;
      config.sliding_rope = formats::RopeConfig{};
      break;
    case formats::Family::kStarCoder2:
      config.norm = formats::NormKind::kLayer;
      config.activation = formats::ActivationKind::kGeluTanh;
      config.qkv_bias = config.output_bias = config.mlp_bias = true;
      config.sliding_window = 5;
      config.tied_embeddings = true;
      break;
    case formats::Family::kStableLm:
      config.norm = formats::NormKind::kLayer;
      config.qkv_bias = true;
      config.rotary_dim = 2;
      break;
    case formats::Family::kHelium:
      config.turns_neighbours = config.qkv_bias = true;
      break;
    case formats::Family::kNanoChat:
      add_nanochat_features(config);
      break;
    case formats::Family::kOlmo:
      config.norm = formats::NormKind::kLayer;
      config.norm_bias = config.norm_weights = false;
      break;
    case formats::Family::kInternLm3:
      config.output_bias = true;
      [[fallthrough]];
    case formats::Family::kSeedOss:
      config.qkv_bias = config.mlp_bias = true;
      break;
    case formats::Family::kGranite:
    case formats::Family::kGraniteSwa:
    case formats::Family::kHyperClovaX:
      add_granite_features(config);
      break;
    case formats::Family::kSmolLm3:
      config.layer_is_unturned = {0, 1};
      config.tied_embeddings = true;
      break;
    default:
      add_turning_features(config);
  }
}

// What layers do whose parts stand side by side.
inline void add_parallel_features(formats::ModelConfig& config) {
  config.norm = formats::NormKind::kLayer;
  config.residual = formats::ResidualForm::kParallelOneNorm;
  switch (config.family) {
    case formats::Family::kPhi:
      config.activation = formats::ActivationKind::kGeluTanh;
      config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
      config.rotary_dim = 4;
      break;
    default:  // Cohere
      config.norm_bias = false;
      if (config.family == formats::Family::kCohere) {
        config.qk_norm_apart = true;
      } else {
        config.sliding_window = 5;
        config.layer_is_sliding = {1, 0};
        config.layer_is_unturned = {0, 1};
      }
      config.turns_neighbours = true;
      config.logits_scale = 0.7;
      config.tied_embeddings = true;
  }
}

// Of families with recurrent layers; of others what layers do.
inline void add_hybrid_features(formats::ModelConfig& config) {
  switch (config.family) {
    case formats::Family::kQwen35:
    case formats::Family::kQwen35Moe:
    case formats::Family::kQwen3Next:
      add_recurrent_features(config);
      break;
    case formats::Family::kOlmoHybrid:
      add_olmo_hybrid_features(config);
      break;
    case formats::Family::kLfm2:
    case formats::Family::kLfm2Moe:
    case formats::Family::kLfm3:
      add_short_conv_features(config);
      break;
    case formats::Family::kGraniteHybrid:
    case formats::Family::kBamba:
    case formats::Family::kNemotronH:
    case formats::Family::kFalconH1:
      add_mamba2_features(config);
      break;
    case formats::Family::kJamba:
      add_jamba_features(config);
      break;
    case formats::Family::kMamba:
    case formats::Family::kFalconMamba:
    case formats::Family::kMamba2:
      add_recurrent_only_features(config);
      break;
    default:
      add_layer_features(config);
  }
}

// What layers do that compute as Llama's do, but for one thing.
inline void add_llama_features(formats::ModelConfig& config) {
  if (config.family == formats::Family::kMinistral) {
    config.sliding_window = 5;
    config.layer_is_sliding = {1, 0};
  } else if (config.family == formats::Family::kInternLm2) {
    config.qkv_by_head = true;
    config.head_dim = 5 * 2;
    config.head_count = 2;
    config.kv_head_count = 1;
  } else {  // MiniCPM
    config.tied_embeddings = true;
    config.embedding_scale = 3.0;
    config.residual_scale = 0.6;
    config.logits_divisor = 2;
  }
}

// A model small enough for finite differences, with every feature of its family.
inline formats::ModelConfig tiny_config(formats::Family family) {
  formats::ModelConfig config;
  config.family = family;
  config.vocab_size = 37;
  config.hidden_size = 20;
  config.layer_count = 2;
  config.head_count = 4;
  config.kv_head_count = 2;
  config.head_dim = 6;
  config.ffn_size = 28;
  config.context_max = 64;
  config.eos_ids = {2};
  switch (family) {
    case formats::Family::kLlama:
    case formats::Family::kIQuestCoder:
    case formats::Family::kExaone:
      break;
    case formats::Family::kMinistral:
    case formats::Family::kMiniCpm:
    case formats::Family::kInternLm2:
      add_llama_features(config);
      break;
    case formats::Family::kMistral:
      config.sliding_window = 5;
      break;
    case formats::Family::kQwen2:
      config.head_dim = 5 * 2;
      config.head_count = 2;
      config.qkv_bias = true;
      config.tied_embeddings = true;
      break;
    case formats::Family::kQwen3:
      config.qk_norm = true;
      config.tied_embeddings = true;
      break;
    case formats::Family::kGpt2:
    case formats::Family::kGptBigCode:
    case formats::Family::kOpt:
    case formats::Family::kGptNeo:
    case formats::Family::kGptJ:
    case formats::Family::kGptNeoX:
    case formats::Family::kFalcon:
      add_early_features(config);
      break;
    case formats::Family::kPhi:
    case formats::Family::kCohere:
    case formats::Family::kCohere2:
      add_parallel_features(config);
      break;
    default:
      add_hybrid_features(config);
  }
  if (config.kv_head_count > config.head_count) config.kv_head_count = config.head_count;
  return config;
}

// Without what makes a model answer sharply to small changes: for comparisons of numbers. The
// gradients of layers' inputs are compared with PyTorch's. Gemma 3n keeps them.
inline formats::ModelConfig without_layer_inputs(formats::ModelConfig config) {
  if (config.layer_inputs.size == 0) return config;
  config = formats::first_layers(std::move(config), config.layer_count - config.shared_kv_layers);
  if (config.altup.streams > 0) return config;
  config.layer_inputs = {};
  config.shared_double_ffn = false;
  return config;
}

// Those of language models, but for gpt-oss, whose experts alone have a test.
inline const std::vector<formats::Family>& all_families() {
  static const std::vector<formats::Family> families = [] {
    std::vector<formats::Family> all;
    for (int i = 0; i <= static_cast<int>(formats::kLastFamily); ++i) {
      const auto family = static_cast<formats::Family>(i);
      if (!formats::is_encoder(family) && family != formats::Family::kGptOss) all.push_back(family);
    }
    return all;
  }();
  return families;
}

}  // namespace jige::model::testing

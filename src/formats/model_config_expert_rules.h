// Which families with experts have them by the same rules: how they choose, and in which layers.
//
// Internal to the model_config*.cc files. Threads: constants and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/model_config.h"

namespace jige::formats {

inline constexpr const char* kDenseLayersField = "mlp_only_layers";
inline constexpr const char* kSharedField = "shared_expert_intermediate_size";
inline constexpr const char* kGroupsField = "n_group";
inline constexpr const char* kChosenGroupsField = "topk_group";

// Families any of whose layers may have no experts, and whose experts have a size of their own.
inline bool is_qwen_moe(Family family) {
  return family == Family::kQwen2Moe || family == Family::kQwen3Moe ||
         family == Family::kQwen3Next || family == Family::kMellum;
}

// Families that choose experts as DeepSeek does, and what they take for fields left out.
struct DeepSeekRouter {
  int64_t dense = 0;  // leading layers without experts
  int64_t shared = 1;
  double scale = 1;
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  bool sigmoid = true;   // with a bias for the choice
  bool pairs = sigmoid;  // groups count by their two best
  bool normalised = pairs;
};

// What weights are multiplied with.
inline const char* scale_field(Family family) {
  return family == Family::kHyV3 ? "router_scaling_factor" : "routed_scaling_factor";
}

// The field that counts what every token uses.
inline const char* shared_count_field(Family family) {
  const bool counted = family == Family::kExaoneMoe || family == Family::kHyV3;
  return counted ? "num_shared_experts" : "n_shared_experts";
}

inline std::optional<DeepSeekRouter> deepseek_router(Family family) {
  if (family == Family::kDeepSeekV2) return DeepSeekRouter{.shared = 2, .sigmoid = false};
  if (family == Family::kDeepSeekV3) {
    return DeepSeekRouter{.dense = 3, .scale = 2.5, .groups = 8, .chosen_groups = 4};
  }
  if (family == Family::kKimiLinear) return DeepSeekRouter{.dense = 1, .scale = 2.446};
  if (family == Family::kHyV3) return DeepSeekRouter{.dense = 1, .scale = 2.826};
  if (family == Family::kExaoneMoe) return DeepSeekRouter{.dense = 1, .scale = 2.5};
  if (family == Family::kMistral4) return DeepSeekRouter{.sigmoid = false, .pairs = true};
  if (family == Family::kGlm4Moe) return DeepSeekRouter{.dense = 1};
  if (family == Family::kGlm4MoeLite) return DeepSeekRouter{.dense = 1, .scale = 1.8};
  if (family == Family::kNemotronH || family == Family::kSolarOpen) return DeepSeekRouter{};
  if (family == Family::kDots1) return DeepSeekRouter{.shared = 0, .normalised = false};
  return std::nullopt;
}

// Families that name whether a layer has experts.
inline bool names_layers(Family family) {
  return family == Family::kGlm4MoeLite || family == Family::kExaoneMoe ||
         family == Family::kMellum || family == Family::kHyV3 || family == Family::kKimiLinear;
}

// Families whose experts have a width of their own, beside intermediate_size.
inline bool has_own_width(Family family) {
  return is_qwen_moe(family) || deepseek_router(family) || family == Family::kLfm2Moe ||
         family == Family::kErnie45Moe || family == Family::kLlama4;
}

// Families whose first layers have no experts, as many as a field says.
inline bool leads_without_experts(Family family) {
  return deepseek_router(family) || family == Family::kLfm2Moe;
}

}  // namespace jige::formats

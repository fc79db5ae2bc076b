// How families with experts spell their fields in config.json, and what they take where these are
// left out.
//
// Internal to the model_config*.cc files. Threads: constants and pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/model_config.h"
#include "formats/model_families.h"

namespace jige::formats {

inline constexpr std::string_view kNewCountField =
    "num_local_experts";  // of every family since 5.0

inline constexpr std::string_view kChosenField = "num_experts_per_tok";

struct ExpertFields {
  std::string_view count;
  std::string_view ffn;
  int64_t count_default;
  int64_t chosen_default;
  int64_t ffn_default;
  int64_t shared_default = 0;  // of shared_expert_intermediate_size; 0: there is no such expert
  std::string_view chosen = kChosenField;
};

// Of families that came later, and of Qwen3 with experts.
inline ExpertFields later_expert_fields(const ModelConfig& config) {
  if (config.family == Family::kKimiLinear) {
    return {"num_experts", "moe_intermediate_size", 256, 8, 1024};
  }
  if (config.family == Family::kHyV3) {
    return {"num_experts", "moe_intermediate_size", 192, 8, 1536};
  }
  if (config.family == Family::kExaoneMoe) {
    return {"num_experts", "moe_intermediate_size", 64, 8, 1024};
  }
  if (config.family == Family::kMellum) {
    return {"num_experts", "moe_intermediate_size", 64, 8, 896};
  }
  if (config.family == Family::kMistral4) {
    return {"n_routed_experts", "moe_intermediate_size", 128, 4, 2048};
  }
  if (config.family == Family::kJamba) {
    return {"num_experts", "intermediate_size", 16, 2, config.ffn_size};
  }
  return {"num_experts", "moe_intermediate_size", 128, 8, 768};
}

inline ExpertFields expert_fields(const ModelConfig& config) {
  if (config.family == Family::kMixtral) {
    return {kNewCountField, "intermediate_size", 8, 2, config.ffn_size};
  }
  if (config.family == Family::kLlama4) return {kNewCountField, "intermediate_size", 16, 1, 8192};
  if (config.family == Family::kGptOss) {
    return {kNewCountField, "intermediate_size", 128, 4, config.ffn_size};
  }
  if (config.family == Family::kOlmoe) {
    return {"num_experts", "intermediate_size", 64, 8, config.ffn_size};
  }
  if (config.family == Family::kFlexOlmo) {
    return {"num_experts", "intermediate_size", 7, 5, config.ffn_size};
  }
  if (config.family == Family::kQwen2Moe) {
    return {"num_experts", "moe_intermediate_size", 60, 4, 1408, 5632};
  }
  if (config.family == Family::kQwen35Moe) {
    return {"num_experts", "moe_intermediate_size", 256, 8, config.ffn_size, 512};
  }
  if (config.family == Family::kQwen3Next) {
    return {"num_experts", "moe_intermediate_size", 512, 10, 512, 512};
  }
  if (config.family == Family::kDeepSeekV2) {
    return {"n_routed_experts", "moe_intermediate_size", 64, 0, 1407};
  }
  if (config.family == Family::kDeepSeekV3) {
    return {"n_routed_experts", "moe_intermediate_size", 256, 8, 2048};
  }
  if (config.family == Family::kGlm4Moe || config.family == Family::kSolarOpen) {
    return {"n_routed_experts", "moe_intermediate_size", 128, 8, 1408};  // of Solar it is there
  }
  if (config.family == Family::kGlm4MoeLite) {
    return {"n_routed_experts", "moe_intermediate_size", 64, 4, 1536};
  }
  if (config.family == Family::kNemotronH) {
    return {"n_routed_experts", "moe_intermediate_size", 8, 2, 7688};
  }
  if (is_granite_moe(config.family)) {
    return {kNewCountField, "intermediate_size", 8, 2, config.ffn_size};
  }
  if (config.family == Family::kDots1) {  // the first two must be there
    return {"n_routed_experts", "moe_intermediate_size", 0, 0, 1408};
  }
  if (config.family == Family::kMiniMaxM2) {
    return {kNewCountField, "intermediate_size", 256, 8, config.ffn_size};
  }
  if (config.family == Family::kHunYuanMoe) {
    return {"num_experts", "intermediate_size", 1, 1, config.ffn_size, 0, "moe_topk"};
  }
  if (config.family == Family::kErnie45Moe) {
    return {"moe_num_experts", "moe_intermediate_size", 64, 6, 1536, 0, "moe_k"};
  }
  if (config.family == Family::kGemma4) return {"num_experts", "moe_intermediate_size", 0, 0, 0};
  if (config.family == Family::kLfm2Moe) {
    return {"num_experts", "moe_intermediate_size", 32, 4, 1792};
  }
  return later_expert_fields(config);
}

}  // namespace jige::formats

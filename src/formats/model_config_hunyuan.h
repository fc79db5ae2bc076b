// The fields of config.json that Hunyuan with experts has for itself: num_experts, moe_topk,
// num_shared_expert and moe_intermediate_size, each a number or a list with one for every layer.
// All layers are alike, and have experts of intermediate_size and one more that every token uses.
//
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Whether it is Hunyuan, with experts or without.
constexpr bool is_hunyuan(Family family) {
  return family == Family::kHunYuanDense || family == Family::kHunYuanMoe;
}

// Fails with kUnsupported where layers differ, or have what transformers does not compute.
Status parse_hunyuan_experts(const Json& config, ModelConfig& out, std::string_view where);
void emit_hunyuan_experts(const ModelConfig& config, Json& out);
// What every token uses.
Status check_hunyuan_shared(const ModelConfig& config, std::string_view where);

}  // namespace jige::formats

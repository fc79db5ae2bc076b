// The fields of config.json about experts: reading, writing, checks and counts.
//
//   mixtral     num_local_experts, num_experts_per_tok, intermediate_size is an expert's
//   qwen2_moe   as qwen3_moe, and shared_expert_intermediate_size
//   qwen3_moe   num_experts (transformers 5: num_local_experts), num_experts_per_tok,
//               moe_intermediate_size, norm_topk_prob, decoder_sparse_step, mlp_only_layers
//   mellum      as qwen3_moe, of which layers have experts mlp_layer_types
//   qwen3_5_moe num_experts, num_experts_per_tok, moe_intermediate_size,
//               shared_expert_intermediate_size
//   qwen3_next  as qwen3_moe, and shared_expert_intermediate_size
//   gpt_oss     num_local_experts, num_experts_per_tok, intermediate_size, swiglu_alpha,
//               swiglu_limit
//   deepseek_v2, deepseek_v3, mistral4, glm4_moe, glm4_moe_lite, dots1,
//               hy_v3 (router_scaling_factor)
//               n_routed_experts, num_experts_per_tok, moe_intermediate_size, n_shared_experts,
//               first_k_dense_replace, routed_scaling_factor, n_group, topk_group, norm_topk_prob,
//               topk_method, scoring_func, moe_layer_freq, of glm4_moe_lite mlp_layer_types;
//               without experts where no layer is left
//   minimax_m2  as mixtral
//   gemma4_text see model_config_gemma4.h
//   lfm2_moe    see model_config_lfm2.h
//   ernie4_5_moe see model_config_ernie.h
//   jamba       see model_config_jamba.h
//   granitemoe, granitemoeshared, granitemoe_swa, granitemoehybrid
//               see model_config_granite.h
// Internal to the model_config*.cc files. Threads: pure functions.
#pragma once

#include <string_view>

#include "formats/model_config.h"

namespace jige::formats {

// Reads them into out.experts and out.layer_is_dense. Fails with kUnsupported naming the field
// where no layer of other families has experts, kCorrupt where fields contradict each other.
// REQUIRES: a family with experts, and the sizes that all families have.
Status parse_experts(const Json& config, ModelConfig& out, std::string_view where);

// The same fields as transformers writes and reads them.
void emit_experts(const ModelConfig& config, Json& out);

// What check_model_config says of them.
Status check_experts(const ModelConfig& config, std::string_view where);

// Parameters of the router, so many experts and the shared one of a layer.
int64_t expert_parameter_count(const ModelConfig& config, int64_t experts);

}  // namespace jige::formats

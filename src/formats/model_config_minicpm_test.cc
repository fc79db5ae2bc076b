// MiniCPM, InternLM2, Ministral and Kimi K2, which transformers has no or other classes for.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// As published.
Json minicpm_2b() {
  return {{"model_type", "minicpm"},   {"architectures", {"MiniCPMForCausalLM"}},
          {"vocab_size", 122753},      {"hidden_size", 2304},
          {"intermediate_size", 5760}, {"num_hidden_layers", 40},
          {"num_attention_heads", 36}, {"num_key_value_heads", 36},
          {"rms_norm_eps", 1e-5},      {"max_position_embeddings", 4096},
          {"scale_emb", 12},           {"scale_depth", 1.4},
          {"dim_model_base", 256}};
}

Json internlm2_7b() {
  return {{"model_type", "internlm2"},
          {"architectures", {"InternLM2ForCausalLM"}},
          {"vocab_size", 92544},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 32768},
          {"bias", false},
          {"rope_theta", 1e6},
          {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}};
}

TEST(ModelConfigMiniCpm, HasTheSizesAndScalesOfThePublishedModel) {
  const ModelConfig config = config_of(minicpm_2b());
  EXPECT_EQ(parameter_count(config), 2724880896);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_EQ(config.residual_scale, 1.4 / std::sqrt(40.0));
  EXPECT_EQ(config.logits_divisor, 9);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_EQ(config_of(changed(minicpm_2b(), {{"num_experts", 0}})), config);
}

TEST(ModelConfigMiniCpm, TurnsAsMiniCpm4Does) {
  const Json factors(std::vector<double>(32, 1.5));
  const Json longrope = {{"rope_type", "longrope"},
                         {"short_factor", factors},
                         {"long_factor", factors},
                         {"original_max_position_embeddings", 32768}};
  const ModelConfig config = config_of(
      changed(minicpm_2b(), {{"max_position_embeddings", 131072}, {"rope_scaling", longrope}}));
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(config.rope.original_context, 32768);
  EXPECT_NEAR(config.rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(32768.0)),
              1e-12);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(ModelConfigMiniCpm, ScalesPositionsAsItsOwnCodeDoes) {
  const auto scaled = [](const char* type) {
    return parsed(changed(minicpm_2b(), {{"rope_scaling", {{"type", type}, {"factor", 4.0}}}}));
  };
  EXPECT_EQ(scaled("dynamic")->rope.scaling, RopeScaling::kNone);  // up to the context
  EXPECT_EQ(scaled("linear")->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(config_of(to_hf_config(*scaled("linear"))), *scaled("linear"));
  EXPECT_FAILS_WITH(scaled("yarn"), Code::kUnsupported, "default, dynamic, linear and longrope");
}

TEST(ModelConfigMiniCpm, RefusesWhatItDoesNotCompute) {
  for (const char* field : {"scale_emb", "scale_depth", "dim_model_base"}) {
    Json json = minicpm_2b();
    json.erase(field);
    EXPECT_FAILS_WITH(parsed(json), Code::kNotFound, field);
  }
  EXPECT_FAILS_WITH(parsed(changed(minicpm_2b(), {{"num_experts", 8}})), Code::kUnsupported,
                    "\"num_experts\" is 8");
  EXPECT_FAILS_WITH(parsed(changed(minicpm_2b(), {{"sparse_config", {{"topk", 64}}}})),
                    Code::kUnsupported, "\"sparse_config\"");
}

TEST(ModelConfigInternLm2, HasTheSizesOfThePublishedModel) {
  const ModelConfig config = config_of(internlm2_7b());
  EXPECT_EQ(parameter_count(config), 7737708544);
  EXPECT_EQ(config.kv_head_count, 8);
  EXPECT_TRUE(config.qkv_by_head);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);  // up to the context nothing changes
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_FAILS_WITH(parsed(changed(internlm2_7b(), {{"bias", true}})), Code::kUnsupported,
                    "\"bias\" is true");
  Json unsaid = internlm2_7b();
  unsaid.erase("bias");
  EXPECT_FAILS_WITH(parsed(unsaid), Code::kNotFound, "\"bias\" is missing");
}

TEST(ModelConfigKimiK2, IsADeepSeekV3ByAnotherName) {
  Json json = {{"model_type", "deepseek_v3"},
               {"vocab_size", 163840},
               {"hidden_size", 7168},
               {"intermediate_size", 18432},
               {"moe_intermediate_size", 2048},
               {"num_hidden_layers", 61},
               {"num_attention_heads", 64},
               {"num_key_value_heads", 64},
               {"n_routed_experts", 384},
               {"num_experts_per_tok", 8},
               {"n_shared_experts", 1},
               {"first_k_dense_replace", 1},
               {"n_group", 1},
               {"topk_group", 1},
               {"routed_scaling_factor", 2.827},
               {"max_position_embeddings", 131072}};
  const ModelConfig config = config_of(json);
  json["model_type"] = "kimi_k2";
  json["architectures"] = {"DeepseekV3ForCausalLM"};
  EXPECT_EQ(config_of(json), config);
  EXPECT_NEAR(static_cast<double>(parameter_count(config)), 1.026e12, 1e9);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(config)), 32.9e9, 1e9);
}

}  // namespace
}  // namespace jige::formats

// config.json of gpt-oss.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// The sizes of gpt-oss-20b.
Json gpt_oss_json() {
  return {{"architectures", {"GptOssForCausalLM"}},
          {"model_type", "gpt_oss"},
          {"vocab_size", 201088},
          {"hidden_size", 2880},
          {"intermediate_size", 2880},
          {"num_hidden_layers", 24},
          {"num_attention_heads", 64},
          {"num_key_value_heads", 8},
          {"head_dim", 64},
          {"num_local_experts", 32},
          {"num_experts_per_tok", 4},
          {"max_position_embeddings", 131072},
          {"sliding_window", 128},
          {"rope_theta", 150000},
          {"rope_scaling",
           {{"rope_type", "yarn"},
            {"factor", 32.0},
            {"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"truncate", false},
            {"original_max_position_embeddings", 4096}}},
          {"quantization_config", {{"quant_method", "mxfp4"}}}};
}

ModelConfig gpt_oss_in(const Json& json) {
  const auto config = parse_model_config(json, "config.json");
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  return config.value_or(ModelConfig{});
}

std::string gpt_oss_refusal(const char* field, const Json& value) {
  Json json = gpt_oss_json();
  json[field] = value;
  const auto config = parse_model_config(json, "config.json");
  return config ? "read" : config.error().message;
}

TEST(GptOssConfig, HasTheParametersThatThePublishedModelsHave) {
  const ModelConfig small = gpt_oss_in(gpt_oss_json());
  EXPECT_EQ(parameter_count(small), 20'914'757'184);
  EXPECT_NEAR(static_cast<double>(active_parameter_count(small)), 4.19e9, 1e7);
  Json json = gpt_oss_json();
  json["num_hidden_layers"] = 36;
  json["num_local_experts"] = 128;
  EXPECT_EQ(parameter_count(gpt_oss_in(json)), 116'829'156'672);
}

TEST(GptOssConfig, IsReadWithItsDefaults) {
  Json json = gpt_oss_json();
  for (const char* field : {"rope_scaling", "rope_theta", "sliding_window", "head_dim",
                            "num_key_value_heads", "num_experts_per_tok"}) {
    json.erase(field);
  }
  const ModelConfig config = gpt_oss_in(json);
  EXPECT_EQ(config, gpt_oss_in(gpt_oss_json()));
  EXPECT_TRUE(config.attention_sinks && config.qkv_bias && config.output_bias);
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 32,
                                          .chosen = 4,
                                          .ffn_size = 2880,
                                          .normalised = true,
                                          .biases = true,
                                          .gate_limit = 7.0,
                                          .gate_alpha = 1.702}));
  EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.sliding_window, 128);
  ASSERT_EQ(config.layer_is_sliding.size(), 24u);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(config.layer_is_sliding[i], i % 2 == 0);
  EXPECT_EQ(config.stored_dtype, DType::kBF16);
}

TEST(GptOssConfig, ReadsBackWhatItWrites) {
  Json json = gpt_oss_json();
  EXPECT_EQ(gpt_oss_in(to_hf_config(gpt_oss_in(json))), gpt_oss_in(json));
  EXPECT_FALSE(to_hf_config(gpt_oss_in(json)).contains("quantization_config"));
  json["swiglu_limit"] = 3.5;
  json["attention_bias"] = false;
  json["rope_scaling"] = {{"rope_type", "default"}};
  json["num_hidden_layers"] = 2;
  json["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(gpt_oss_in(to_hf_config(gpt_oss_in(json))), gpt_oss_in(json));
  json["sliding_window"] = nullptr;
  json["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(gpt_oss_in(to_hf_config(gpt_oss_in(json))), gpt_oss_in(json));
}

TEST(GptOssConfig, RefusesByFieldWhatCannotBe) {
  EXPECT_NE(gpt_oss_refusal("swiglu_limit", 0).find("swiglu_limit is 0"), std::string::npos);
  EXPECT_NE(gpt_oss_refusal("swiglu_alpha", -1).find("swiglu_alpha -1"), std::string::npos);
  EXPECT_NE(gpt_oss_refusal("swiglu_limit", 1e9).find("\"swiglu_limit\" is"), std::string::npos);
  EXPECT_NE(gpt_oss_refusal("hidden_act", "gelu").find("gelu"), std::string::npos);
  EXPECT_NE(gpt_oss_refusal("quantization_config", {{"quant_method", "fp8"}}).find("\"fp8\""),
            std::string::npos);
}

}  // namespace
}  // namespace jige::formats

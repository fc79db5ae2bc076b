// Rope scaling "yarn" in config.json.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json yarn_qwen_json(const Json& scaling) {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"model_type", "qwen2"},
          {"vocab_size", 96},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 4096},
          {"rope_theta", 1000000.0},
          {"rope_scaling", scaling}};
}

RopeConfig rope_of(const Json& scaling) {
  const auto config = parse_model_config(yarn_qwen_json(scaling), "config.json");
  EXPECT_TRUE(config.has_value()) << (config ? "" : config.error().message);
  if (!config) return {};
  const auto again = parse_model_config(to_hf_config(*config), "written");
  EXPECT_TRUE(again.has_value()) << (again ? "" : again.error().message);
  if (!again) return {};
  EXPECT_EQ(again->rope, config->rope) << "what is written reads otherwise";
  return config->rope;
}

// Attention factors as transformers 5.23 computes them.
TEST(YarnConfig, TakesTheDefaultsOfTransformers) {
  const RopeConfig rope = rope_of({{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", nullptr}});
  EXPECT_EQ(rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(rope.original_context, 4096);
  EXPECT_EQ(rope.beta_fast, 32.0);
  EXPECT_EQ(rope.beta_slow, 1.0);
  EXPECT_TRUE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 1.138629436111989, 1e-14);
}

TEST(YarnConfig, ReadsEveryField) {
  const RopeConfig rope = rope_of({{"rope_type", "yarn"},
                                   {"factor", 40.0},
                                   {"beta_fast", 16},
                                   {"beta_slow", 2},
                                   {"truncate", false},
                                   {"mscale", 0.707},
                                   {"mscale_all_dim", 1.0},
                                   {"original_max_position_embeddings", 1024}});
  EXPECT_EQ(rope.original_context, 1024);
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 2.0);
  EXPECT_FALSE(rope.truncate);
  EXPECT_NEAR(rope.attention_factor, 0.9210423553163399, 1e-14);
  EXPECT_EQ(
      rope_of({{"rope_type", "yarn"}, {"factor", 2.0}, {"attention_factor", 1.5}}).attention_factor,
      1.5);
}

TEST(YarnConfig, RefusesWhatCannotBe) {
  const auto code_of = [](const char* field, const Json& value) {
    Json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}};
    scaling[field] = value;
    const auto config = parse_model_config(yarn_qwen_json(scaling), "config.json");
    return config ? std::string("read") : config.error().message;
  };
  EXPECT_NE(code_of("factor", 0.5).find("\"factor\" is 0.5"), std::string::npos);
  EXPECT_NE(code_of("beta_slow", 33).find("\"beta_slow\" is 33"), std::string::npos);
  EXPECT_NE(code_of("beta_fast", -1).find("\"beta_fast\" is -1"), std::string::npos);
  EXPECT_NE(code_of("attention_factor", 0).find("\"attention_factor\" is 0"), std::string::npos);
  EXPECT_NE(code_of("original_max_position_embeddings", 0).find("is 0; it must lie in [1"),
            std::string::npos);
}

TEST(YarnConfig, OfMinistral3LetsQueriesGrow) {
  Json json = yarn_qwen_json(nullptr);
  json["model_type"] = "ministral3";
  json.erase("architectures");
  json.erase("rope_theta");
  const auto usual = parse_model_config(json, "config.json");
  ASSERT_TRUE(usual) << usual.error().message;
  EXPECT_EQ(usual->rope, (RopeConfig{.theta = 1e6,
                                     .scaling = RopeScaling::kYarn,
                                     .factor = 16.0,
                                     .original_context = 16384,
                                     .query_growth = 0.1}));
  Json rope = {{"rope_type", "yarn"}, {"factor", 4.0}, {"llama_4_scaling_beta", 0.3}};
  const auto parsed = [&] {
    json["rope_parameters"] = rope;
    return parse_model_config(json, "config.json");
  };
  EXPECT_EQ(parsed()->rope.query_growth, 0.3);
  rope["llama_4_scaling_beta"] = -0.1;
  EXPECT_FAILS_WITH(parsed(), Code::kCorrupt, "\"llama_4_scaling_beta\" is -0.1");
  rope.erase("llama_4_scaling_beta");
  EXPECT_FAILS_WITH(parsed(), Code::kNotFound, "llama_4_scaling_beta");
  rope["rope_type"] = "default";
  EXPECT_FAILS_WITH(parsed(), Code::kUnsupported, "yarn alone");
}

}  // namespace
}  // namespace jige::formats

// What config.json says of families whose activation or positions are their own: Apertus, HunYuan.
#include <cmath>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(ApertusConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of(family_json("apertus"));
  EXPECT_EQ(config.activation, ActivationKind::kXielu);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.rope.theta, 1.2e7);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.rope.original_context, 8192);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.pad_id, 3);
  const ModelConfig plain =
      config_of(changed(family_json("apertus"), {{"rope_parameters", {{"rope_type", "default"}}}}));
  EXPECT_EQ(plain.rope, (RopeConfig{.theta = 1.2e7}));
  for (const ModelConfig& one : {config, plain}) {
    EXPECT_EQ(config_of(to_hf_config(one)), one);
    EXPECT_EQ(to_hf_config(one)["hidden_act"], "xielu");
  }
  EXPECT_EQ(lora_linear_modules(config), (std::vector<std::string>{"down_proj", "k_proj", "o_proj",
                                                                   "q_proj", "up_proj", "v_proj"}));
}

// Those of transformers, and two numbers a layer that files have and nothing trains.
TEST(ApertusConfig, CountsTheParametersOfPublishedModels) {
  const auto count = [](int64_t width, int64_t ffn, int64_t layers, int64_t heads) {
    return parameter_count(
        config_of(changed(family_json("apertus"), {{"vocab_size", 131072},
                                                   {"hidden_size", width},
                                                   {"intermediate_size", ffn},
                                                   {"num_hidden_layers", layers},
                                                   {"num_attention_heads", heads},
                                                   {"num_key_value_heads", 8}})));
  };
  EXPECT_EQ(count(4096, 21504, 32, 32), 8053338176 + 2 * 32);   // 8B
  EXPECT_EQ(count(8192, 43008, 80, 64), 70599864480 + 2 * 80);  // 70B
}

TEST(ApertusConfig, RefusesWhatCannotBe) {
  const auto with = [](const Json& members) {
    return parsed(changed(family_json("apertus"), members));
  };
  EXPECT_FAILS_WITH(with({{"hidden_act", "silu"}}), Code::kUnsupported, "xielu");
  EXPECT_FAILS_WITH(with({{"rope_theta", 5e5}}), Code::kCorrupt, "rope_theta");
  ModelConfig config = config_of(family_json("apertus"));
  config.activation = ActivationKind::kReluSquared;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "xIELU");
}

TEST(HunYuanConfig, NormsOfHeadsAreBehindTheirTurningAndAlphaRaisesTheta) {
  Json json = changed(family_json("hunyuan_v1_dense"), {{"head_dim", 16}});
  const ModelConfig usual = config_of(json);
  EXPECT_TRUE(usual.qk_norm && usual.qk_norm_turned);
  EXPECT_EQ(usual.rope, RopeConfig());
  EXPECT_EQ(usual.norm_eps, 1e-5);
  EXPECT_EQ(usual.pad_id, 0);
  const Json published = {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}};
  const ModelConfig raised = config_of(changed(json, {{"rope_scaling", published}}));
  EXPECT_NEAR(raised.rope.theta, 1e4 * std::pow(1000.0, 16.0 / 14.0), 1e-3);
  EXPECT_EQ(raised.rope.scaling, RopeScaling::kNone);
  for (const ModelConfig& config : {usual, raised}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);  // as a theta
  }
  for (const Json& wrong :
       {Json{{"type", "dynamic"}, {"factor", 2.0}}, Json{{"type", "dynamic"}, {"alpha", 1e9}}}) {
    EXPECT_FAILS_WITH(parsed(changed(json, {{"rope_scaling", wrong}})), Code::kUnsupported,
                      "alpha");
  }
  EXPECT_FAILS_WITH(parsed(changed(json, {{"rope_scaling", {{"type", "yarn"}}}})),
                    Code::kUnsupported, "yarn");
  ModelConfig llama = config_of(family_json("llama"));
  llama.qk_norm_turned = true;
  EXPECT_FAILS_WITH(check_model_config(llama, "x"), Code::kInvalidArgument, "turning");
  const Json large = {
      {"vocab_size", 128167},    {"hidden_size", 4096},        {"intermediate_size", 14336},
      {"num_hidden_layers", 32}, {"num_attention_heads", 32},  {"num_key_value_heads", 8},
      {"head_dim", 128},         {"tie_word_embeddings", true}};
  EXPECT_EQ(parameter_count(config_of(changed(json, large))), 7504568320);  // 7B
}

}  // namespace
}  // namespace jige::formats

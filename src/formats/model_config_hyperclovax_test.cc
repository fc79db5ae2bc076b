// What config.json says of HyperCLOVA X.
#include <cmath>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(HyperClovaXConfig, DefaultsAreThoseOfTransformers) {
  Json json = family_json("hyperclovax");
  json.erase("num_key_value_heads");
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.kv_head_count, config.head_count);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.score_scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(config.norm_place, NormPlace::kAround);
  EXPECT_EQ(config.logits_scale, 1);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_FALSE(config.qkv_bias || config.mlp_bias || config.tied_embeddings);
  EXPECT_EQ(config_of(changed(json, {{"attention_multiplier", nullptr}})), config);
  EXPECT_EQ(
      parameter_count(config_of(changed(family_json("hyperclovax"), {{"vocab_size", 110592},
                                                                     {"hidden_size", 6144},
                                                                     {"intermediate_size", 14336},
                                                                     {"num_hidden_layers", 38},
                                                                     {"num_attention_heads", 48},
                                                                     {"num_key_value_heads", 8},
                                                                     {"head_dim", 128}}))),
      14748112896);
}

TEST(HyperClovaXConfig, LogitsAreMultipliedAndNormsBehindMayBeOff) {
  const ModelConfig config = config_of(
      changed(family_json("hyperclovax"),
              {{"logits_scaling", 0.25}, {"use_post_norm", false}, {"attention_multiplier", 0.5}}));
  EXPECT_EQ(config.logits_scale, 0.25);
  EXPECT_EQ(config.logits_divisor, 1);
  EXPECT_EQ(config.score_scale, 0.5);
  EXPECT_EQ(config.norm_place, NormPlace::kBefore);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  const ModelConfig granite =
      config_of(changed(family_json("granite"), {{"logits_scaling", 0.25}}));
  EXPECT_EQ(granite.logits_divisor, 0.25);
  EXPECT_EQ(granite.logits_scale, 1);
}

TEST(HyperClovaXConfig, ChecksRefuseWhatTheFamilyHasNot) {
  ModelConfig config = config_of(family_json("hyperclovax"));
  config.logits_divisor = 2;
  EXPECT_FAILS_WITH(check_model_config(config, "config.json"), Code::kInvalidArgument,
                    "logits_scaling");
  config = config_of(family_json("hyperclovax"));
  config.norm_place = NormPlace::kAfter;
  EXPECT_FAILS_WITH(check_model_config(config, "config.json"), Code::kInvalidArgument, "norms");
  ModelConfig granite = config_of(family_json("granite"));
  granite.norm_place = NormPlace::kAround;
  EXPECT_FAILS_WITH(check_model_config(granite, "config.json"), Code::kInvalidArgument, "norms");
  granite = config_of(family_json("granite"));
  granite.logits_scale = 2;
  EXPECT_FAILS_WITH(check_model_config(granite, "config.json"), Code::kInvalidArgument,
                    "logit_scale");
}

}  // namespace
}  // namespace jige::formats

// What config.json says of LFM3.
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json lfm3_json(const Json& members = Json::object()) {
  return changed(family_json("lfm3"), members);
}

Json lfm3_types(const char* a, const char* b, const char* c, const char* d) {
  return lfm3_json({{"layer_types", {a, b, c, d}}});
}

TEST(Lfm3Config, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of({{"model_type", "lfm3"},
                                        {"vocab_size", 128000},
                                        {"hidden_size", 2048},
                                        {"intermediate_size", 7680},
                                        {"num_hidden_layers", 24},
                                        {"num_attention_heads", 16},
                                        {"max_position_embeddings", 128000}});
  EXPECT_EQ(config.kv_head_count, 4);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.ffn_size, 7680);  // as it is
  EXPECT_EQ(config.short_conv, (ShortConvConfig{.kernel = 7}));
  EXPECT_EQ(recurrent_layer_count(config), 13);
  EXPECT_TRUE(is_recurrent(config, 0) && is_recurrent(config, 1) && is_recurrent(config, 3));
  EXPECT_TRUE(!has_window(config, 2) && has_window(config, 4) && !has_window(config, 6));
  EXPECT_EQ(config.sliding_window, 256);
  EXPECT_EQ(config.rope,
            (RopeConfig{.theta = 1e6, .scaling = RopeScaling::kProportional, .turned_share = 0.5}));
  EXPECT_EQ(config.sliding_rope, RopeConfig());
  EXPECT_EQ(config.norm_place, NormPlace::kAround);
  EXPECT_TRUE(config.head_gates && config.qk_norm && config.tied_embeddings);
  EXPECT_FALSE(config.qkv_bias || config.short_conv.bias);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{124900}));
  EXPECT_EQ(parameter_count(config), 1728801536);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Lfm3Config, NormsBehindAndGatesMayBeOff) {
  const ModelConfig config = config_of(lfm3_json({{"use_sandwich_norm", false},
                                                  {"use_attention_gate", false},
                                                  {"attention_bias", true},
                                                  {"conv_L_cache", 4}}));
  EXPECT_EQ(config.norm_place, NormPlace::kBefore);
  EXPECT_FALSE(config.head_gates);
  EXPECT_TRUE(config.qkv_bias && config.output_bias);
  EXPECT_EQ(config.short_conv.kernel, 4);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  ModelConfig lfm2 = config_of(changed(family_json("lfm2"), {{"full_attn_idxs", {1}}}));
  lfm2.head_gates = true;
  EXPECT_FAILS_WITH(check_model_config(lfm2, "config.json"), Code::kInvalidArgument, "gates");
}

TEST(Lfm3Config, LayersAreOfThreeKinds) {
  const ModelConfig config =
      config_of(lfm3_types("sliding_attention", "conv", "full_attention", "sliding_attention"));
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{0, 1, 0, 0}));
  EXPECT_EQ(config.layer_is_sliding, (std::vector<uint8_t>{1, 0, 0, 1}));
  const ModelConfig windowless =
      config_of(lfm3_types("conv", "conv", "full_attention", "full_attention"));
  EXPECT_EQ(windowless.sliding_window, 0);
  EXPECT_FALSE(windowless.sliding_rope);
  const ModelConfig all = config_of(lfm3_types("sliding_attention", "sliding_attention",
                                               "sliding_attention", "sliding_attention"));
  EXPECT_TRUE(all.layer_is_sliding.empty() && all.layer_is_recurrent.empty());
  EXPECT_EQ(all.sliding_window, 256);
  for (const ModelConfig& one : {config, windowless, all}) {
    EXPECT_EQ(config_of(to_hf_config(one)), one);
  }
  EXPECT_FAILS_WITH(parsed(lfm3_types("conv", "mamba", "conv", "conv")), Code::kUnsupported,
                    "\"mamba\"");
  EXPECT_FAILS_WITH(parsed(lfm3_json({{"layer_types", {"conv"}}})), Code::kCorrupt,
                    "\"layer_types\"");
  EXPECT_FAILS_WITH(parsed(changed(lfm3_types("conv", "sliding_attention", "conv", "conv"),
                                   {{"sliding_window", nullptr}})),
                    Code::kCorrupt, "\"sliding_window\"");
  EXPECT_FAILS_WITH(parsed(lfm3_json({{"conv_L_cache", 9}})), Code::kCorrupt, "\"conv_L_cache\"");
  ModelConfig both = config;
  both.layer_is_sliding[1] = 1;
  EXPECT_FAILS_WITH(check_model_config(both, "config.json"), Code::kInvalidArgument, "layer 1");
}

TEST(Lfm3Config, EitherKindOfAttentionMayTurnInAnyWay) {
  const Json share = {{"rope_type", "proportional"},
                      {"rope_theta", 9e3},
                      {"partial_rotary_factor", 0.25},
                      {"factor", 2.0}};
  const Json linear = {{"rope_type", "linear"}, {"rope_theta", 5e3}, {"factor", 2.0}};
  Json json = lfm3_types("sliding_attention", "conv", "full_attention", "conv");
  json["rope_parameters"] = {{"sliding_attention", share}, {"full_attention", linear}};
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 5e3, .scaling = RopeScaling::kLinear, .factor = 2}));
  EXPECT_EQ(
      config.sliding_rope,
      (RopeConfig{
          .theta = 9e3, .scaling = RopeScaling::kProportional, .factor = 2, .turned_share = 0.25}));
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  json["rope_parameters"].erase("sliding_attention");
  EXPECT_FAILS_WITH(parsed(json), Code::kCorrupt, "\"sliding_attention\"");
}

TEST(Lfm3Config, AdaptersAreNotForTheGatesOfHeads) {
  EXPECT_EQ(lora_linear_modules(config_of(lfm3_json())),
            (std::vector<std::string>{"in_proj", "k_proj", "o_proj", "out_proj", "q_proj", "v_proj",
                                      "w1", "w2", "w3"}));
}

}  // namespace
}  // namespace jige::formats

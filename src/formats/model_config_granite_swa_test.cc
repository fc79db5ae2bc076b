// What config.json says of Granite with windows and sinks.
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json thetas(const Json& list) {
  return changed(family_json("granite_swa"), {{"layer_rope_theta", list}});
}

TEST(GraniteSwaConfig, DefaultsAreThoseOfTransformers) {
  Json json = family_json("granite_swa");
  json.erase("num_key_value_heads");
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.kv_head_count, 4);
  EXPECT_EQ(config.sliding_window, 128);
  EXPECT_EQ(config.layer_is_sliding, (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_TRUE(config.attention_sinks && config.tied_embeddings);
  EXPECT_TRUE(config.layer_is_unturned.empty());
  EXPECT_FALSE(config.sliding_rope);
  EXPECT_EQ(config.rope, RopeConfig());
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.score_scale, 1);
  EXPECT_EQ(parameter_count(config_of({{"model_type", "granite_swa"},
                                       {"vocab_size", 100352},
                                       {"hidden_size", 2560},
                                       {"intermediate_size", 8192},
                                       {"num_hidden_layers", 24},
                                       {"num_attention_heads", 20},
                                       {"max_position_embeddings", 8192}})),
            2144463840);
  Json sparse = family_json("granitemoe_swa");
  sparse.erase("num_key_value_heads");
  const ModelConfig experts = config_of(sparse);
  EXPECT_EQ(experts.kv_head_count, experts.head_count);
  EXPECT_EQ(experts.experts,
            (ExpertConfig{.count = 8, .chosen = 2, .ffn_size = 48, .normalised = true}));
  EXPECT_EQ(experts.norm_eps, 1e-6);
  EXPECT_FALSE(experts.tied_embeddings);
  EXPECT_EQ(parameter_count(config_of({{"model_type", "granitemoe_swa"},
                                       {"vocab_size", 100352},
                                       {"hidden_size", 1536},
                                       {"intermediate_size", 512},
                                       {"num_hidden_layers", 32},
                                       {"num_attention_heads", 24},
                                       {"num_key_value_heads", 8},
                                       {"num_local_experts", 40},
                                       {"num_experts_per_tok", 8},
                                       {"shared_intermediate_size", 1024},
                                       {"max_position_embeddings", 8192}})),
            3682568448);
}

TEST(GraniteSwaConfig, LayersTurnByTheThetaOfTheirKindOrNotAtAll) {
  const ModelConfig unturned = config_of(thetas({0, 5e4, 5e4, 5e4}));
  EXPECT_EQ(unturned.layer_is_unturned, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_EQ(unturned.rope.theta, 5e4);
  EXPECT_FALSE(unturned.sliding_rope);
  const ModelConfig two = config_of(changed(
      thetas({1e6, 0, 100, 100}),
      {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7.0}}}}));
  EXPECT_EQ(two.layer_is_unturned, (std::vector<uint8_t>{0, 1, 0, 0}));
  EXPECT_EQ(two.rope, (RopeConfig{.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 2}));
  EXPECT_EQ(two.sliding_rope,
            (RopeConfig{.theta = 100, .scaling = RopeScaling::kLinear, .factor = 2}));
  const ModelConfig none = config_of(changed(thetas({0, 0, 0, 0}), {{"rope_theta", 300}}));
  EXPECT_EQ(none.layer_is_unturned, (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(none.rope.theta, 300);
  const Json full = {"full_attention", "full_attention", "full_attention", "full_attention"};
  const ModelConfig windowless =
      config_of(changed(thetas({1e3, 0, 1e3, 1e3}), {{"layer_types", full}}));
  EXPECT_EQ(windowless.sliding_window, 0);
  EXPECT_EQ(windowless.rope.theta, 1e3);
  for (const ModelConfig& config : {unturned, two, none, windowless}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(GraniteSwaConfig, RefusesThetasThatDifferWithinAKind) {
  EXPECT_FAILS_WITH(parsed(thetas({0, 1e4, 1e5, 1e4})), Code::kUnsupported,
                    "\"layer_rope_theta\" is 100000 for layer 2 and 10000 for another with");
  EXPECT_FAILS_WITH(parsed(thetas({0, 1e4, 1e4})), Code::kCorrupt, "\"layer_rope_theta\"");
  EXPECT_FAILS_WITH(parsed(thetas(7)), Code::kCorrupt, "\"layer_rope_theta\"");
  EXPECT_FAILS_WITH(parsed(thetas({0, 1e4, "x", 1e4})), Code::kInvalidArgument,
                    "\"layer_rope_theta\"");
  EXPECT_FAILS_WITH(parsed(thetas({0, -5, -5, -5})), Code::kCorrupt, "\"rope_theta\"");
  EXPECT_FAILS_WITH(parsed(thetas({9, -5, -5, -5})), Code::kCorrupt, "5");
  EXPECT_FAILS_WITH(parsed(changed(thetas({0, 1, 1, 1}), {{"sliding_window", nullptr}})),
                    Code::kCorrupt, "\"sliding_window\"");
  ModelConfig config = config_of(thetas({9, 5, 5, 5}));
  config.sliding_rope->scaling = RopeScaling::kLinear;
  EXPECT_FAILS_WITH(check_model_config(config, "config.json"), Code::kInvalidArgument, "theta");
}

}  // namespace
}  // namespace jige::formats

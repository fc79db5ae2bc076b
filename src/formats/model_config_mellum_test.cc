// What config.json says of Mellum 2, and of angles by kind of layer.
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

const Json kMellumTypes = {"sliding_attention", "full_attention", "sliding_attention",
                           "full_attention"};

Json mellum_json(const Json& members = Json::object()) {
  return changed(changed(family_json("mellum"), {{"layer_types", kMellumTypes}}), members);
}

Json mellum_ropes(const Json& full, const Json& sliding) {
  return {{"rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}}};
}

TEST(MellumConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig plain = config_of(family_json("mellum"));
  EXPECT_EQ(plain.sliding_window, 0);  // all layers are without it
  EXPECT_FALSE(plain.sliding_rope);
  EXPECT_EQ(plain.rope, (RopeConfig{.theta = 5e5}));
  EXPECT_TRUE(plain.layer_is_dense.empty());
  EXPECT_EQ(plain.experts,
            (ExpertConfig{.count = 64, .chosen = 8, .ffn_size = 896, .normalised = true}));
  EXPECT_TRUE(plain.qk_norm && plain.eos_ids.empty());
  EXPECT_EQ(plain.head_dim, 128);
  const ModelConfig mixed = config_of(mellum_json());
  EXPECT_EQ(mixed.sliding_window, 1024);
  EXPECT_EQ(mixed.layer_is_sliding, (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(mixed.sliding_rope, RopeConfig());
  EXPECT_EQ(parameter_count(config_of({{"model_type", "mellum"},
                                       {"vocab_size", 98304},
                                       {"hidden_size", 2304},
                                       {"intermediate_size", 7168},
                                       {"num_hidden_layers", 28},
                                       {"num_attention_heads", 32},
                                       {"max_position_embeddings", 131072}})),
            12149923072);
}

TEST(MellumConfig, AnyLayersMayBeWithoutExpertsButNotAll) {
  const auto kinds = [](const char* a, const char* b, const char* c, const char* d) {
    return mellum_json({{"mlp_layer_types", {a, b, c, d}}});
  };
  const ModelConfig config = config_of(kinds("sparse", "dense", "sparse", "dense"));
  EXPECT_EQ(config.layer_is_dense, (std::vector<uint8_t>{0, 1, 0, 1}));
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_TRUE(config_of(kinds("sparse", "sparse", "sparse", "sparse")).layer_is_dense.empty());
  EXPECT_FAILS_WITH(parsed(kinds("dense", "dense", "dense", "dense")), Code::kUnsupported,
                    "\"mlp_layer_types\"");
  EXPECT_FAILS_WITH(parsed(kinds("dense", "both", "dense", "sparse")), Code::kUnsupported,
                    "\"mlp_layer_types\"");
  for (const Json& wrong : {Json("sparse"), Json::array(), Json({"sparse", "sparse"}), Json(4)}) {
    EXPECT_FAILS_WITH(parsed(mellum_json({{"mlp_layer_types", wrong}})), Code::kUnsupported,
                      "\"mlp_layer_types\"");
  }
}

TEST(MellumConfig, AnglesOfEitherKindMayBeOfAnyType) {
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 3e3}};
  const Json yarn = {{"rope_type", "yarn"},
                     {"rope_theta", 7e5},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 64}};
  const ModelConfig full = config_of(mellum_json(mellum_ropes(yarn, plain)));
  EXPECT_EQ(full.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(full.rope.theta, 7e5);
  EXPECT_EQ(full.rope.original_context, 64);
  EXPECT_EQ(full.sliding_rope, (RopeConfig{.theta = 3e3}));
  const ModelConfig sliding = config_of(mellum_json(mellum_ropes(plain, yarn)));
  EXPECT_EQ(sliding.sliding_rope, full.rope);
  EXPECT_EQ(sliding.rope, *full.sliding_rope);
  for (const ModelConfig& config : {full, sliding}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(MellumConfig, RefusesAnglesThatAreNotThere) {
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 3e3}};
  const auto with = [&](const Json& ropes) {
    return parsed(mellum_json({{"rope_parameters", ropes}}));
  };
  EXPECT_FAILS_WITH(with({{"full_attention", plain}}), Code::kCorrupt, "\"sliding_attention\"");
  EXPECT_FAILS_WITH(with({{"sliding_attention", plain}}), Code::kCorrupt, "\"full_attention\"");
  EXPECT_FAILS_WITH(with(plain), Code::kCorrupt, "\"full_attention\"");
  EXPECT_FAILS_WITH(with({{"full_attention", 3}}), Code::kCorrupt, "\"full_attention\"");
  EXPECT_FAILS_WITH(with({{"full_attention", {{"rope_type", "default"}}}}), Code::kNotFound,
                    "\"rope_theta\"");
  const Json dynamic = {{"rope_type", "dynamic"}, {"rope_theta", 3e3}, {"factor", 2.0}};
  EXPECT_FAILS_WITH(with({{"full_attention", plain}, {"sliding_attention", dynamic}}),
                    Code::kUnsupported, "\"dynamic\"");
  EXPECT_FAILS_WITH(with({{"full_attention", plain},
                          {"sliding_attention",
                           {{"rope_type", "linear"}, {"rope_theta", 3e3}, {"factor", 0.5}}}}),
                    Code::kCorrupt, "\"factor\"");
  // Where no layer is of a kind nothing need be said of it.
  const Json all_full = {"full_attention", "full_attention", "full_attention", "full_attention"};
  const Json only = {{"layer_types", all_full}, {"rope_parameters", {{"full_attention", plain}}}};
  EXPECT_EQ(config_of(mellum_json(only)).rope.theta, 3e3);
}

}  // namespace
}  // namespace jige::formats

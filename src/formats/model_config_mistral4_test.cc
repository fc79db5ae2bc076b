// What config.json says of Mistral 4.
#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json mistral4_json(const Json& members = Json::object()) {
  return changed(changed(family_json("mistral4"), {{"num_key_value_heads", 4}}), members);
}

Json growing_yarn(const Json& members = Json::object()) {
  return {{"rope_parameters", changed({{"rope_type", "yarn"},
                                       {"rope_theta", 1e4},
                                       {"factor", 4.0},
                                       {"original_max_position_embeddings", 64},
                                       {"llama_4_scaling_beta", 0.3}},
                                      members)}};
}

TEST(Mistral4Config, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of({{"model_type", "mistral4"},
                                        {"vocab_size", 131072},
                                        {"hidden_size", 4096},
                                        {"intermediate_size", 12288},
                                        {"num_hidden_layers", 36},
                                        {"num_attention_heads", 32},
                                        {"max_position_embeddings", 1048576}});
  EXPECT_EQ(config.latent, (LatentConfig{.rank = 256, .query_rank = 1024, .value_dim = 128}));
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.rotary_dim, 64);
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 128,
                                          .chosen = 4,
                                          .ffn_size = 2048,
                                          .shared_ffn_size = 2048,
                                          .normalised = true,
                                          .groups_by_pairs = true}));
  EXPECT_EQ(config.rope, (RopeConfig{.scaling = RopeScaling::kYarn,
                                     .factor = 128,
                                     .original_context = 8192,
                                     .query_growth = 0.1,
                                     .mscale = 1,
                                     .mscale_all = 1}));
  EXPECT_TRUE(config.layer_is_dense.empty() && config.turns_neighbours);
  EXPECT_EQ(config.pad_id, 11);
  EXPECT_EQ(parameter_count(config), 118972826624);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Mistral4Config, IsReadInFoldersOfMistral3) {
  const Json text = mistral4_json(growing_yarn());
  const Json whole = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                      {"model_type", "mistral3"},
                      {"text_config", text}};
  EXPECT_EQ(config_of(whole), config_of(text));
}

TEST(Mistral4Config, ExpertsAreScoredBySoftmaxInGroupsOfPairs) {
  const ModelConfig config = config_of(mistral4_json({{"n_routed_experts", 8},
                                                      {"n_group", 4},
                                                      {"topk_group", 2},
                                                      {"n_shared_experts", 3},
                                                      {"first_k_dense_replace", 1},
                                                      {"moe_intermediate_size", 20},
                                                      {"norm_topk_prob", false},
                                                      {"routed_scaling_factor", 1.5}}));
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 8,
                                          .chosen = 4,
                                          .ffn_size = 20,
                                          .shared_ffn_size = 60,
                                          .weight_scale = 1.5,
                                          .groups = 4,
                                          .chosen_groups = 2,
                                          .groups_by_pairs = true}));
  EXPECT_EQ(expert_layer_count(config), 3);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_FAILS_WITH(parsed(mistral4_json({{"n_routed_experts", 8}, {"n_group", 8}})),
                    Code::kCorrupt, "n_group");
  EXPECT_FAILS_WITH(parsed(mistral4_json({{"scoring_func", "sigmoid"}})), Code::kUnsupported,
                    "sigmoid");
}

TEST(Mistral4Config, TheTurnedPartOfAHeadMustBeThatOfItsLatents) {
  const ModelConfig config = config_of(mistral4_json(growing_yarn()));
  EXPECT_EQ(config.rope.query_growth, 0.3);
  EXPECT_EQ(config_of(mistral4_json(growing_yarn({{"partial_rotary_factor", 0.5}}))), config);
  const Json out = to_hf_config(config);
  EXPECT_EQ(out["head_dim"], 128);
  EXPECT_EQ(out["rope_parameters"]["partial_rotary_factor"], 0.5);
  EXPECT_FAILS_WITH(parsed(mistral4_json(growing_yarn({{"partial_rotary_factor", 0.25}}))),
                    Code::kUnsupported, "\"partial_rotary_factor\" is 0.25");
  EXPECT_FAILS_WITH(parsed(mistral4_json(growing_yarn({{"llama_4_scaling_beta", nullptr}}))),
                    Code::kNotFound, "llama_4_scaling_beta");
  EXPECT_FAILS_WITH(parsed(mistral4_json(growing_yarn({{"rope_type", "default"}}))),
                    Code::kUnsupported, "yarn alone");
}

}  // namespace
}  // namespace jige::formats

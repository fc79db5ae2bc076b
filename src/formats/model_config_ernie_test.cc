// What config.json says of ERNIE 4.5 with experts: what is read, written, counted and refused.
#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json ernie_json(const Json& members = Json::object()) {
  return changed(changed(family_json("ernie4_5_moe"),
                         {{"moe_num_experts", 6}, {"moe_k", 3}, {"moe_intermediate_size", 20}}),
                 members);
}

TEST(ErnieMoeConfig, DefaultsAreThoseOfTransformers) {
  Json json = family_json("ernie4_5_moe");
  json.erase("num_key_value_heads");
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 64,
                                          .chosen = 6,
                                          .ffn_size = 1536,
                                          .shared_ffn_size = 3072,
                                          .normalised = true,
                                          .choice_bias = true,
                                          .sum_min = 1e-12}));
  EXPECT_EQ(config.layer_is_dense, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_EQ(config.kv_head_count, 4);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.pad_id, 0);
  EXPECT_TRUE(config.turns_neighbours && config.tied_embeddings);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(ErnieMoeConfig, EverySoManiethLayerOfARangeHasExperts) {
  const std::pair<Json, std::vector<uint8_t>> cases[] = {
      {{{"moe_layer_start_index", 0}}, {}},
      {{{"moe_layer_end_index", 2}}, {1, 0, 0, 1}},
      {{{"moe_layer_interval", 2}}, {1, 0, 1, 0}},
      {{{"moe_layer_interval", 3}}, {1, 1, 0, 1}},
      {{{"moe_layer_start_index", -5}, {"moe_layer_end_index", 9}}, {}},
      {{{"moe_layer_start_index", 3}, {"moe_layer_interval", 4}}, {1, 1, 1, 0}},
  };
  for (const auto& [members, dense] : cases) {
    SCOPED_TRACE(members.dump());
    const ModelConfig config = config_of(ernie_json(members));
    EXPECT_EQ(config.layer_is_dense, dense);
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(ErnieMoeConfig, CountsTheParametersOfThePublishedModel) {
  const Json published = {{"vocab_size", 103424},       {"hidden_size", 2560},
                          {"intermediate_size", 12288}, {"num_hidden_layers", 28},
                          {"num_attention_heads", 20},  {"num_key_value_heads", 4}};
  const ModelConfig config = config_of(changed(family_json("ernie4_5_moe"), published));
  EXPECT_EQ(parameter_count(config), 21825437888);        // 21B
  EXPECT_LT(active_parameter_count(config), 3400000000);  // A3B
}

TEST(ErnieMoeConfig, RefusesWhatCannotBe) {
  const auto with = [](const Json& members) { return parsed(ernie_json(members)); };
  EXPECT_FAILS_WITH(with({{"moe_num_experts", 0}}), Code::kCorrupt, "moe_num_experts");
  EXPECT_FAILS_WITH(with({{"moe_num_experts", {64, 64}}}), Code::kInvalidArgument,
                    "moe_num_experts");
  EXPECT_FAILS_WITH(with({{"moe_k", 7}}), Code::kCorrupt, "moe_k");
  EXPECT_FAILS_WITH(with({{"moe_num_shared_experts", -1}}), Code::kCorrupt,
                    "moe_num_shared_experts");
  EXPECT_FAILS_WITH(with({{"moe_norm_min", 2}}), Code::kCorrupt, "moe_norm_min");
  EXPECT_FAILS_WITH(with({{"moe_layer_interval", 0}}), Code::kCorrupt, "moe_layer_interval");
  EXPECT_FAILS_WITH(with({{"moe_layer_start_index", 4}}), Code::kUnsupported,
                    "moe_layer_start_index");
  EXPECT_FAILS_WITH(with({{"use_bias", true}}), Code::kCorrupt, "use_bias");
  ModelConfig config = config_of(ernie_json());
  config.layer_is_dense = {0, 0, 1, 0};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "manieth layer");
  config.layer_is_dense = {1, 0};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "flags of layers");
  config = config_of(ernie_json());
  config.experts.shared_ffn_size = 41;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "no multiple");
}

}  // namespace
}  // namespace jige::formats

// What config.json says of Jamba.
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

using Flags = std::vector<uint8_t>;

ModelConfig jamba_of(const Json& members, int64_t layers = 6) {
  return config_of(
      changed(changed(family_json("jamba"), {{"num_hidden_layers", layers}}), members));
}

TEST(JambaConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = jamba_of(Json::object(), 10);
  EXPECT_EQ(config.mamba1, (Mamba1Config{.columns = 64,
                                         .state_dim = 16,
                                         .kernel = 4,
                                         .step_rank = 2,
                                         .conv_bias = true,
                                         .norms = StepNorms::kWeighted}));
  EXPECT_EQ(config.layer_is_recurrent, (Flags{1, 1, 1, 1, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(config.layer_is_dense, (Flags{1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 16, .chosen = 2, .ffn_size = 48}));
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_FALSE(turns(config, 4) || config.tied_embeddings);
  EXPECT_EQ(config.pad_id, 0);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"in_proj", "k_proj", "o_proj", "out_proj", "q_proj", "v_proj",
                                      "x_proj"}));
}

TEST(JambaConfig, ProductsOfItsFeedForwardPartsAreItsLargest) {
  const ModelConfig config = jamba_of(Json::object());
  EXPECT_EQ(inner_columns(config), config.ffn_size);
}

TEST(JambaConfig, CountsTheParametersOfPublishedModels) {
  const ModelConfig mini = config_of({{"model_type", "jamba"},
                                      {"vocab_size", 65536},
                                      {"hidden_size", 4096},
                                      {"intermediate_size", 14336},
                                      {"num_hidden_layers", 32},
                                      {"num_attention_heads", 32},
                                      {"max_position_embeddings", 262144}});
  EXPECT_EQ(parameter_count(mini), 51570323328);
  EXPECT_EQ(recurrent_layer_count(mini), 28);
  EXPECT_EQ(expert_layer_count(mini), 16);
}

TEST(JambaConfig, ReadsBackWhatItWrites) {
  const std::tuple<Json, Flags, Flags> cases[] = {
      {{{"attn_layer_period", 3}, {"attn_layer_offset", 0}},
       {0, 1, 1, 0, 1, 1},
       {1, 0, 1, 0, 1, 0}},
      {{{"attn_layer_period", 9}, {"attn_layer_offset", 8}},
       {1, 1, 1, 1, 1, 1},
       {1, 0, 1, 0, 1, 0}},
      {{{"attn_layer_period", 1}, {"attn_layer_offset", 0}}, {}, {1, 0, 1, 0, 1, 0}},
      {{{"expert_layer_period", 1}, {"expert_layer_offset", 0}}, {1, 1, 1, 1, 0, 1}, {}},
      {{{"expert_layer_period", 5}, {"expert_layer_offset", 4}},
       {1, 1, 1, 1, 0, 1},
       {1, 1, 1, 1, 0, 1}},
      {{{"num_experts", 1}}, {1, 1, 1, 1, 0, 1}, {}},
      {{{"expert_layer_period", 7}, {"expert_layer_offset", 6}}, {1, 1, 1, 1, 0, 1}, {}}};
  for (const auto& [members, recurrent, dense] : cases) {
    const ModelConfig config = jamba_of(members);
    EXPECT_EQ(config.layer_is_recurrent, recurrent) << members;
    EXPECT_EQ(config.layer_is_dense, dense) << members;
    EXPECT_EQ(config_of(to_hf_config(config)), config) << members;
  }
  EXPECT_EQ(jamba_of({{"num_experts", 1}}).experts, ExpertConfig());
  const ModelConfig first = first_layers(jamba_of(Json::object(), 20), 7);
  EXPECT_EQ(config_of(to_hf_config(first)), first);
}

TEST(JambaConfig, HeadsThatDoNotTurnMayBeOfOddWidth) {
  const ModelConfig config = jamba_of({{"hidden_size", 20}});
  EXPECT_EQ(config.head_dim, 5);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(JambaConfig, IsRefusedWhereItCannotBe) {
  for (const auto& [field, wrong] : {std::pair<const char*, Json>{"attn_layer_offset", 8},
                                     {"attn_layer_offset", -1},
                                     {"attn_layer_period", 0},
                                     {"expert_layer_offset", 2},
                                     {"expert_layer_period", 0},
                                     {"num_experts", 0},
                                     {"num_experts", 5000},
                                     {"num_experts_per_tok", 17},
                                     {"mamba_d_state", 257},
                                     {"mamba_d_conv", 9},
                                     {"mamba_expand", 0},
                                     {"mamba_dt_rank", 0}}) {
    EXPECT_FAILS_WITH(parsed(changed(family_json("jamba"), {{field, wrong}})), Code::kCorrupt,
                      field);
  }
  const ModelConfig jamba = jamba_of(Json::object());
  ModelConfig config = jamba;
  config.layer_is_recurrent = {1, 1, 0, 1, 0, 0};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "attn_layer_period");
  config = jamba;
  config.layer_is_dense = {0, 1, 0, 0, 1, 1};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "expert_layer_period");
  config = jamba;
  config.experts.normalised = true;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "as they are");
}

}  // namespace
}  // namespace jige::formats

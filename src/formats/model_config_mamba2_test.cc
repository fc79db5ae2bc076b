// What config.json says of families with layers of Mamba 2: which layers are such ones, how they
// are made, and what Granite 4 has beside them.
#include <set>
#include <string>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// The sizes of the default are those of a wide model.
Json granite_json() {
  return changed(family_json("granitemoehybrid"),
                 {{"mamba_n_heads", 8}, {"mamba_d_state", 16}, {"shared_intermediate_size", 24}});
}
Json bamba_json() {
  return changed(family_json("bamba"), {{"mamba_n_heads", 8}, {"mamba_d_state", 16}});
}

// As the folders on the hub have it.
Json published_granite(const Json& members) {
  Json types = Json::array();
  for (int i = 0; i < 40; ++i) types.push_back(i % 10 == 5 ? "attention" : "mamba");
  return changed({{"model_type", "granitemoehybrid"},
                  {"architectures", {"GraniteMoeHybridForCausalLM"}},
                  {"vocab_size", 100352},
                  {"num_hidden_layers", 40},
                  {"num_key_value_heads", 8},
                  {"max_position_embeddings", 131072},
                  {"layer_types", types},
                  {"position_embedding_type", "nope"},
                  {"mamba_d_conv", 4},
                  {"mamba_d_head", 64},
                  {"mamba_d_state", 128},
                  {"mamba_expand", 2},
                  {"mamba_n_groups", 1},
                  {"tie_word_embeddings", true}},
                 members);
}

TEST(Mamba2Config, DefaultsAreThoseOfTransformers) {
  const ModelConfig granite =
      config_of(changed(family_json("granitemoehybrid"), {{"mamba_n_heads", 8}}));
  EXPECT_EQ(granite.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(granite.layer_is_unturned, (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(granite.mamba2.groups, 1);
  EXPECT_EQ(granite.mamba2.state_dim, 256);
  EXPECT_EQ(granite.mamba2.kernel, 4);
  EXPECT_TRUE(granite.mamba2.conv_bias);
  EXPECT_FALSE(granite.mamba2.bias || granite.qkv_bias || granite.tied_embeddings);
  EXPECT_EQ(granite.score_scale, 1);
  EXPECT_EQ(
      granite.experts,
      (ExpertConfig{
          .count = 8, .chosen = 2, .ffn_size = 48, .shared_ffn_size = 1024, .normalised = true}));
  EXPECT_EQ(granite.eos_ids, std::vector<int32_t>{2});
  const ModelConfig bamba = config_of(bamba_json());
  EXPECT_EQ(bamba.rotary_dim, bamba.head_dim / 2);
  EXPECT_EQ(bamba.norm_eps, 1e-5);
  EXPECT_EQ(bamba.experts, ExpertConfig());
  EXPECT_EQ(bamba.mamba2, (Mamba2Config{.heads = 8,
                                        .head_dim = 8,
                                        .groups = 1,
                                        .state_dim = 16,
                                        .kernel = 4,
                                        .conv_bias = true}));
  for (const ModelConfig& config : {granite, bamba}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(Mamba2Config, LayersAreTypedInEitherSpellingOrListed) {
  const std::vector<uint8_t> wanted = {1, 0, 1, 1};
  const Json old_types = {"mamba", "attention", "mamba", "mamba"};
  const Json new_types = {"linear_attention", "full_attention", "linear_attention",
                          "linear_attention"};
  const ModelConfig granite = config_of(changed(granite_json(), {{"layer_types", new_types}}));
  EXPECT_EQ(granite.layer_is_recurrent, wanted);
  EXPECT_EQ(config_of(changed(granite_json(), {{"layer_types", old_types}})), granite);
  EXPECT_EQ(to_hf_config(granite)["layer_types"], old_types);  // what all versions read
  const ModelConfig bamba = config_of(changed(bamba_json(), {{"attn_layer_indices", {1}}}));
  EXPECT_EQ(bamba.layer_is_recurrent, wanted);
  EXPECT_EQ(to_hf_config(bamba)["attn_layer_indices"], Json({1}));
  for (const ModelConfig& config : {granite, bamba}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(Mamba2Config, GraniteTurnsHeadsWhereItSaysRope) {
  const Json types = {"attention", "attention", "attention", "attention"};
  const ModelConfig config = config_of(
      changed(granite_json(), {{"layer_types", types}, {"position_embedding_type", "rope"}}));
  EXPECT_TRUE(config.layer_is_unturned.empty() && config.layer_is_recurrent.empty());
  EXPECT_EQ(to_hf_config(config)["position_embedding_type"], "rope");
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  const auto refused = parsed(changed(granite_json(), {{"position_embedding_type", "alibi"}}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

TEST(Mamba2Config, GraniteHasExpertsBesideALayerForAllTokensOrThatAlone) {
  const ModelConfig dense = config_of(changed(granite_json(), {{"num_local_experts", 0}}));
  EXPECT_EQ(dense.ffn_size, 24);
  EXPECT_EQ(dense.experts, ExpertConfig());
  EXPECT_EQ(to_hf_config(dense)["num_local_experts"], 0);
  EXPECT_EQ(config_of(to_hf_config(dense)), dense);
  const std::vector<std::string> modules = {"in_proj",       "input_linear", "k_proj", "o_proj",
                                            "output_linear", "out_proj",     "q_proj", "v_proj"};
  const std::vector<std::string> got = lora_linear_modules(dense);
  EXPECT_EQ(std::set<std::string>(got.begin(), got.end()),
            std::set<std::string>(modules.begin(), modules.end()));
}

TEST(Mamba2Config, CountsTheParametersOfPublishedModels) {
  const Json micro = {{"hidden_size", 2048},       {"num_attention_heads", 32},
                      {"intermediate_size", 8192}, {"shared_intermediate_size", 8192},
                      {"num_local_experts", 0},    {"num_experts_per_tok", 0},
                      {"mamba_n_heads", 64}};
  EXPECT_EQ(parameter_count(config_of(published_granite(micro))), 3191396096);
  const Json tiny = {{"hidden_size", 1536},
                     {"num_key_value_heads", 4},
                     {"num_attention_heads", 12},
                     {"intermediate_size", 512},
                     {"shared_intermediate_size", 1024},
                     {"num_local_experts", 64},
                     {"num_experts_per_tok", 6},
                     {"mamba_n_heads", 48}};
  EXPECT_EQ(parameter_count(config_of(published_granite(tiny))), 6939037248);
  const Json bamba = {
      {"vocab_size", 128256},    {"hidden_size", 4096},       {"intermediate_size", 14336},
      {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"num_key_value_heads", 8},
      {"mamba_n_heads", 128},    {"mamba_d_state", 128},      {"attn_layer_indices", {9, 18, 27}}};
  EXPECT_EQ(parameter_count(config_of(changed(bamba_json(), bamba))), 9780235392);
}

TEST(Mamba2Config, StepsHaveNoLimits) {
  const Json infinite = {{"__float__", "Infinity"}};
  EXPECT_TRUE(parsed(changed(granite_json(), {{"time_step_limit", {0.0, infinite}}})));
  EXPECT_TRUE(parsed(changed(granite_json(), {{"time_step_limit", nullptr}})));
  for (const Json& limits : {Json{0.001, infinite}, Json{0.0, 0.1}, Json{0.0}, Json("no")}) {
    const auto refused = parsed(changed(granite_json(), {{"time_step_limit", limits}}));
    ASSERT_FALSE(refused) << limits;
    EXPECT_NE(refused.error().message.find("time_step_limit"), std::string::npos);
  }
}

TEST(Mamba2Config, RefusesWhatContradictsItself) {
  const auto refusal = [](const Json& json, const std::string& words) {
    const auto config = parsed(json);
    ASSERT_FALSE(config) << json;
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  };
  const auto granite = [](const Json& members) { return changed(granite_json(), members); };
  refusal(granite({{"mamba_n_heads", 0}}), "mamba_n_heads");
  refusal(granite({{"mamba_n_heads", 7}}), "mamba_n_heads");
  refusal(granite({{"mamba_d_head", 9}}), "mamba_d_head");
  refusal(granite({{"mamba_d_head", "none"}}), "mamba_d_head");
  refusal(granite({{"mamba_n_groups", 3}}), "does not divide mamba_n_heads");
  refusal(granite({{"mamba_d_state", 257}}), "mamba_d_state");
  refusal(granite({{"mamba_d_conv", 9}}), "mamba_d_conv");
  refusal(granite({{"mamba_expand", 1e9}}), "mamba_expand");
  refusal(granite({{"shared_intermediate_size", 0}}), "shared_intermediate_size");
  refusal(granite({{"num_local_experts", -1}}), "num_local_experts");
  refusal(granite({{"num_experts_per_tok", 9}}), "num_experts_per_tok");
  refusal(granite({{"layer_types", {"mamba", "conv", "mamba", "mamba"}}}), "\"conv\"");
  refusal(granite({{"layer_types", {"mamba"}}}), "4 names");
  refusal(changed(bamba_json(), {{"attn_layer_indices", {4}}}), "names layer 4 of 4");
  refusal(changed(bamba_json(), {{"attn_layer_indices", "all"}}), "must be a list");
}

TEST(Mamba2Config, OtherFamiliesHaveNoSuchLayers) {
  ModelConfig llama = config_of(family_json("llama"));
  llama.mamba2.heads = 4;
  EXPECT_FALSE(check_model_config(llama, "test"));
}

}  // namespace
}  // namespace jige::formats

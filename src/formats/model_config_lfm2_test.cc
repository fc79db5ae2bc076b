// What config.json says of LFM2: which layers have a short convolution, and how wide feed-forward
// layers are.
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json lfm2_json() { return family_json("lfm2"); }

// As the folders on the hub have it.
Json published(int64_t hidden, int64_t heads, int64_t block_ff_dim) {
  return {{"model_type", "lfm2"},
          {"architectures", {"Lfm2ForCausalLM"}},
          {"vocab_size", 65536},
          {"hidden_size", hidden},
          {"num_hidden_layers", 16},
          {"num_attention_heads", heads},
          {"num_key_value_heads", 8},
          {"max_position_embeddings", 128000},
          {"block_auto_adjust_ff_dim", true},
          {"block_ff_dim", block_ff_dim},
          {"block_ffn_dim_multiplier", 1.0},
          {"block_multiple_of", 256},
          {"conv_L_cache", 3},
          {"conv_bias", false},
          {"full_attn_idxs", {2, 5, 8, 10, 12, 14}},
          {"norm_eps", 1e-5},
          {"rope_theta", 1e6},
          {"tie_embedding", true}};
}

TEST(Lfm2Config, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of(lfm2_json());
  EXPECT_TRUE(config.layer_is_recurrent.empty());  // attention in every layer
  EXPECT_EQ(config.short_conv, (ShortConvConfig{.kernel = 3}));
  EXPECT_EQ(config.ffn_size, 256);  // two thirds of 48, up to a multiple of 256
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_TRUE(config.tied_embeddings && config.qk_norm);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(config.pad_id, 0);
  Json unsaid = lfm2_json();
  unsaid.erase("num_key_value_heads");
  unsaid["num_attention_heads"] = 16;
  EXPECT_EQ(config_of(unsaid).kv_head_count, 8);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Lfm2Config, LayersAreTypedOrListed) {
  const std::vector<uint8_t> wanted = {1, 1, 0, 1};
  const ModelConfig listed = config_of(changed(lfm2_json(), {{"full_attn_idxs", {2}}}));
  EXPECT_EQ(listed.layer_is_recurrent, wanted);
  const Json types = {"conv", "conv", "full_attention", "conv"};
  // As in transformers, types go before a list.
  const ModelConfig typed =
      config_of(changed(lfm2_json(), {{"layer_types", types}, {"full_attn_idxs", {0, 1}}}));
  EXPECT_EQ(typed, listed);
  EXPECT_EQ(recurrent_layer_count(typed), 3);
  EXPECT_TRUE(is_recurrent(typed, 3));
  EXPECT_FALSE(is_recurrent(typed, 2));
  EXPECT_EQ(to_hf_config(typed)["layer_types"], types);
  EXPECT_EQ(config_of(to_hf_config(typed)), typed);
  EXPECT_EQ(first_layers(typed, 2).layer_is_recurrent, (std::vector<uint8_t>{1, 1}));
}

TEST(Lfm2Config, TheFeedForwardWidthFollowsFromItsFields) {
  const auto size = [](const Json& members) {
    return config_of(changed(lfm2_json(), members)).ffn_size;
  };
  EXPECT_EQ(size({{"block_auto_adjust_ff_dim", false}}), 48);
  EXPECT_EQ(size({{"block_auto_adjust_ff_dim", false}, {"block_ff_dim", 50}}), 50);
  EXPECT_EQ(size({{"block_multiple_of", 12}}), 36);
  EXPECT_EQ(size({{"block_multiple_of", 1}, {"intermediate_size", 50}}), 33);
  EXPECT_EQ(size({{"block_multiple_of", 1}, {"block_ffn_dim_multiplier", 1.3}}), 41);
  EXPECT_EQ(size({{"block_multiple_of", 10}, {"block_ffn_dim_multiplier", 2}}), 70);
  const ModelConfig config = config_of(changed(lfm2_json(), {{"block_multiple_of", 12}}));
  EXPECT_EQ(to_hf_config(config)["intermediate_size"], 36);
  EXPECT_EQ(to_hf_config(config)["block_auto_adjust_ff_dim"], false);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Lfm2Config, CountsTheParametersOfPublishedModels) {
  EXPECT_EQ(parameter_count(config_of(published(1024, 16, 6656))), 354483968);
  EXPECT_EQ(parameter_count(config_of(published(1536, 24, 10240))), 742489344);
  EXPECT_EQ(parameter_count(config_of(published(2048, 32, 12288))), 1170340608);
}

TEST(Lfm2Config, TiesByEitherName) {
  const Json own = {{"tie_embedding", false}};
  EXPECT_FALSE(config_of(changed(lfm2_json(), own)).tied_embeddings);
  EXPECT_FALSE(
      config_of(changed(lfm2_json(), {{"tie_embedding", false}, {"tie_word_embeddings", true}}))
          .tied_embeddings);
  EXPECT_FALSE(config_of(changed(lfm2_json(), {{"tie_word_embeddings", false}})).tied_embeddings);
  // Other families have no such field.
  EXPECT_TRUE(config_of(changed(family_json("smollm3"), own)).tied_embeddings);
}

TEST(Lfm2Config, RefusesWhatContradictsItself) {
  const auto refusal = [](const Json& members, const std::string& words) {
    const auto config = parsed(changed(lfm2_json(), members));
    ASSERT_FALSE(config) << members;
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  };
  refusal({{"layer_types", {"conv", "conv"}}}, "a list of 4 names");
  refusal({{"layer_types", {"conv", "conv", "conv", "linear_attention"}}},
          "layer type \"linear_attention\"");
  refusal({{"full_attn_idxs", {4}}}, "names layer 4 of 4");
  refusal({{"full_attn_idxs", {-1}}}, "names layer -1 of 4");
  refusal({{"full_attn_idxs", 2}}, "must be a list");
  refusal({{"full_attn_idxs", {2}}, {"conv_L_cache", 9}}, "[1, 8]");
  refusal({{"full_attn_idxs", {2}}, {"conv_L_cache", 0}}, "[1, 8]");
  refusal({{"block_multiple_of", 0}}, "must be positive");
  refusal({{"block_ffn_dim_multiplier", 1e9}}, "no feed-forward width");
  refusal({{"block_ffn_dim_multiplier", -1}}, "no feed-forward width");
  refusal({{"block_multiple_of", int64_t{1} << 62}}, "no feed-forward width");
  refusal({{"intermediate_size", -3}}, "no feed-forward width");

  ModelConfig other = config_of(family_json("llama"));
  other.short_conv.kernel = 3;
  EXPECT_FALSE(check_model_config(other, "x"));
  ModelConfig mixed = config_of(changed(lfm2_json(), {{"full_attn_idxs", {2}}}));
  EXPECT_TRUE(check_model_config(mixed, "x"));
  mixed.delta.key_heads = 2;
  EXPECT_FALSE(check_model_config(mixed, "x"));
}

Json moe_json() {
  return changed(family_json("lfm2_moe"),
                 {{"layer_types", {"conv", "conv", "full_attention", "conv"}}});
}

TEST(Lfm2MoeConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of(moe_json());
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 0, 1}));
  EXPECT_EQ(config.layer_is_dense, (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(config.ffn_size, 48);  // as it stands
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 32,
                                          .chosen = 4,
                                          .ffn_size = 1792,
                                          .normalised = true,
                                          .sigmoid_scores = true,
                                          .choice_bias = true,
                                          .sum_offset = 1e-6}));
  EXPECT_TRUE(config.tied_embeddings && config.qk_norm);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_FALSE(to_hf_config(config).contains("block_auto_adjust_ff_dim"));
}

TEST(Lfm2MoeConfig, SaysHowExpertsAreChosenAndWhichLayersHaveThem) {
  const ModelConfig config = config_of(changed(moe_json(), {{"num_dense_layers", 0},
                                                            {"use_expert_bias", false},
                                                            {"norm_topk_prob", false},
                                                            {"routed_scaling_factor", 2.5},
                                                            {"num_experts", 8},
                                                            {"num_experts_per_tok", 3},
                                                            {"moe_intermediate_size", 20},
                                                            {"output_router_logits", true}}));
  EXPECT_TRUE(config.layer_is_dense.empty());
  EXPECT_FALSE(config.experts.choice_bias || config.experts.normalised);
  EXPECT_FALSE(config.experts.balance_loss);  // there is none, whatever is asked for
  EXPECT_EQ(config.experts.weight_scale, 2.5);
  EXPECT_EQ(config.experts.count, 8);
  EXPECT_EQ(config.experts.chosen, 3);
  EXPECT_EQ(config.experts.ffn_size, 20);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Lfm2MoeConfig, RefusesWhatContradictsItself) {
  const auto refusal = [](const Json& json, const std::string& words) {
    const auto config = parsed(json);
    ASSERT_FALSE(config) << json;
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  };
  refusal(family_json("lfm2_moe"), "\"layer_types\" is missing");
  refusal(changed(moe_json(), {{"num_dense_layers", 4}}), "one at least must have experts");
  refusal(changed(moe_json(), {{"num_dense_layers", -1}}), "one at least must have experts");
  refusal(changed(moe_json(), {{"routed_scaling_factor", 0}}), "routed_scaling_factor");
  refusal(changed(moe_json(), {{"routed_scaling_factor", 1e-300}}), "routed_scaling_factor");
  refusal(changed(moe_json(), {{"num_experts_per_tok", 33}}), "num_experts_per_tok");
  ModelConfig config = config_of(moe_json());
  config.experts.sum_offset = 1e-20;
  EXPECT_FALSE(check_model_config(config, "x"));
}

// 22 layers with experts, each with a bias for their choice, which transformers counts apart.
TEST(Lfm2MoeConfig, CountsTheParametersOfThePublishedModel) {
  Json types = Json::array();
  for (int i = 0; i < 24; ++i) types.push_back("conv");
  for (const int i : {2, 6, 10, 14, 18, 21}) types[static_cast<size_t>(i)] = "full_attention";
  const ModelConfig config = config_of({{"model_type", "lfm2_moe"},
                                        {"vocab_size", 65536},
                                        {"hidden_size", 2048},
                                        {"intermediate_size", 7168},
                                        {"num_hidden_layers", 24},
                                        {"num_attention_heads", 32},
                                        {"max_position_embeddings", 128000},
                                        {"layer_types", types}});
  EXPECT_EQ(parameter_count(config), 8339929856 + 22 * 32);
}

TEST(Lfm2Config, AdaptersFindItsLinears) {
  const ModelConfig config = config_of(changed(lfm2_json(), {{"full_attn_idxs", {2}}}));
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"in_proj", "k_proj", "out_proj", "q_proj", "v_proj", "w1",
                                      "w2", "w3"}));
  EXPECT_EQ(lora_linear_modules(config_of(lfm2_json())),
            (std::vector<std::string>{"k_proj", "out_proj", "q_proj", "v_proj", "w1", "w2", "w3"}));
  EXPECT_EQ(lora_linear_modules(config_of(moe_json())),
            (std::vector<std::string>{"in_proj", "k_proj", "out_proj", "q_proj", "v_proj"}));
}

}  // namespace
}  // namespace jige::formats

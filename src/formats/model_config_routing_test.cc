// How experts are chosen in families of DeepSeek's kind: what is read, written and refused.
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json routed_json(const std::string& type) {
  return changed(family_json(type), {{"num_key_value_heads", 4},
                                     {"kv_lora_rank", 24},
                                     {"q_lora_rank", 16},
                                     {"qk_nope_head_dim", 12},
                                     {"qk_rope_head_dim", 8},
                                     {"v_head_dim", 10},
                                     {"n_routed_experts", 12},
                                     {"n_shared_experts", 2},
                                     {"num_experts_per_tok", 3},
                                     {"moe_intermediate_size", 20},
                                     {"first_k_dense_replace", 1},
                                     {"routed_scaling_factor", 1.5},
                                     {"n_group", 3},
                                     {"topk_group", 2}});
}

TEST(RoutingConfig, DeepSeekV3ChoosesBySigmoidsWithABiasInGroups) {
  const ModelConfig config = config_of(routed_json("deepseek_v3"));
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 12,
                                          .chosen = 3,
                                          .ffn_size = 20,
                                          .shared_ffn_size = 40,
                                          .normalised = true,
                                          .sigmoid_scores = true,
                                          .choice_bias = true,
                                          .weight_scale = 1.5,
                                          .groups = 3,
                                          .chosen_groups = 2,
                                          .groups_by_pairs = true}));
  EXPECT_EQ(config.layer_is_dense, (std::vector<uint8_t>{1, 0, 0, 0}));
  const Json written = to_hf_config(config);
  EXPECT_EQ(written["first_k_dense_replace"], 1);
  EXPECT_EQ(written["n_shared_experts"], 2);
  EXPECT_EQ(written["num_nextn_predict_layers"], 0);  // files that are written have none
  EXPECT_EQ(config_of(written), config);
  const int64_t layer = 12 * (32 + 1) + (12 + 2) * 3 * 32 * 20;
  const ModelConfig dense =
      config_of(changed(routed_json("deepseek_v3"), {{"first_k_dense_replace", 2}}));
  EXPECT_EQ(parameter_count(config) - parameter_count(dense), layer - 3 * 32 * 48);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "q_a_proj",
                                      "q_b_proj"}));
}

TEST(RoutingConfig, DeepSeekV2ChoosesByTheSoftmaxInGroupsOrWithout) {
  const ModelConfig lite = config_of(routed_json("deepseek_v2"));
  ExpertConfig expected{
      .count = 12, .chosen = 3, .ffn_size = 20, .shared_ffn_size = 40, .weight_scale = 1.5};
  EXPECT_EQ(lite.experts, expected);  // greedy where nothing else is said
  EXPECT_EQ(config_of(to_hf_config(lite)), lite);
  const ModelConfig grouped =
      config_of(changed(routed_json("deepseek_v2"), {{"topk_method", "group_limited_greedy"}}));
  expected.groups = 3;
  expected.chosen_groups = 2;
  EXPECT_EQ(grouped.experts, expected);
  EXPECT_EQ(to_hf_config(grouped)["topk_method"], "group_limited_greedy");
  EXPECT_EQ(config_of(to_hf_config(grouped)), grouped);
}

TEST(RoutingConfig, DefaultsAreThoseOfTransformers) {
  Json v3 = routed_json("deepseek_v3"), v2 = routed_json("deepseek_v2");
  for (Json* json : {&v2, &v3}) {
    (*json)["num_hidden_layers"] = 5;
    for (const char* field :
         {"n_routed_experts", "n_shared_experts", "moe_intermediate_size", "first_k_dense_replace",
          "routed_scaling_factor", "n_group", "topk_group"}) {
      json->erase(field);
    }
  }
  const ModelConfig second = config_of(v2), third = config_of(v3);
  EXPECT_EQ(second.experts,
            (ExpertConfig{.count = 64, .chosen = 3, .ffn_size = 1407, .shared_ffn_size = 2814}));
  EXPECT_TRUE(second.layer_is_dense.empty());
  EXPECT_EQ(third.experts.count, 256);
  EXPECT_EQ(third.experts.ffn_size, 2048);
  EXPECT_EQ(third.experts.shared_ffn_size, 2048);
  EXPECT_EQ(third.experts.weight_scale, 2.5);
  EXPECT_EQ(third.experts.groups, 8);
  EXPECT_EQ(third.experts.chosen_groups, 4);
  EXPECT_EQ(third.layer_is_dense, (std::vector<uint8_t>{1, 1, 1, 0, 0}));
}

TEST(RoutingConfig, Glm4MoeHasUsualAttentionWithNormsOfHeadsWhereAsked) {
  Json json = family_json("glm4_moe");
  json["num_experts_per_tok"] = 3;
  const ModelConfig plain = config_of(json);
  EXPECT_EQ(plain.experts.count, 128);
  EXPECT_EQ(plain.experts.ffn_size, 1408);
  EXPECT_EQ(plain.experts.shared_ffn_size, 1408);
  EXPECT_EQ(plain.experts.weight_scale, 1);
  EXPECT_TRUE(plain.experts.sigmoid_scores && plain.experts.choice_bias);
  EXPECT_EQ(plain.layer_is_dense, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_FALSE(plain.qk_norm || plain.qkv_bias);
  EXPECT_EQ(plain.rotary_dim, 4);  // half of 8
  EXPECT_EQ(plain.norm_eps, 1e-5);
  const ModelConfig normed =
      config_of(changed(json, {{"use_qk_norm", true}, {"attention_bias", true}}));
  EXPECT_TRUE(normed.qk_norm && normed.qkv_bias && !normed.output_bias);
  for (const ModelConfig& config : {plain, normed}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
    EXPECT_EQ(lora_linear_modules(config),
              (std::vector<std::string>{"k_proj", "o_proj", "q_proj", "v_proj"}));
  }
}

TEST(RoutingConfig, Glm4MoeLiteNamesTheKindOfEveryLayer) {
  Json json = routed_json("glm4_moe_lite");
  json.erase("routed_scaling_factor");
  json["first_k_dense_replace"] = 3;  // not asked
  const ModelConfig usual = config_of(json);
  EXPECT_EQ(usual.layer_is_dense, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_EQ(usual.experts.weight_scale, 1.8);
  const Json kinds = {"dense", "dense", "sparse", "sparse"};
  const ModelConfig listed = config_of(changed(json, {{"mlp_layer_types", kinds}}));
  EXPECT_EQ(listed.layer_is_dense, (std::vector<uint8_t>{1, 1, 0, 0}));
  EXPECT_EQ(to_hf_config(listed)["mlp_layer_types"], kinds);
  for (const ModelConfig& config : {usual, listed}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
  for (const Json& wrong :
       {Json("dense"), Json({"dense", "sparse"}), Json({"sparse", "dense", "sparse", "sparse"}),
        Json({"dense", "sparse", "linear", "sparse"})}) {
    EXPECT_FAILS_WITH(parsed(changed(json, {{"mlp_layer_types", wrong}})), Code::kUnsupported,
                      "mlp_layer_types");
  }
}

TEST(RoutingConfig, Dots1HasNormsOfHeadsAndWindowsInItsLastLayers) {
  Json json =
      changed(family_json("dots1"),
              {{"n_routed_experts", 12}, {"num_experts_per_tok", 3}, {"n_shared_experts", 2}});
  const ModelConfig usual = config_of(json);
  EXPECT_EQ(usual.experts, (ExpertConfig{.count = 12,
                                         .chosen = 3,
                                         .ffn_size = 1408,
                                         .shared_ffn_size = 2816,
                                         .sigmoid_scores = true,
                                         .choice_bias = true,
                                         .groups_by_pairs = true}));
  EXPECT_TRUE(usual.layer_is_dense.empty() && usual.layer_is_sliding.empty());
  EXPECT_EQ(usual.sliding_window, 0);
  EXPECT_TRUE(usual.qk_norm);
  EXPECT_TRUE(usual.eos_ids.empty());
  // As published folders have it.
  const ModelConfig published = config_of(changed(json, {{"first_k_dense_replace", 1},
                                                         {"norm_topk_prob", true},
                                                         {"routed_scaling_factor", 2.5},
                                                         {"scoring_func", "noaux_tc"},
                                                         {"max_window_layers", 3}}));
  EXPECT_TRUE(published.experts.normalised);
  EXPECT_EQ(published.layer_is_sliding, (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(published.sliding_window, 4096);
  EXPECT_EQ(to_hf_config(published)["scoring_func"], "noaux_tc");
  EXPECT_EQ(config_of(changed(json, {{"scoring_func", "sigmoid"}})), usual);
  EXPECT_FAILS_WITH(parsed(changed(json, {{"scoring_func", "softmax"}})), Code::kUnsupported,
                    "scoring_func");
  for (const ModelConfig& config : {usual, published}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
  json.erase("n_routed_experts");
  EXPECT_FAILS_WITH(parsed(json), Code::kCorrupt, "n_routed_experts");
  const Json large = {
      {"vocab_size", 152064},    {"hidden_size", 4096},       {"intermediate_size", 10944},
      {"num_hidden_layers", 62}, {"num_attention_heads", 32}, {"num_key_value_heads", 32},
      {"n_routed_experts", 128}, {"num_experts_per_tok", 6},  {"first_k_dense_replace", 1}};
  EXPECT_EQ(parameter_count(config_of(changed(json, large))), 142774381696);
}

TEST(RoutingConfig, MiniMaxM2ChoosesBySigmoidsAndTurnsPartsOfHeads) {
  Json json = changed(family_json("minimax_m2"), {{"num_attention_heads", 8}});
  json.erase("num_key_value_heads");
  const ModelConfig usual = config_of(json);
  EXPECT_EQ(usual.experts, (ExpertConfig{.count = 256,
                                         .chosen = 8,
                                         .ffn_size = 48,
                                         .normalised = true,
                                         .sigmoid_scores = true,
                                         .choice_bias = true,
                                         .sum_offset = 0}));
  EXPECT_EQ(usual.kv_head_count, 8);
  EXPECT_EQ(usual.head_dim, 128);
  EXPECT_EQ(usual.rotary_dim, 0);
  EXPECT_EQ(usual.rope.theta, 5e6);
  EXPECT_TRUE(usual.qk_norm_whole);
  const Json sizes = {
      {"vocab_size", 200064},
      {"hidden_size", 3072},
      {"intermediate_size", 1536},
      {"num_hidden_layers", 62},
      {"num_attention_heads", 48},
      {"rotary_dim", 64},
      {"scoring_func", "sigmoid"},
      {"quantization_config",
       {{"quant_method", "fp8"},
        {"fmt", "float8_e4m3fn"},
        {"activation_scheme", "dynamic"},
        {"weight_block_size", {128, 128}},
        {"modules_to_not_convert", {"gate", "e_score_correction_bias", "lm_head"}}}}};
  const ModelConfig large = config_of(changed(json, sizes));
  EXPECT_EQ(parameter_count(large), 228689764864);
  EXPECT_EQ(large.rotary_dim, 64);
  ASSERT_TRUE(large.quantised);
  const auto stored = [&](const char* module) { return large.quantised->find(module).value(); };
  EXPECT_EQ(stored("model.layers.0.block_sparse_moe.gate"), nullptr);
  EXPECT_NE(stored("model.layers.0.block_sparse_moe.experts.3.w1"), nullptr);
  for (ModelConfig config : {usual, large}) {
    config.quantised.reset();
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
  EXPECT_EQ(to_hf_config(large)["rotary_dim"], 64);
  EXPECT_FAILS_WITH(parsed(changed(json, {{"rotary_dim", 130}})), Code::kCorrupt, "rotary_dim");
  EXPECT_FAILS_WITH(parsed(changed(json, {{"rotary_dim", 63}})), Code::kCorrupt, "in pairs");
  EXPECT_FAILS_WITH(parsed(changed(json, {{"rotary_dim", 64}, {"partial_rotary_factor", 0.25}})),
                    Code::kCorrupt, "rotary_dim");
}

TEST(RoutingConfig, LayersWithoutExpertsAloneAreAModelToo) {
  for (const char* type : {"deepseek_v2", "deepseek_v3"}) {
    const ModelConfig config =
        config_of(changed(routed_json(type), {{"first_k_dense_replace", 4}}));
    EXPECT_EQ(config.experts, ExpertConfig());
    EXPECT_EQ(to_hf_config(config)["first_k_dense_replace"], 4);
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(RoutingConfig, RefusesWhatCannotBe) {
  const auto with = [](const char* type, const Json& members) {
    return parsed(changed(routed_json(type), members));
  };
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"n_group", 5}}), Code::kCorrupt, "n_group");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"n_group", 12}}), Code::kCorrupt, "n_group");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"n_group", 0}}), Code::kCorrupt, "n_group");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"topk_group", 4}}), Code::kCorrupt, "topk_group");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"topk_group", 1}, {"num_experts_per_tok", 5}}),
                    Code::kCorrupt, "num_experts_per_tok");
  for (const double scale : {0.0, 1e-300}) {  // the second is 0 in f32
    EXPECT_FAILS_WITH(with("deepseek_v3", {{"routed_scaling_factor", scale}}), Code::kCorrupt,
                      "routed_scaling_factor");
  }
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"n_shared_experts", -1}}), Code::kCorrupt,
                    "n_shared_experts");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"first_k_dense_replace", -1}}), Code::kCorrupt,
                    "first_k_dense_replace");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"scoring_func", "softmax"}}), Code::kUnsupported,
                    "scoring_func");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"moe_layer_freq", 2}}), Code::kUnsupported,
                    "moe_layer_freq");
  EXPECT_FAILS_WITH(with("deepseek_v3", {{"topk_method", "greedy"}}), Code::kUnsupported,
                    "topk_method");
  EXPECT_FAILS_WITH(with("deepseek_v2", {{"norm_topk_prob", true}}), Code::kCorrupt,
                    "norm_topk_prob");
  EXPECT_FAILS_WITH(with("deepseek_v2", {{"mlp_bias", true}}), Code::kCorrupt, "mlp_bias");
  ModelConfig config = config_of(routed_json("deepseek_v3"));
  config.layer_is_dense = {0, 1, 0, 0};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "other layers");
  config = config_of(routed_json("deepseek_v3"));
  config.experts.shared_ffn_size = 41;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "no multiple");
  config = config_of(family_json("olmoe"));
  config.experts.groups = 2;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "do not choose");
}

}  // namespace
}  // namespace jige::formats

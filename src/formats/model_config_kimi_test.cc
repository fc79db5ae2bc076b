// What config.json says of Kimi Linear.
#include <string>
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json kimi_json(const Json& members = Json::object()) {
  return changed(changed(family_json("kimi_linear"), {{"num_key_value_heads", 4}}), members);
}

TEST(KimiConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of(kimi_json());
  EXPECT_EQ(config.delta, (DeltaConfig{.key_heads = 32,
                                       .value_heads = 32,
                                       .key_dim = 128,
                                       .value_dim = 128,
                                       .kernel = 4,
                                       .by_key = true,
                                       .draws_steps = true}));
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 1}));
  const ModelConfig five = config_of(kimi_json({{"num_hidden_layers", 5}}));
  EXPECT_EQ(five.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 1, 0}));
  EXPECT_EQ(config.latent, (LatentConfig{.rank = 512, .query_rank = 0, .value_dim = 128}));
  EXPECT_EQ(config.head_dim, 192);
  EXPECT_FALSE(turns(config, 3));
  EXPECT_EQ(config.experts.count, 256);
  EXPECT_EQ(config.experts.chosen, 8);
  EXPECT_EQ(config.experts.weight_scale, 2.446);
  EXPECT_EQ(expert_layer_count(config), 3);
  EXPECT_EQ(
      lora_linear_modules(config),
      (std::vector<std::string>{"b_proj", "g_a_proj", "g_b_proj", "k_proj", "kv_a_proj_with_mqa",
                                "kv_b_proj", "o_proj", "q_proj", "v_proj"}));
}

TEST(KimiConfig, PublishedFoldersNumberLayersFromOne) {
  const Json inner = {{"head_dim", 8},
                      {"num_heads", 3},
                      {"short_conv_kernel_size", 3},
                      {"full_attn_layers", {2, 4}},
                      {"kda_layers", {1, 3}}};
  const Json members = {{"linear_attn_config", inner},
                        {"model_max_length", 256},
                        {"moe_renormalize", true},
                        {"num_expert_group", 1},
                        {"num_experts_per_token", 2},
                        {"num_shared_experts", 2},
                        {"num_experts", 6},
                        {"first_k_dense_replace", 2},
                        {"mla_use_nope", true},
                        {"moe_router_activation_func", "sigmoid"},
                        {"q_lora_rank", nullptr}};
  const ModelConfig config = config_of(kimi_json(members));
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(config.delta.key_dim, 8);
  EXPECT_EQ(config.delta.value_heads, 3);
  EXPECT_EQ(config.delta.kernel, 3);
  EXPECT_EQ(config.experts.chosen, 2);
  EXPECT_EQ(config.experts.shared_ffn_size, 2 * 1024);
  EXPECT_EQ(expert_layer_count(config), 2);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  const auto with = [&](const char* field, const Json& value) {
    Json json = kimi_json(members);
    json["linear_attn_config"][field] = value;
    return parsed(json);
  };
  for (const Json& layers : {Json{1, 3, 4}, Json{1}, Json{0, 1, 3}, Json{1, 3, 5}, Json(3)}) {
    EXPECT_FAILS_WITH(with("kda_layers", layers), Code::kCorrupt, "kda_layers");
  }
  EXPECT_FAILS_WITH(with("head_dim", 257), Code::kCorrupt, "linear_head_dim");
  EXPECT_FAILS_WITH(with("num_heads", 0), Code::kCorrupt, "linear_num_heads");
}

TEST(KimiConfig, CountsTheParametersOfThePublishedModel) {
  const ModelConfig config = config_of({{"model_type", "kimi_linear"},
                                        {"vocab_size", 163840},
                                        {"hidden_size", 2304},
                                        {"intermediate_size", 9216},
                                        {"num_hidden_layers", 27},
                                        {"num_attention_heads", 32},
                                        {"model_max_length", 1048576}});
  EXPECT_EQ(parameter_count(config), 49133081120);
  EXPECT_EQ(recurrent_layer_count(config), 21);
}

TEST(KimiConfig, IsRefusedWhereItCannotBe) {
  EXPECT_FAILS_WITH(parsed(kimi_json({{"mla_use_nope", false}})), Code::kUnsupported,
                    "mla_use_nope");
  EXPECT_FAILS_WITH(parsed(kimi_json({{"moe_router_activation_func", "softmax"}})),
                    Code::kUnsupported, "moe_router_activation_func");
  EXPECT_FAILS_WITH(parsed(kimi_json({{"linear_attn_config", 3}})), Code::kCorrupt,
                    "linear_attn_config");
  EXPECT_FAILS_WITH(parsed(kimi_json({{"linear_conv_kernel_dim", 9}})), Code::kCorrupt,
                    "linear_conv_kernel_dim");
  EXPECT_FAILS_WITH(parsed(kimi_json({{"attention_bias", true}})), Code::kCorrupt,
                    "attention_bias");
  ModelConfig config = config_of(kimi_json());
  config.delta.key_dim = 64;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "decays by key");
  config = config_of(family_json("qwen3_5_text"));
  config.delta.by_key = true;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "other rates");
}

}  // namespace
}  // namespace jige::formats

// What config.json says of Falcon-H1: what is read, written, counted and refused.
#include <set>
#include <string>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json falcon_json(const Json& members = Json::object()) {
  return changed(changed(family_json("falcon_h1"), {{"mamba_n_heads", 8}, {"mamba_d_ssm", 48}}),
                 members);
}

TEST(FalconConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig config = config_of(changed(family_json("falcon_h1"), {{"mamba_n_heads", 16}}));
  EXPECT_EQ(config.mamba2, (Mamba2Config{.heads = 16,
                                         .head_dim = 64,
                                         .groups = 1,
                                         .state_dim = 256,
                                         .kernel = 4,
                                         .conv_bias = true,
                                         .norm = GatedNorm::kNone}));
  EXPECT_TRUE(config.attention_beside);
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(recurrent_layer_count(config), 4);
  EXPECT_EQ(attention_layer_count(config), 4);
  EXPECT_TRUE(has_attention(config, 3) && is_recurrent(config, 3));
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias || config.tied_embeddings);
  EXPECT_EQ(config.embedding_scale, 1);
  EXPECT_EQ(config.logits_scale, 1);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(config.pad_id, 0);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(FalconConfig, EveryMultiplierHasItsPlace) {
  const ModelConfig config = config_of(falcon_json({{"embedding_multiplier", 5.5},
                                                    {"lm_head_multiplier", 0.02},
                                                    {"attention_in_multiplier", 1.5},
                                                    {"attention_out_multiplier", 0.9},
                                                    {"key_multiplier", 0.4},
                                                    {"ssm_in_multiplier", 1.25},
                                                    {"ssm_out_multiplier", 0.25},
                                                    {"mlp_multipliers", {0.8, 0.6}},
                                                    {"ssm_multipliers", {1, 2, 3.5, 4, 5}}}));
  EXPECT_EQ(config.embedding_scale, 5.5);
  EXPECT_EQ(config.logits_scale, 0.02);
  EXPECT_EQ(config.attention_in_scale, 1.5);
  EXPECT_EQ(config.attention_out_scale, 0.9);
  EXPECT_EQ(config.key_scale, 0.4);
  EXPECT_EQ(config.mamba2.in_scale, 1.25);
  EXPECT_EQ(config.mamba2.out_scale, 0.25);
  EXPECT_EQ(config.mlp_gate_scale, 0.8);
  EXPECT_EQ(config.mlp_out_scale, 0.6);
  EXPECT_EQ(config.mamba2.part_scales, (std::array<double, 5>{1, 2, 3.5, 4, 5}));
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(FalconConfig, HeadsOfMambaHaveTheColumnsThatAreLeft) {
  const auto dim = [](const Json& members) {
    return config_of(falcon_json(members)).mamba2.head_dim;
  };
  EXPECT_EQ(dim({}), 6);
  EXPECT_EQ(dim({{"mamba_d_head", "auto"}}), 6);
  EXPECT_EQ(dim({{"mamba_d_head", 6}}), 6);
  EXPECT_EQ(dim({{"mamba_d_ssm", nullptr}}), 8);  // twice the width
  EXPECT_EQ(dim({{"mamba_d_ssm", nullptr}, {"mamba_expand", 3}}), 12);
}

TEST(FalconConfig, NormsAndBiasesAreChosenOneByOne) {
  const auto norm = [](const Json& members) { return config_of(falcon_json(members)).mamba2.norm; };
  EXPECT_EQ(norm({{"mamba_rms_norm", true}}), GatedNorm::kNormFirst);
  EXPECT_EQ(norm({{"mamba_rms_norm", true}, {"mamba_norm_before_gate", false}}),
            GatedNorm::kGateFirst);
  EXPECT_EQ(norm({{"mamba_rms_norm", false}, {"mamba_norm_before_gate", false}}), GatedNorm::kNone);
  const ModelConfig in = config_of(falcon_json({{"mamba_proj_bias", true}}));
  EXPECT_TRUE(in.mamba2.bias && !in.mamba2.output_bias);
  const ModelConfig out = config_of(falcon_json({{"projectors_bias", true}}));
  EXPECT_TRUE(!out.mamba2.bias && out.mamba2.output_bias);
  const ModelConfig other =
      config_of(falcon_json({{"attention_bias", true}, {"mlp_bias", true}, {"head_dim", 12}}));
  EXPECT_TRUE(other.qkv_bias && other.output_bias && other.mlp_bias);
  EXPECT_EQ(other.head_dim, 12);
  for (const ModelConfig& config : {in, out, other}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(FalconConfig, CountsTheParametersOfPublishedShapes) {
  const auto count = [](int64_t vocab, int64_t layers, int64_t heads, int64_t ffn,
                        const Json& members) {
    return parameter_count(config_of(falcon_json(changed({{"vocab_size", vocab},
                                                          {"num_hidden_layers", layers},
                                                          {"num_attention_heads", heads},
                                                          {"intermediate_size", ffn}},
                                                         members))));
  };
  EXPECT_EQ(count(32784, 36, 8, 2048,
                  {{"hidden_size", 1024},
                   {"head_dim", 64},
                   {"mamba_d_ssm", 1536},
                   {"mamba_n_heads", 24},
                   {"mamba_d_state", 128}}),
            521411104);  // 0.5B
  EXPECT_EQ(
      count(
          65537, 24, 8, 4608,
          {{"hidden_size", 2048}, {"head_dim", 128}, {"mamba_d_ssm", 3072}, {"mamba_n_heads", 48}}),
      1554789760);  // 1.5B
  const Json wide = {
      {"hidden_size", 3072}, {"head_dim", 128}, {"mamba_d_ssm", 3072}, {"mamba_n_heads", 24}};
  EXPECT_EQ(count(130049, 44, 12, 12288, wide), 7585519712);  // 7B
  EXPECT_EQ(count(130049, 44, 12, 12288, changed(wide, {{"mamba_rms_norm", true}})), 7585654880);
}

// PEFT takes none on the product behind Mamba 2.
TEST(FalconConfig, AdaptersMayStandOnBothSides) {
  const std::vector<std::string> got = lora_linear_modules(config_of(falcon_json()));
  EXPECT_EQ(std::set<std::string>(got.begin(), got.end()),
            (std::set<std::string>{"down_proj", "gate_proj", "in_proj", "k_proj", "o_proj",
                                   "q_proj", "up_proj", "v_proj"}));
}

TEST(FalconConfig, RefusesWhatContradictsItself) {
  const auto refusal = [](const Json& members, const std::string& words) {
    const auto config = parsed(falcon_json(members));
    ASSERT_FALSE(config) << members;
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  };
  refusal({{"mamba_d_ssm", 50}}, "mamba_d_ssm");
  refusal({{"mamba_d_ssm", -8}}, "mamba_d_ssm");
  refusal({{"mamba_d_ssm", int64_t{1} << 60}}, "over the limit");
  refusal({{"mamba_d_head", 7}}, "mamba_d_head");
  refusal({{"mamba_n_heads", 0}}, "mamba_n_heads");
  refusal({{"mamba_d_ssm", nullptr}, {"mamba_expand", 1e9}}, "mamba_expand");
  refusal({{"mlp_multipliers", {1.0}}}, "a list of 2 numbers");
  refusal({{"ssm_multipliers", 1.0}}, "a list of 5 numbers");
  refusal({{"ssm_multipliers", {1, 2, 3, 4, "5"}}}, "ssm_multipliers");
  refusal({{"ssm_multipliers", {1, 2, 3, 4, 0}}}, "must lie in");
  refusal({{"mlp_multipliers", {1, -1}}}, "must lie in");
  refusal({{"key_multiplier", 0}}, "key_multiplier");
  refusal({{"ssm_out_multiplier", 1e9}}, "ssm_out_multiplier");
  refusal({{"lm_head_multiplier", 0}}, "must lie in");
  refusal({{"time_step_limit", {0.0, 0.1}}}, "time_step_limit");
  refusal({{"hidden_act", "gelu"}}, "hidden_act");
}

TEST(FalconConfig, OtherFamiliesHaveNoSuchNumbers) {
  const ModelConfig llama = config_of(family_json("llama"));
  const auto refused = [&](auto change, ModelConfig config) {
    change(config);
    return !check_model_config(config, "test");
  };
  EXPECT_TRUE(refused([](auto& c) { c.key_scale = 2; }, llama));
  EXPECT_TRUE(refused([](auto& c) { c.mlp_out_scale = 2; }, llama));
  EXPECT_TRUE(refused([](auto& c) { c.attention_in_scale = 2; }, llama));
  EXPECT_TRUE(refused([](auto& c) { c.attention_beside = true; }, llama));
  const ModelConfig bamba =
      config_of(changed(family_json("bamba"), {{"mamba_n_heads", 8}, {"mamba_d_state", 16}}));
  EXPECT_TRUE(refused([](auto& c) { c.mamba2.part_scales[3] = 2; }, bamba));
  EXPECT_TRUE(refused([](auto& c) { c.mamba2.norm = GatedNorm::kNone; }, bamba));
  EXPECT_TRUE(refused([](auto& c) { c.mamba2.output_bias = true; }, bamba));
  const ModelConfig falcon = config_of(falcon_json());
  EXPECT_TRUE(refused([](auto& c) { c.attention_beside = false; }, falcon));
  EXPECT_TRUE(refused([](auto& c) { c.layer_is_recurrent[1] = 0; }, falcon));
}

}  // namespace
}  // namespace jige::formats

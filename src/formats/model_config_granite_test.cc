// What config.json says of Granite 3 with experts: what is read, written, counted and refused.
#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(GraniteMoeConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig plain = config_of(family_json("granitemoe"));
  EXPECT_EQ(plain.experts,
            (ExpertConfig{.count = 8, .chosen = 2, .ffn_size = 48, .normalised = true}));
  EXPECT_EQ(plain.score_scale, 1);
  EXPECT_EQ(plain.norm_eps, 1e-6);
  EXPECT_EQ(plain.rope.theta, 1e4);
  EXPECT_TRUE(plain.layer_is_unturned.empty());
  EXPECT_FALSE(plain.tied_embeddings || plain.qkv_bias);
  const ModelConfig unshared = config_of(family_json("granitemoeshared"));
  EXPECT_EQ(unshared.experts, plain.experts);  // shared_intermediate_size is 0
  const ModelConfig shared =
      config_of(changed(family_json("granitemoeshared"), {{"shared_intermediate_size", 24}}));
  EXPECT_EQ(shared.experts.shared_ffn_size, 24);
  EXPECT_FALSE(shared.experts.shared_gate);
  for (const ModelConfig& config : {plain, unshared, shared}) {
    EXPECT_EQ(config_of(to_hf_config(config)), config);
    EXPECT_EQ(lora_linear_modules(config),
              (std::vector<std::string>{"k_proj", "o_proj", "q_proj", "v_proj"}));
  }
  EXPECT_FALSE(to_hf_config(plain).contains("shared_intermediate_size"));
}

TEST(GraniteMoeConfig, CountsTheParametersOfPublishedModels) {
  const auto count = [](const char* type, const Json& members) {
    const Json common = {{"num_key_value_heads", 8},
                         {"intermediate_size", 512},
                         {"num_experts_per_tok", 8},
                         {"tie_word_embeddings", true}};
    return parameter_count(config_of(changed(changed(family_json(type), common), members)));
  };
  const Json small = {{"vocab_size", 49155},
                      {"hidden_size", 1024},
                      {"num_hidden_layers", 24},
                      {"num_attention_heads", 16},
                      {"num_local_experts", 32}};
  EXPECT_EQ(count("granitemoe", small), 1334628352);  // 1B-A400M
  const Json large = {{"vocab_size", 49155},
                      {"hidden_size", 1536},
                      {"num_hidden_layers", 32},
                      {"num_attention_heads", 24},
                      {"num_local_experts", 40}};
  EXPECT_EQ(count("granitemoe", large), 3298793472);  // 3B-A800M
  const Json shared = {{"vocab_size", 49160},     {"hidden_size", 1536},
                       {"num_hidden_layers", 40}, {"num_attention_heads", 24},
                       {"num_local_experts", 62}, {"shared_intermediate_size", 1024}};
  EXPECT_EQ(count("granitemoeshared", shared), 6370899456);
}

TEST(GraniteMoeConfig, RefusesWhatCannotBe) {
  const auto with = [](const char* type, const Json& members) {
    return parsed(changed(family_json(type), members));
  };
  EXPECT_FAILS_WITH(with("granitemoe", {{"num_local_experts", 0}}), Code::kCorrupt,
                    "num_local_experts");
  EXPECT_FAILS_WITH(with("granitemoe", {{"num_experts_per_tok", 9}}), Code::kCorrupt,
                    "num_experts_per_tok");
  EXPECT_FAILS_WITH(with("granitemoeshared", {{"shared_intermediate_size", -1}}), Code::kCorrupt,
                    "shared_intermediate_size");
  EXPECT_FAILS_WITH(with("granitemoeshared", {{"hidden_act", "gelu"}}), Code::kUnsupported,
                    "hidden_act");
  ModelConfig config = config_of(family_json("granitemoe"));
  config.experts.shared_ffn_size = 24;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument,
                    "shared_intermediate_size");
}

}  // namespace
}  // namespace jige::formats

#include <cmath>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json latent_json(const std::string& type) {
  Json json = changed(family_json(type), {{"num_key_value_heads", 4},
                                          {"kv_lora_rank", 24},
                                          {"q_lora_rank", 16},
                                          {"qk_nope_head_dim", 12},
                                          {"qk_rope_head_dim", 8},
                                          {"v_head_dim", 10}});
  if (type != "youtu") json["first_k_dense_replace"] = 4;
  return json;
}

TEST(LatentConfig, SaysWhatHeadsAreMadeOf) {
  for (const char* type : {"youtu", "deepseek_v2", "deepseek_v3"}) {
    SCOPED_TRACE(type);
    const ModelConfig config = config_of(latent_json(type));
    EXPECT_EQ(config.latent, (LatentConfig{.rank = 24, .query_rank = 16, .value_dim = 10}));
    EXPECT_EQ(config.head_dim, 20);
    EXPECT_EQ(config.rotary_dim, 8);
    EXPECT_TRUE(config.turns_neighbours);
    const Json written = to_hf_config(config);
    EXPECT_EQ(written["head_dim"], 8);
    EXPECT_EQ(written["qk_nope_head_dim"], 12);
    EXPECT_FALSE(written.contains("partial_rotary_factor"));
    EXPECT_EQ(config_of(written), config);
  }
}

TEST(LatentConfig, DefaultsAreThoseOfTransformers) {
  const ModelConfig youtu = config_of(changed(family_json("youtu"), {{"num_key_value_heads", 4}}));
  EXPECT_EQ(youtu.latent, (LatentConfig{.rank = 512, .query_rank = 1536, .value_dim = 128}));
  EXPECT_EQ(youtu.head_dim, 192);
  EXPECT_EQ(youtu.rotary_dim, 64);
  EXPECT_TRUE(youtu.tied_embeddings);
  EXPECT_EQ(youtu.norm_eps, 1e-6);
}

TEST(LatentConfig, QueriesMayHaveNoLatentAndTurnByHalves) {
  const ModelConfig config = config_of(
      changed(latent_json("youtu"), {{"q_lora_rank", nullptr}, {"rope_interleave", false}}));
  EXPECT_EQ(config.latent.query_rank, 0);
  EXPECT_FALSE(config.turns_neighbours);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"down_proj", "gate_proj", "kv_a_proj_with_mqa", "kv_b_proj",
                                      "o_proj", "q_proj", "up_proj"}));
  EXPECT_EQ(lora_linear_modules(config_of(latent_json("youtu"))),
            (std::vector<std::string>{"down_proj", "gate_proj", "kv_a_proj_with_mqa", "kv_b_proj",
                                      "o_proj", "q_a_proj", "q_b_proj", "up_proj"}));
}

// As DeepSeek-V2-Lite has it.
TEST(LatentConfig, KeepsWhatYarnMultipliesScoresWith) {
  const Json yarn = {{"type", "yarn"},
                     {"factor", 40},
                     {"beta_fast", 32},
                     {"beta_slow", 1},
                     {"mscale", 0.707},
                     {"mscale_all_dim", 0.707},
                     {"original_max_position_embeddings", 4096}};
  const ModelConfig config =
      config_of(changed(latent_json("deepseek_v2"), {{"rope_scaling", yarn}}));
  EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.rope.mscale_all, 0.707);
  EXPECT_EQ(config.rope.attention_factor, 1.0);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  // Elsewhere the attention factor is all that follows from it.
  const ModelConfig llama = config_of(changed(family_json("llama"), {{"rope_scaling", yarn}}));
  EXPECT_EQ(llama.rope.mscale_all, 0);
  EXPECT_EQ(config_of(to_hf_config(llama)), llama);
  const Json linear = {{"type", "linear"}, {"factor", 2}};
  EXPECT_FAILS_WITH(parsed(changed(latent_json("youtu"), {{"rope_scaling", linear}})),
                    Code::kUnsupported, "default and yarn");
}

TEST(LatentConfig, MiniCpm3ScalesWhatItsPartsGive) {
  const Json json = {{"model_type", "minicpm3"},  {"vocab_size", 73448},
                     {"hidden_size", 2560},       {"intermediate_size", 6400},
                     {"num_hidden_layers", 62},   {"num_attention_heads", 40},
                     {"num_key_value_heads", 40}, {"max_position_embeddings", 32768}};
  const ModelConfig config = config_of(json);
  EXPECT_EQ(parameter_count(config), 4073875968);
  EXPECT_EQ(config.latent, (LatentConfig{.rank = 256, .query_rank = 768, .value_dim = 64}));
  EXPECT_EQ(config.embedding_scale, 12);
  EXPECT_EQ(config.residual_scale, 1.4 / std::sqrt(62.0));
  EXPECT_EQ(config.logits_divisor, 10);
  EXPECT_FALSE(config.turns_neighbours);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  const ModelConfig unscaled =
      config_of(changed(json, {{"scale_depth", nullptr}, {"dim_model_base", nullptr}}));
  EXPECT_EQ(unscaled.residual_scale, 1);
  EXPECT_EQ(unscaled.logits_divisor, 1);
  for (int64_t layers = 1; layers < 100; ++layers) {
    const ModelConfig deep = config_of(changed(json, {{"num_hidden_layers", layers}}));
    EXPECT_EQ(config_of(to_hf_config(deep)), deep) << layers;
  }
}

TEST(LatentConfig, RefusesWhatCannotBe) {
  const auto with = [](const Json& members) {
    return parsed(changed(latent_json("deepseek_v3"), members));
  };
  for (const char* field :
       {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    for (const Json& wrong : {Json(0), Json(-3), Json(int64_t{1} << 40)}) {
      EXPECT_FAILS_WITH(with({{field, wrong}}), Code::kCorrupt, field);
    }
  }
  EXPECT_FAILS_WITH(with({{"qk_rope_head_dim", 7}}), Code::kCorrupt, "odd");
  EXPECT_FAILS_WITH(with({{"v_head_dim", 21}}), Code::kCorrupt, "wider than keys");
  EXPECT_FAILS_WITH(with({{"num_key_value_heads", 2}}), Code::kCorrupt, "num_key_value_heads is 2");
  EXPECT_FAILS_WITH(with({{"attention_bias", true}, {"q_lora_rank", nullptr}}), Code::kCorrupt,
                    "attention_bias");
  ModelConfig llama = config_of(family_json("llama"));
  llama.latent.rank = 8;
  EXPECT_FAILS_WITH(check_model_config(llama, "x"), Code::kInvalidArgument, "no latents");
}

TEST(LatentConfig, CountsTheParametersOfPublishedModels) {
  const ModelConfig youtu = config_of(changed(latent_json("youtu"), {{"vocab_size", 128256},
                                                                     {"hidden_size", 2048},
                                                                     {"intermediate_size", 6144},
                                                                     {"num_hidden_layers", 32},
                                                                     {"num_attention_heads", 16},
                                                                     {"num_key_value_heads", 16},
                                                                     {"kv_lora_rank", 512},
                                                                     {"q_lora_rank", 1536},
                                                                     {"qk_nope_head_dim", 128},
                                                                     {"qk_rope_head_dim", 64},
                                                                     {"v_head_dim", 128}}));
  EXPECT_EQ(parameter_count(youtu), 1961560064);
}

}  // namespace
}  // namespace jige::formats

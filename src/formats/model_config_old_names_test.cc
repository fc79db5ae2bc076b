// Fields under the names that published folders of EXAONE 3 and InternLM3 have.
#include <string>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// Of EXAONE 3.5, 2.4B.
Json exaone_published() {
  return {{"model_type", "exaone"},
          {"architectures", {"ExaoneForCausalLM"}},
          {"activation_function", "silu"},
          {"head_dim", 80},
          {"hidden_size", 2560},
          {"intermediate_size", 7168},
          {"layer_norm_epsilon", 1e-5},
          {"max_position_embeddings", 32768},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"num_layers", 30},
          {"rope_scaling",
           {{"factor", 8.0},
            {"high_freq_factor", 4.0},
            {"low_freq_factor", 1.0},
            {"original_max_position_embeddings", 8192},
            {"rope_type", "llama3"}}},
          {"rope_theta", 1000000},
          {"tie_word_embeddings", true},
          {"vocab_size", 102400}};
}

// Of the published 8B.
Json internlm3_published() {
  return {{"model_type", "internlm3"},
          {"architectures", {"InternLM3ForCausalLM"}},
          {"bias", false},
          {"qkv_bias", false},
          {"head_dim", 128},
          {"hidden_act", "silu"},
          {"hidden_size", 4096},
          {"intermediate_size", 10240},
          {"max_position_embeddings", 32768},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 48},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5},
          {"rope_scaling", {{"factor", 6.0}, {"rope_type", "dynamic"}}},
          {"rope_theta", 50000000},
          {"vocab_size", 128512}};
}

TEST(OldNames, AreReadAsTheUsualOnes) {
  const ModelConfig exaone = config_of(exaone_published());
  EXPECT_EQ(exaone.family, Family::kExaone);
  EXPECT_EQ(exaone.layer_count, 30);
  EXPECT_EQ(exaone.rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(config_of(to_hf_config(exaone)), exaone);
  EXPECT_FALSE(to_hf_config(exaone).contains("num_layers"));

  const ModelConfig internlm =
      config_of(changed(internlm3_published(), {{"bias", true}, {"qkv_bias", true}}));
  EXPECT_TRUE(internlm.qkv_bias && internlm.output_bias && internlm.mlp_bias);
  EXPECT_EQ(internlm.rope, RopeConfig{.theta = 5e7});
}

TEST(OldNames, ModelsHaveTheParametersThatArePublished) {
  EXPECT_EQ(parameter_count(config_of(exaone_published())), 2405327360);
  EXPECT_EQ(parameter_count(config_of(internlm3_published())), 8804241408);
}

TEST(OldNames, RefusesContradictions) {
  EXPECT_FAILS_WITH(parsed(changed(exaone_published(), {{"num_hidden_layers", 31}})),
                    Code::kCorrupt, "num_layers");
  EXPECT_FAILS_WITH(parsed(changed(exaone_published(), {{"activation_function", "gelu"}})),
                    Code::kUnsupported, "hidden_act");
  EXPECT_FAILS_WITH(parsed(changed(internlm3_published(), {{"bias", true}})), Code::kCorrupt,
                    "biases everywhere or nowhere");
  // Of another family the name is none.
  EXPECT_FAILS_WITH(parsed(changed(exaone_published(),
                                   {{"model_type", "llama"}, {"architectures", Json::array()}})),
                    Code::kNotFound, "num_hidden_layers");
  EXPECT_FAILS_WITH(
      parsed(changed(family_json("llama"),
                     {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 6.0}}}})),
      Code::kUnsupported, "dynamic");
}

}  // namespace
}  // namespace jige::formats

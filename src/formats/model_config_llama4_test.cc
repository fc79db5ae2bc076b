// What config.json says of Llama 4.
#include <string>
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json llama4_json(const Json& members = Json::object()) {
  const Json own = {{"intermediate_size_mlp", 64}, {"num_local_experts", 4}};
  return changed(changed(family_json("llama4_text"), own), members);
}

// As the published models have it, Scout and Maverick.
Json llama4_published(bool maverick) {
  return {{"model_type", "llama4_text"},
          {"attention_chunk_size", 8192},
          {"head_dim", 128},
          {"hidden_act", "silu"},
          {"hidden_size", 5120},
          {"interleave_moe_layer_step", maverick ? 2 : 1},
          {"intermediate_size", 8192},
          {"intermediate_size_mlp", 16384},
          {"max_position_embeddings", maverick ? 1048576 : 10485760},
          {"no_rope_layers", Json::array()},
          {"num_attention_heads", 40},
          {"num_experts_per_tok", 1},
          {"num_hidden_layers", 48},
          {"num_key_value_heads", 8},
          {"num_local_experts", maverick ? 128 : 16},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"rope_scaling", maverick ? Json()
                                    : Json{{"rope_type", "llama3"},
                                           {"factor", 16.0},
                                           {"low_freq_factor", 1.0},
                                           {"high_freq_factor", 1.0},
                                           {"original_max_position_embeddings", 8192}}},
          {"use_qk_norm", !maverick},
          {"vocab_size", 202048}};
}

TEST(Llama4Config, DefaultsAreThoseOfTransformers) {
  Json json = llama4_json({{"num_hidden_layers", 5}, {"num_attention_heads", 8}});
  for (const char* field : {"num_key_value_heads", "num_local_experts"}) json.erase(field);
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.kv_head_count, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope, RopeConfig{.theta = 5e5});
  EXPECT_EQ(config.layer_is_unturned, (std::vector<uint8_t>{0, 0, 0, 1, 0}));
  EXPECT_EQ(config.attention_chunk, 8192);
  EXPECT_EQ(config.query_growth, (QueryGrowthConfig{.rate = 0.1, .context = 8192}));
  EXPECT_TRUE(config.qk_norm_plain);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.experts.count, 16);
  EXPECT_EQ(config.experts.chosen, 1);
  EXPECT_EQ(config.experts.ffn_size, 48);
  EXPECT_EQ(config.experts.shared_ffn_size, 48);
  EXPECT_TRUE(config.experts.weighs_inputs);
  EXPECT_TRUE(config.layer_is_dense.empty());
}

TEST(Llama4Config, PublishedModelsHaveTheirParameters) {
  EXPECT_EQ(parameter_count(config_of(llama4_published(false))), 107769861120);
  EXPECT_EQ(parameter_count(config_of(llama4_published(true))), 400711848960);
  EXPECT_FALSE(config_of(llama4_published(true)).qk_norm_plain);
}

TEST(Llama4Config, LayersWithExpertsAreCountedOrListed) {
  const auto dense = [](const Json& members) {
    return config_of(llama4_json(members)).layer_is_dense;
  };
  EXPECT_EQ(dense({{"interleave_moe_layer_step", 2}}), (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(dense({{"interleave_moe_layer_step", 3}}), (std::vector<uint8_t>{1, 1, 0, 1}));
  EXPECT_EQ(dense({{"moe_layers", {0, 1}}, {"interleave_moe_layer_step", 2}}),
            (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_TRUE(dense({{"moe_layers", {3, 2, 1, 0}}}).empty());
}

TEST(Llama4Config, GrowthMayBeSwitchedByANumber) {
  const auto rate = [](const Json& value) {
    return config_of(llama4_json({{"attn_temperature_tuning", value}})).query_growth.rate;
  };
  EXPECT_EQ(rate(4), 0.1);
  EXPECT_EQ(rate(true), 0.1);
  EXPECT_EQ(rate(0), 0);
  EXPECT_EQ(rate(false), 0);
  EXPECT_FAILS_WITH(parsed(llama4_json({{"attn_temperature_tuning", "x"}})), Code::kInvalidArgument,
                    "attn_temperature_tuning");
}

TEST(Llama4Config, IsWrittenAsItIsRead) {
  const Json members[] = {
      Json::object(),
      {{"attention_chunk_size", nullptr}, {"attn_temperature_tuning", false}},
      {{"attention_chunk_size", 48},
       {"no_rope_layers", {0, 1, 1, 0}},
       {"layer_types",
        {"full_attention", "chunked_attention", "chunked_attention", "full_attention"}},
       {"attn_scale", 0.3},
       {"floor_scale", 5},
       {"use_qk_norm", false},
       {"attention_bias", true},
       {"num_experts_per_tok", 3},
       {"moe_layers", {1, 3}}}};
  for (const Json& one : members) {
    const ModelConfig config = config_of(llama4_json(one));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << one;
  }
}

TEST(Llama4Config, OfFoldersWithImagesIsTheLanguageModel) {
  const Json json = {{"architectures", {"Llama4ForConditionalGeneration"}},
                     {"model_type", "llama4"},
                     {"torch_dtype", "bfloat16"},
                     {"text_config", changed(llama4_published(false), {{"eos_token_id", {1, 8}}})},
                     {"vision_config", {{"model_type", "llama4_vision_model"}}}};
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.family, Family::kLlama4);
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{1, 8}));
}

TEST(Llama4Config, RefusesWhatContradictsItselfOrIsNotSupported) {
  const std::pair<Json, const char*> corrupt[] = {
      {{{"attention_chunk_size", -16}}, "attention_chunk_size"},
      {{{"attention_chunk_size", 24}}, "attention_chunk_size"},
      {{{"attn_scale", -1.0}}, "attn_scale"},
      {{{"floor_scale", 0}}, "floor_scale"},
      {{{"floor_scale", int64_t{1} << 40}}, "floor_scale"},
      {{{"no_rope_layers", {1, 1}}}, "no_rope_layers"},
      {{{"layer_types", {"full_attention"}}}, "layer_types"},
      {{{"moe_layers", 3}}, "moe_layers"},
      {{{"moe_layers", {4}}}, "moe_layers"},
      {{{"interleave_moe_layer_step", 0}}, "interleave_moe_layer_step"},
      {{{"num_local_experts", 0}}, "num_local_experts"},
      {{{"num_experts_per_tok", 5}}, "num_experts_per_tok"},
      {{{"intermediate_size", 0}}, "intermediate_size"},
      {{{"intermediate_size_mlp", 0}}, "intermediate_size_mlp"},
  };
  for (const auto& [members, word] : corrupt) {
    EXPECT_FAILS_WITH(parsed(llama4_json(members)), Code::kCorrupt, word);
  }
  EXPECT_FAILS_WITH(parsed(llama4_json({{"moe_layers", {"x"}}})), Code::kInvalidArgument,
                    "moe_layers");
  const Json whole =
      Json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
  const std::pair<Json, const char*> unsupported[] = {
      {{{"layer_types", whole}}, "layer_types"},
      {{{"moe_layers", Json::array()}}, "moe_layers"},
      {{{"interleave_moe_layer_step", 5}}, "interleave_moe_layer_step"},
      {{{"hidden_act", "gelu"}}, "hidden_act"},
  };
  for (const auto& [members, word] : unsupported) {
    EXPECT_FAILS_WITH(parsed(llama4_json(members)), Code::kUnsupported, word);
  }
}

TEST(Llama4Config, AdaptersGoOnAttention) {
  EXPECT_EQ(lora_linear_modules(config_of(llama4_json())),
            (std::vector<std::string>{"k_proj", "o_proj", "q_proj", "v_proj"}));
}

}  // namespace
}  // namespace jige::formats

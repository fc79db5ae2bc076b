// Fields of delta nets in config.json: what is read, written and refused.
#include <string>
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json delta_json() {
  return changed(family_json("qwen3_5_text"), {{"head_dim", 16},
                                               {"linear_num_key_heads", 2},
                                               {"linear_num_value_heads", 6},
                                               {"linear_key_head_dim", 10},
                                               {"linear_value_head_dim", 12},
                                               {"linear_conv_kernel_dim", 3}});
}

Json delta_moe_json() {
  Json json = changed(delta_json(), {{"model_type", "qwen3_5_moe_text"},
                                     {"num_experts", 6},
                                     {"num_experts_per_tok", 3},
                                     {"moe_intermediate_size", 20},
                                     {"shared_expert_intermediate_size", 40}});
  json.erase("intermediate_size");
  return json;
}

// Of Qwen3-Next, in which some layers may have no experts.
Json next_json() {
  return changed(delta_moe_json(), {{"model_type", "qwen3_next"}, {"intermediate_size", 48}});
}

// What the folder of Qwen3.5-0.8B says, but for its part that reads images.
Json qwen3_5_08b() {
  Json text = {{"model_type", "qwen3_5_text"},
               {"attention_bias", false},
               {"attn_output_gate", true},
               {"full_attention_interval", 4},
               {"head_dim", 256},
               {"hidden_size", 1024},
               {"intermediate_size", 3584},
               {"linear_num_value_heads", 16},
               {"max_position_embeddings", 262144},
               {"num_attention_heads", 8},
               {"num_hidden_layers", 24},
               {"num_key_value_heads", 2},
               {"tie_word_embeddings", false},
               {"vocab_size", 248320},
               {"eos_token_id", 248044},
               {"rope_parameters",
                {{"mrope_interleaved", true},
                 {"mrope_section", {11, 11, 10}},
                 {"rope_type", "default"},
                 {"rope_theta", 10000000},
                 {"partial_rotary_factor", 0.25}}}};
  return {{"architectures", {"Qwen3_5ForConditionalGeneration"}},
          {"model_type", "qwen3_5"},
          {"text_config", std::move(text)},
          {"tie_word_embeddings", true},
          {"vision_config", {{"model_type", "qwen3_5"}}}};
}

TEST(DeltaConfig, SaysWhatLayersAreMadeOf) {
  const ModelConfig config = config_of(delta_json());
  EXPECT_EQ(config.family, Family::kQwen35);
  EXPECT_EQ(
      config.delta,
      (DeltaConfig{.key_heads = 2, .value_heads = 6, .key_dim = 10, .value_dim = 12, .kernel = 3}));
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_TRUE(is_recurrent(config, 0) && !is_recurrent(config, 3));
  EXPECT_EQ(recurrent_layer_count(config), 3);
  EXPECT_EQ(config.rotary_dim, 4);
  EXPECT_TRUE(config.norm_adds_one && config.qk_norm && config.attention_gate);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"down_proj", "gate_proj", "in_proj_a", "in_proj_b",
                                      "in_proj_qkv", "in_proj_z", "k_proj", "o_proj", "out_proj",
                                      "q_proj", "up_proj", "v_proj"}));
}

TEST(DeltaConfig, LayersAreThoseOfTheListOrOfTheInterval) {
  const auto layers = [](const Json& members) {
    return config_of(changed(delta_json(), members)).layer_is_recurrent;
  };
  EXPECT_EQ(layers({{"full_attention_interval", 2}}), (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(layers({{"full_attention_interval", 3}}), (std::vector<uint8_t>{1, 1, 0, 1}));
  EXPECT_EQ(layers({{"full_attention_interval", 9}}), (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(layers({{"full_attention_interval", 1}}), std::vector<uint8_t>());
  const Json types = {"full_attention", "linear_attention", "linear_attention", "full_attention"};
  EXPECT_EQ(layers({{"layer_types", types}, {"full_attention_interval", 2}}),
            (std::vector<uint8_t>{0, 1, 1, 0}));
  EXPECT_EQ(layers({{"layer_types", nullptr}}), (std::vector<uint8_t>{1, 1, 1, 0}));
}

TEST(DeltaConfig, ReadsBackWhatItWrites) {
  const Json types = {"full_attention", "linear_attention", "linear_attention", "full_attention"};
  for (const Json& members :
       {Json::object(), Json{{"layer_types", types}}, Json{{"full_attention_interval", 1}},
        Json{{"full_attention_interval", 9}}, Json{{"attention_bias", true}},
        Json{{"partial_rotary_factor", 0.5}}, Json{{"partial_rotary_factor", 1.0}},
        Json{{"tie_word_embeddings", true}}}) {
    const ModelConfig config = config_of(changed(delta_json(), members));
    const Json written = to_hf_config(config);
    EXPECT_EQ(written["architectures"], Json{"Qwen3_5ForCausalLM"});
    EXPECT_EQ(written["layer_types"].size(), 4u);
    EXPECT_EQ(config_of(written), config) << members;
  }
}

TEST(DeltaConfig, OfAFolderWithImagesIsThatOfItsText) {
  const ModelConfig config = config_of(qwen3_5_08b());
  EXPECT_EQ(config.family, Family::kQwen35);
  EXPECT_EQ(
      config.delta,
      (DeltaConfig{
          .key_heads = 16, .value_heads = 16, .key_dim = 128, .value_dim = 128, .kernel = 4}));
  EXPECT_EQ(config.rotary_dim, 64);
  EXPECT_EQ(config.rope.theta, 1e7);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kNone);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{248044});
  EXPECT_EQ(recurrent_layer_count(config), 18);
  EXPECT_EQ(parameter_count(config), 752393024);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(DeltaConfig, EveryLayerMayHaveExperts) {
  const ModelConfig config = config_of(delta_moe_json());
  EXPECT_EQ(config.family, Family::kQwen35Moe);
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 6,
                                          .chosen = 3,
                                          .ffn_size = 20,
                                          .shared_ffn_size = 40,
                                          .shared_gate = true,
                                          .normalised = true}));
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(expert_layer_count(config), 4);
  EXPECT_EQ(parameter_count(config) - active_parameter_count(config), 4 * (6 - 3) * 3 * 32 * 20);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"in_proj_a", "in_proj_b", "in_proj_qkv", "in_proj_z",
                                      "k_proj", "o_proj", "out_proj", "q_proj", "v_proj"}));
  const Json written = to_hf_config(config);
  EXPECT_EQ(written["architectures"], Json{"Qwen3_5MoeForCausalLM"});
  EXPECT_EQ(written["moe_intermediate_size"], 20);
  EXPECT_FALSE(written.contains("intermediate_size") || written.contains("norm_topk_prob"));
  EXPECT_EQ(config_of(written), config);
}

// What the folder of Qwen3.5-35B-A3B says, but for its part that reads images.
TEST(DeltaConfig, OfAFolderWithImagesAndExpertsIsThatOfItsText) {
  const Json text = {{"model_type", "qwen3_5_moe_text"},
                     {"hidden_size", 2048},
                     {"moe_intermediate_size", 512},
                     {"max_position_embeddings", 262144},
                     {"num_attention_heads", 16},
                     {"num_hidden_layers", 40},
                     {"vocab_size", 248320}};
  const ModelConfig config = config_of({{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                                        {"model_type", "qwen3_5_moe"},
                                        {"text_config", text},
                                        {"tie_word_embeddings", false}});
  EXPECT_EQ(config.family, Family::kQwen35Moe);
  EXPECT_EQ(config.experts.count, 256);
  EXPECT_EQ(config.experts.chosen, 8);
  EXPECT_EQ(config.experts.shared_ffn_size, 512);
  EXPECT_EQ(parameter_count(config), 34660610688);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(DeltaConfig, SomeLayersOfQwen3NextMayHaveNoExperts) {
  const ModelConfig every = config_of(next_json());
  EXPECT_EQ(every.family, Family::kQwen3Next);
  EXPECT_EQ(every.experts, config_of(delta_moe_json()).experts);
  EXPECT_EQ(every.delta, config_of(delta_moe_json()).delta);
  EXPECT_EQ(every.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_TRUE(every.layer_is_dense.empty());
  EXPECT_EQ(parameter_count(every), parameter_count(config_of(delta_moe_json())));
  EXPECT_EQ(lora_linear_modules(every),
            (std::vector<std::string>{"in_proj_ba", "in_proj_qkvz", "k_proj", "o_proj", "out_proj",
                                      "q_proj", "v_proj"}));
  const ModelConfig some = config_of(
      changed(next_json(),
              {{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}, {"norm_topk_prob", false}}));
  EXPECT_EQ(some.layer_is_dense, (std::vector<uint8_t>{1, 0, 1, 1}));
  EXPECT_FALSE(some.experts.normalised);
  for (const ModelConfig& config : {every, some}) {
    EXPECT_EQ(to_hf_config(config)["architectures"], Json{"Qwen3NextForCausalLM"});
    EXPECT_EQ(config_of(to_hf_config(config)), config);
  }
}

TEST(DeltaConfig, RefusesExpertsThatCannotBe) {
  for (const Json& json : {delta_moe_json(), next_json()}) {
    for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                              "shared_expert_intermediate_size"}) {
      for (const int wrong : {0, -3, 1 << 21}) {
        EXPECT_FAILS_WITH(parsed(changed(json, {{field, wrong}})), Code::kCorrupt, field);
      }
    }
  }
  ModelConfig config = config_of(delta_moe_json());
  config.layer_is_dense = {1, 0, 0, 0};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "in other layers");
  config.layer_is_dense.clear();
  config.experts.ffn_size = 24;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument,
                    "experts of moe_intermediate_size");
  config.experts.ffn_size = 20;
  config.experts.normalised = false;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "add up to one");
  config.experts.normalised = true;
  config.experts.shared_gate = false;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument,
                    "a gate of a shared expert");
}

TEST(DeltaConfig, RefusesByFieldWhatCannotBe) {
  const auto with = [](const Json& members) { return parsed(changed(delta_json(), members)); };
  for (const char* field :
       {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "full_attention_interval"}) {
    for (const int wrong : {0, -3}) {
      EXPECT_FAILS_WITH(with({{field, wrong}}), Code::kCorrupt, field);
    }
  }
  for (const auto& [field, most] : {std::pair{"linear_num_key_heads", kHeadsMax},
                                    {"linear_num_value_heads", kHeadsMax},
                                    {"linear_key_head_dim", int64_t{256}},
                                    {"linear_value_head_dim", int64_t{256}},
                                    {"linear_conv_kernel_dim", int64_t{8}}}) {
    EXPECT_FAILS_WITH(with({{field, most + 1}}), Code::kCorrupt, field);
  }
  EXPECT_FAILS_WITH(with({{"linear_num_key_heads", 4}}), Code::kCorrupt, "does not divide");
  EXPECT_FAILS_WITH(with({{"attn_output_gate", false}}), Code::kUnsupported, "attn_output_gate");
  EXPECT_FAILS_WITH(with({{"layer_types", {"full_attention", "linear_attention"}}}), Code::kCorrupt,
                    "layer_types");
  EXPECT_FAILS_WITH(with({{"layer_types", "linear_attention"}}), Code::kCorrupt, "layer_types");
  const Json sliding = {"full_attention", "linear_attention", "sliding_attention",
                        "full_attention"};
  EXPECT_FAILS_WITH(with({{"layer_types", sliding}}), Code::kUnsupported, "sliding_attention");
}

// Of OLMo Hybrid, as folders without positions say it.
Json olmo_json() { return changed(family_json("olmo_hybrid"), {{"rope_theta", nullptr}}); }

TEST(DeltaConfig, OfOlmoHybridFollowsFromAttention) {
  const ModelConfig config = config_of(olmo_json());
  EXPECT_EQ(config.family, Family::kOlmoHybrid);
  EXPECT_EQ(config.delta, (DeltaConfig{.key_heads = 4,
                                       .value_heads = 4,
                                       .key_dim = 6,
                                       .value_dim = 12,
                                       .kernel = 4,
                                       .doubles_rate = true,
                                       .draws_steps = true,
                                       .norm_eps = 1e-5}));
  EXPECT_EQ(config.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(norm_place(config, 0), NormPlace::kBefore);
  EXPECT_EQ(norm_place(config, 3), NormPlace::kAfter);
  EXPECT_TRUE(config.qk_norm_whole && !config.norm_adds_one && !config.attention_gate);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"a_proj", "b_proj", "down_proj", "g_proj", "gate_proj",
                                      "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  const auto layers = [](int64_t count) {
    return config_of(changed(olmo_json(), {{"num_hidden_layers", count}})).layer_is_recurrent;
  };
  EXPECT_EQ(layers(2), (std::vector<uint8_t>{1, 0}));  // the last one has attention if none else
  EXPECT_EQ(layers(5), (std::vector<uint8_t>{1, 1, 1, 0, 1}));
}

// Theta is there, and null, or it has a number; left out it has the usual one.
TEST(DeltaConfig, LayersOfOlmoHybridTurnUnlessThetaIsNull) {
  const std::vector<uint8_t> none, all = {1, 1, 1, 1};
  const Json null_theta = {{"rope_type", "default"}, {"rope_theta", nullptr}};
  const Json theta = {{"rope_type", "default"}, {"rope_theta", 500.0}};
  const std::pair<Json, bool> cases[] = {
      {Json::object(), true},
      {{{"rope_parameters", nullptr}}, true},
      {{{"rope_theta", nullptr}}, false},
      {{{"rope_parameters", null_theta}}, false},
      {{{"rope_theta", nullptr}, {"rope_parameters", null_theta}}, false},
      {{{"rope_theta", nullptr}, {"rope_parameters", theta}}, true},
      {{{"rope_scaling", null_theta}}, false},
      {{{"rope_theta", 500.0}}, true},
  };
  for (const auto& [members, turns] : cases) {
    const ModelConfig config = config_of(changed(family_json("olmo_hybrid"), members));
    EXPECT_EQ(config.layer_is_unturned, turns ? none : all) << members;
    EXPECT_EQ(config_of(to_hf_config(config)), config) << members;
  }
}

TEST(DeltaConfig, OfOlmoHybridReadsBackWhatItWrites) {
  const Json types = {"full_attention", "linear_attention", "linear_attention", "full_attention"};
  for (const Json& members :
       {Json::object(), Json{{"layer_types", types}}, Json{{"linear_allow_neg_eigval", false}},
        Json{{"linear_num_value_heads", 8}, {"linear_value_head_dim", 5}},
        Json{{"attention_bias", true}}, Json{{"linear_key_head_dim", 8}}}) {
    const ModelConfig config = config_of(changed(olmo_json(), members));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << members;
  }
  EXPECT_EQ(config_of(changed(olmo_json(), {{"linear_key_head_dim", 8}})).delta.value_dim, 16);
}

TEST(DeltaConfig, OfOlmoHybridIsRefusedWhereItCannotBe) {
  for (const auto& [field, wrong] : {std::pair{"linear_num_key_heads", int64_t{0}},
                                     {"linear_num_key_heads", int64_t{1} << 62},
                                     {"linear_key_head_dim", int64_t{257}},
                                     {"linear_key_head_dim", int64_t{1} << 62},
                                     {"linear_value_head_dim", int64_t{0}},
                                     {"linear_conv_kernel_dim", int64_t{9}}}) {
    EXPECT_FAILS_WITH(parsed(changed(olmo_json(), {{field, wrong}})), Code::kCorrupt, "linear_");
  }
  ModelConfig config = config_of(olmo_json());
  config.delta.norm_eps = 0;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "other rates");
  config = config_of(olmo_json());
  config.recurrent_norms_before = false;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument,
                    "norms before recurrent layers' parts");
  config = config_of(olmo_json());
  config.layer_is_unturned = {1, 0, 1, 1};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "or in none");
  config = config_of(delta_json());
  config.delta.doubles_rate = true;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "other rates");
}

// What the folder of Olmo-Hybrid-7B says.
TEST(DeltaConfig, OfOlmoHybrid7BIsThatOfItsFolder) {
  const ModelConfig config = config_of({{"model_type", "olmo_hybrid"},
                                        {"vocab_size", 100352},
                                        {"hidden_size", 3840},
                                        {"intermediate_size", 11008},
                                        {"num_hidden_layers", 32},
                                        {"num_attention_heads", 30},
                                        {"num_key_value_heads", 30},
                                        {"max_position_embeddings", 65536},
                                        {"rope_theta", nullptr}});
  EXPECT_EQ(config.delta.key_dim, 96);
  EXPECT_EQ(config.delta.value_dim, 192);
  EXPECT_EQ(recurrent_layer_count(config), 24);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{100257});
  EXPECT_EQ(parameter_count(config), 7430870688);
}

TEST(DeltaConfig, BelongsToFamiliesThatHaveSuchLayers) {
  ModelConfig llama = config_of(family_json("llama"));
  llama.layer_is_recurrent = {1, 0, 0, 0};
  EXPECT_FAILS_WITH(check_model_config(llama, "x"), Code::kInvalidArgument,
                    "no such layers in place of attention");
  llama.layer_is_recurrent.clear();
  llama.delta.kernel = 4;
  EXPECT_FAILS_WITH(check_model_config(llama, "x"), Code::kInvalidArgument,
                    "no such layers in place of attention");
  ModelConfig short_of_flags = config_of(delta_json());
  short_of_flags.layer_is_recurrent.pop_back();
  EXPECT_FAILS_WITH(check_model_config(short_of_flags, "x"), Code::kInvalidArgument, "layer_types");
}

}  // namespace
}  // namespace jige::formats

// What config.json says of Nemotron-H, whose layers have one part each.
#include <string>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json nemotron_h_json(const Json& members = Json::object()) {
  return changed(changed(family_json("nemotron_h"), {{"hybrid_override_pattern", "M-*-"}}),
                 members);
}

constexpr LayerParts kMixes = LayerParts::kAttention;
constexpr LayerParts kFeeds = LayerParts::kFeedForward;

TEST(NemotronHConfig, DefaultsAreThoseOfTransformers) {
  Json json = nemotron_h_json();
  json.erase("num_key_value_heads");
  json["num_attention_heads"] = 16;
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.mamba2, (Mamba2Config{.heads = 128,
                                         .head_dim = 64,
                                         .groups = 8,
                                         .state_dim = 128,
                                         .kernel = 4,
                                         .conv_bias = true}));
  EXPECT_EQ(config.kv_head_count, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.activation, ActivationKind::kReluSquared);
  EXPECT_FALSE(config.mlp_bias || config.qkv_bias || config.tied_embeddings);
  EXPECT_EQ(config.layer_is_unturned, (std::vector<uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(config.pad_id, 0);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_LT(to_hf_config(config)["time_step_min"], 1e-20);  // what transformers holds steps above
  EXPECT_FALSE(to_hf_config(config).contains("rope_theta"));
}

TEST(NemotronHConfig, KindsOfLayersAreWordsOrLetters) {
  const ModelConfig letters = config_of(nemotron_h_json());
  EXPECT_EQ(letters.layer_count, 4);
  EXPECT_EQ(letters.layer_parts, (std::vector<LayerParts>{kMixes, kFeeds, kMixes, kFeeds}));
  EXPECT_EQ(letters.layer_is_recurrent, (std::vector<uint8_t>{1, 0, 0, 0}));
  EXPECT_EQ(attention_part_count(letters), 2);
  EXPECT_EQ(feed_forward_count(letters), 2);
  EXPECT_TRUE(has_attention_part(letters, 2));
  EXPECT_FALSE(has_attention_part(letters, 3));
  EXPECT_FALSE(has_feed_forward(letters, 0));
  for (const Json& words : {Json{"mamba", "mlp", "attention", "mlp"},
                            Json{"linear_attention", "mlp", "full_attention", "mlp"}}) {
    for (const char* field : {"layers_block_type", "layer_types"}) {
      // Words go before letters, and the number of layers is theirs.
      const Json json = nemotron_h_json(
          {{field, words}, {"hybrid_override_pattern", "M"}, {"num_hidden_layers", 9}});
      EXPECT_EQ(config_of(json), letters);
    }
  }
  EXPECT_EQ(to_hf_config(letters)["hybrid_override_pattern"], "M-*-");
  EXPECT_EQ(first_layers(letters, 3).layer_parts,
            (std::vector<LayerParts>{kMixes, kFeeds, kMixes}));
  EXPECT_TRUE(check_model_config(first_layers(letters, 1), "test"));
}

TEST(NemotronHConfig, AdaptersStandOnWhatTheLayersHave) {
  using Names = std::vector<std::string>;
  const auto modules = [](const char* pattern) {
    return lora_linear_modules(config_of(nemotron_h_json({{"hybrid_override_pattern", pattern}})));
  };
  EXPECT_EQ(modules("M-*"),
            (Names{"down_proj", "in_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
  EXPECT_EQ(modules("M"), (Names{"in_proj"}));  // PEFT refuses out_proj
  EXPECT_EQ(modules("*-"), (Names{"down_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}));
}

TEST(NemotronHConfig, CountsTheParametersOfAPublishedModel) {
  const Json nano = {
      {"hybrid_override_pattern", "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"},
      {"vocab_size", 131072},
      {"hidden_size", 4480},
      {"intermediate_size", 15680},
      {"num_attention_heads", 40},
      {"num_key_value_heads", 8},
      {"mamba_head_dim", 80}};
  EXPECT_EQ(parameter_count(config_of(nemotron_h_json(nano))), 8888227328);
}

TEST(NemotronHConfig, RefusesWhatItDoesNotKnow) {
  const auto refusal = [](const Json& members, Code code, const std::string& words) {
    const auto config = parsed(nemotron_h_json(members));
    ASSERT_FALSE(config) << members;
    EXPECT_EQ(config.error().code, code) << config.error().message;
    EXPECT_NE(config.error().message.find(words), std::string::npos) << config.error().message;
  };
  const auto pattern = [&](const Json& value, Code code, const std::string& words) {
    refusal({{"hybrid_override_pattern", value}}, code, words);
  };
  pattern("MX", Code::kUnsupported, "the letter \"X\"");
  pattern("", Code::kCorrupt, "0 layers");
  pattern(std::string(5000, 'M'), Code::kCorrupt, "5000 layers");
  pattern(7, Code::kInvalidArgument, "hybrid_override_pattern");
  refusal({{"layer_types", {"mamba", "conv"}}}, Code::kUnsupported, "\"conv\"");
  refusal({{"layer_types", "mamba"}}, Code::kCorrupt, "must be a list");
  refusal({{"attention_bias", true}}, Code::kUnsupported, "attention_bias");
  refusal({{"sliding_window", 64}}, Code::kUnsupported, "sliding_window");
  refusal({{"mlp_hidden_act", "swiglu"}}, Code::kUnsupported, "mlp_hidden_act");
  refusal({{"moe_latent_size", 16}}, Code::kUnsupported, "moe_latent_size");
  refusal({{"n_groups", 3}}, Code::kCorrupt, "does not divide mamba_num_heads");
  Json unnamed = nemotron_h_json();
  unnamed.erase("hybrid_override_pattern");
  EXPECT_FALSE(parsed(unnamed));
}

TEST(NemotronHConfig, LayersMayHaveExperts) {
  Json json = nemotron_h_json({{"hybrid_override_pattern", "ME-*E"}});
  const ModelConfig usual = config_of(json);
  EXPECT_EQ(usual.layer_parts, (std::vector<LayerParts>{kMixes, kFeeds, kFeeds, kMixes, kFeeds}));
  EXPECT_EQ(usual.layer_is_dense, (std::vector<uint8_t>{1, 0, 1, 1, 0}));
  EXPECT_EQ(usual.experts, (ExpertConfig{.count = 8,
                                         .chosen = 2,
                                         .ffn_size = 7688,
                                         .shared_ffn_size = 7688,
                                         .normalised = true,
                                         .sigmoid_scores = true,
                                         .choice_bias = true,
                                         .groups_by_pairs = true}));
  EXPECT_EQ(expert_layer_count(usual), 2);
  EXPECT_EQ(to_hf_config(usual)["hybrid_override_pattern"], "ME-*E");
  EXPECT_EQ(config_of(to_hf_config(usual)), usual);
  // Adapters stand beside experts on the other parts alone.
  EXPECT_EQ(lora_linear_modules(usual),
            (std::vector<std::string>{"in_proj", "k_proj", "o_proj", "q_proj", "v_proj"}));
  const Json words = {"mamba", "moe", "mlp", "attention", "moe"};
  EXPECT_EQ(config_of(nemotron_h_json({{"layer_types", words}})), usual);
  const auto refused = [&](const Json& members) {
    const auto config = parsed(changed(json, members));
    EXPECT_FALSE(config) << members;
    return config ? std::string() : config.error().message;
  };
  EXPECT_NE(refused({{"n_routed_experts", 0}}).find("n_routed_experts"), std::string::npos);
  EXPECT_NE(refused({{"n_routed_experts", 1 << 20}}).find("n_routed_experts"), std::string::npos);
  EXPECT_NE(refused({{"num_experts_per_tok", 9}}).find("num_experts_per_tok"), std::string::npos);
  EXPECT_NE(refused({{"moe_shared_expert_intermediate_size", 0}}).find("shared"),
            std::string::npos);
  EXPECT_NE(refused({{"n_group", 3}}).find("n_group"), std::string::npos);
  EXPECT_NE(refused({{"mlp_bias", true}}).find("mlp_bias"), std::string::npos);
  ModelConfig elsewhere = usual;
  elsewhere.layer_is_dense[0] = 0;
  EXPECT_FALSE(check_model_config(elsewhere, "test"));
}

TEST(NemotronHConfig, CountsTheParametersOfAPublishedModelWithExperts) {
  const Json nano = {
      {"hybrid_override_pattern", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
      {"vocab_size", 131072},
      {"hidden_size", 2688},
      {"intermediate_size", 1856},
      {"num_attention_heads", 32},
      {"mamba_num_heads", 64},
      {"n_routed_experts", 128},
      {"num_experts_per_tok", 6},
      {"moe_intermediate_size", 1856},
      {"moe_shared_expert_intermediate_size", 3712},
      {"routed_scaling_factor", 2.5}};
  EXPECT_EQ(parameter_count(config_of(nemotron_h_json(nano))), 31577940288);
}

TEST(NemotronHConfig, NoOtherFamilyHasSuchLayers) {
  ModelConfig llama = config_of(family_json("llama"));
  llama.layer_parts.assign(4, LayerParts::kAttention);
  EXPECT_FALSE(check_model_config(llama, "test"));
  ModelConfig nemotron = config_of(nemotron_h_json());
  nemotron.layer_parts[0] = LayerParts::kBoth;
  EXPECT_FALSE(check_model_config(nemotron, "test"));
  nemotron.layer_parts.clear();
  EXPECT_FALSE(check_model_config(nemotron, "test"));
}

}  // namespace
}  // namespace jige::formats

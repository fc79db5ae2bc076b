// What config.json says of Gemma 3n.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json gemma3n_json(const Json& members = Json::object()) {
  const Json small = {{"num_hidden_layers", 5},
                      {"hidden_size_per_layer_input", 8},
                      {"num_kv_shared_layers", 0},
                      {"vocab_size_per_layer_input", 40}};
  return changed(changed(family_json("gemma3n_text"), small), members);
}

// As the published models have it, E4B and E2B.
Json gemma3n_published(bool smaller) {
  const size_t layers = smaller ? 30 : 35;
  std::vector<double> sparsity(layers, 0.0);
  std::fill_n(sparsity.begin(), 10, 0.95);
  return {{"model_type", "gemma3n_text"},
          {"activation_sparsity_pattern", sparsity},
          {"altup_active_idx", 0},
          {"altup_coef_clip", 120.0},
          {"altup_correct_scale", true},
          {"altup_num_inputs", 4},
          {"final_logit_softcapping", 30.0},
          {"head_dim", 256},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"hidden_size", 2048},
          {"hidden_size_per_layer_input", 256},
          {"intermediate_size", std::vector<int64_t>(layers, smaller ? 8192 : 16384)},
          {"laurel_rank", 64},
          {"max_position_embeddings", 32768},
          {"num_attention_heads", 8},
          {"num_hidden_layers", layers},
          {"num_key_value_heads", 2},
          {"num_kv_shared_layers", smaller ? 10 : 15},
          {"rms_norm_eps", 1e-6},
          {"rope_local_base_freq", 10000.0},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000.0},
          {"sliding_window", 512},
          {"vocab_size", 262400},
          {"vocab_size_per_layer_input", 262144}};
}

TEST(Gemma3nConfig, DefaultsAreThoseOfTransformers) {
  Json json = changed(family_json("gemma3n_text"), {{"num_hidden_layers", 35}});
  json.erase("num_key_value_heads");
  json["num_attention_heads"] = 8;
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.kv_head_count, 2);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.altup, (AltUpConfig{.streams = 4, .scales_corrected = true, .clip = 120.0}));
  EXPECT_EQ(config.laurel_rank, 64);
  EXPECT_EQ(config.layer_inputs, (LayerInputConfig{.size = 256, .vocab_size = 262144}));
  EXPECT_EQ(config.shared_kv_layers, 15);
  EXPECT_EQ(config.sliding_window, 512);
  EXPECT_EQ(config.layer_is_sliding[3], 1);
  EXPECT_EQ(config.layer_is_sliding[4], 0);
  EXPECT_EQ(config.logits_cap, 30);
  EXPECT_EQ(config.rope.theta, 1e6);
  ASSERT_TRUE(config.sliding_rope);
  EXPECT_EQ(config.sliding_rope->theta, 1e4);
  ASSERT_EQ(config.ffn_sparsity.size(), 35u);
  EXPECT_EQ(config.ffn_sparsity[9], 0.95);
  EXPECT_EQ(config.ffn_sparsity[10], 0.0);
  // Models of few layers have none.
  EXPECT_TRUE(config_of(gemma3n_json()).ffn_sparsity.empty());
}

TEST(Gemma3nConfig, PublishedModelsHaveTheirParameters) {
  EXPECT_EQ(parameter_count(config_of(gemma3n_published(false))), 6835235568);
  EXPECT_EQ(parameter_count(config_of(gemma3n_published(true))), 4435182688);
}

TEST(Gemma3nConfig, IsWrittenAsItIsRead) {
  const Json members[] = {{},
                          {{"altup_num_inputs", 2},
                           {"altup_correct_scale", false},
                           {"altup_coef_clip", 7.5},
                           {"laurel_rank", 3},
                           {"activation_sparsity_pattern", {0.5, 0.0, 0.9, 0.0, 0.0}},
                           {"num_kv_shared_layers", 2},
                           {"layer_types",
                            {"sliding_attention", "full_attention", "full_attention",
                             "sliding_attention", "full_attention"}},
                           {"rope_theta", 5e5},
                           {"rope_local_base_freq", 2e4},
                           {"final_logit_softcapping", 12.0}}};
  for (const Json& one : members) {
    const ModelConfig config = config_of(gemma3n_json(one));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << one;
  }
}

TEST(Gemma3nConfig, OfFoldersWithImagesIsTheLanguageModel) {
  const Json json = {{"architectures", {"Gemma3nForConditionalGeneration"}},
                     {"model_type", "gemma3n"},
                     {"torch_dtype", "bfloat16"},
                     {"eos_token_id", {1, 106}},
                     {"text_config", gemma3n_published(true)},
                     {"vision_config", {{"model_type", "gemma3n_vision"}}},
                     {"audio_config", {{"model_type", "gemma3n_audio"}}}};
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.family, Family::kGemma3n);
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(parameter_count(config), 4435182688);
}

TEST(Gemma3nConfig, RefusesWhatContradictsItselfOrIsNotSupported) {
  const std::pair<Json, const char*> corrupt[] = {
      {{{"altup_num_inputs", 1}}, "altup_num_inputs"},
      {{{"altup_num_inputs", 5}}, "altup_num_inputs"},
      {{{"altup_coef_clip", -1.0}}, "altup_coef_clip"},
      {{{"laurel_rank", 0}}, "laurel_rank"},
      {{{"laurel_rank", int64_t{1} << 40}}, "laurel_rank"},
      {{{"hidden_size_per_layer_input", 0}}, "hidden_size_per_layer_input"},
      {{{"hidden_size_per_layer_input", 1 << 18}}, "hidden_size_per_layer_input"},
      {{{"vocab_size_per_layer_input", 0}}, "vocab_size_per_layer_input"},
      {{{"num_kv_shared_layers", 5}}, "num_kv_shared_layers"},
      // Without a full layer before it.
      {{{"num_kv_shared_layers", 1}}, "num_kv_shared_layers"},
      {{{"activation_sparsity_pattern", 0.5}}, "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, 0.5}}}, "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, 0.5, 0.0, 0.0, 1.0}}}, "activation_sparsity_pattern"},
      {{{"activation_sparsity_pattern", {0.5, -0.5, 0.0, 0.0, 0.0}}},
       "activation_sparsity_pattern"},
      {{{"intermediate_size", -4}}, "intermediate_size"},
  };
  for (const auto& [members, word] : corrupt) {
    EXPECT_FAILS_WITH(parsed(gemma3n_json(members)), Code::kCorrupt, word);
  }
  for (const auto& [members, word] :
       {std::pair<Json, const char*>({{"activation_sparsity_pattern", {0.5, "x", 0.0, 0.0, 0.0}}},
                                     "activation_sparsity_pattern"),
        std::pair<Json, const char*>({{"intermediate_size", {"x"}}}, "intermediate_size")}) {
    EXPECT_FAILS_WITH(parsed(gemma3n_json(members)), Code::kInvalidArgument, word);
  }
  const std::pair<Json, const char*> unsupported[] = {
      {{{"altup_active_idx", 1}}, "altup_active_idx"},
      {{{"intermediate_size", {8, 8, 8, 8, 16}}}, "intermediate_size"},
      {{{"intermediate_size", Json::array()}}, "intermediate_size"},
      {{{"hidden_activation", "silu"}}, "hidden_activation"},
  };
  for (const auto& [members, word] : unsupported) {
    EXPECT_FAILS_WITH(parsed(gemma3n_json(members)), Code::kUnsupported, word);
  }
}

TEST(Gemma3nConfig, AdaptersGoOnTheLinearLayersOfAttentionAndMlp) {
  EXPECT_EQ(lora_linear_modules(config_of(gemma3n_json())),
            (std::vector<std::string>{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj",
                                      "up_proj", "v_proj"}));
}

}  // namespace
}  // namespace jige::formats

// What config.json says of Gemma 4.
#include <string>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json gemma4_json(const Json& members = Json::object()) {
  const Json dense = {{"hidden_size_per_layer_input", 0}, {"num_hidden_layers", 6}};
  return changed(changed(family_json("gemma4_text"), dense), members);
}

Json gemma4_experts() {
  return {{"enable_moe_block", true},
          {"num_experts", 8},
          {"top_k_experts", 2},
          {"moe_intermediate_size", 24}};
}

// Of the published models the layers without window are each sixth.
Json gemma4_31b() {
  return {{"model_type", "gemma4_text"},
          {"vocab_size", 262144},
          {"hidden_size", 5376},
          {"intermediate_size", 21504},
          {"num_hidden_layers", 60},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 16},
          {"num_global_key_value_heads", 4},
          {"attention_k_eq_v", true},
          {"global_head_dim", 512},
          {"head_dim", 256},
          {"hidden_size_per_layer_input", 0},
          {"final_logit_softcapping", 30.0},
          {"max_position_embeddings", 262144},
          {"sliding_window", 1024},
          {"use_bidirectional_attention", "vision"}};
}

TEST(Gemma4Config, DefaultsAreThoseOfTransformers) {
  Json json = gemma4_json();
  json.erase("num_key_value_heads");
  json["num_attention_heads"] = 8;
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.kv_head_count, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.full_heads, (FullHeadsConfig{.head_dim = 512, .kv_head_count = 4}));
  EXPECT_EQ(config.sliding_window, 512);
  EXPECT_EQ(config.layer_is_sliding, (std::vector<uint8_t>{1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(
      config.rope,
      (RopeConfig{.theta = 1e6, .scaling = RopeScaling::kProportional, .turned_share = 0.25}));
  EXPECT_EQ(config.sliding_rope, RopeConfig());
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.activation, ActivationKind::kGeGlu);
  EXPECT_EQ(config.logits_cap, 0);
  EXPECT_FALSE(config.scores_by_head_dim || config.norm_adds_one || config.qkv_bias);
  EXPECT_TRUE(config.qk_norm && config.value_norm && config.layer_scales && config.tied_embeddings);
  EXPECT_EQ(config.bos_id, 2);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{1});
  EXPECT_EQ(config.pad_id, 0);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Gemma4Config, OfPublishedShapesHasTheirParameters) {
  const ModelConfig config = config_of(gemma4_31b());
  // 60 scales of layers among them, which transformers does not train either.
  EXPECT_EQ(parameter_count(config), 30697345280 + 60);
  EXPECT_EQ(config.full_heads,
            (FullHeadsConfig{.head_dim = 512, .kv_head_count = 4, .keys_are_values = true}));
  EXPECT_EQ(head_shape(config, 0).head_dim, 256);
  EXPECT_EQ(head_shape(config, 0).kv_head_count, 16);
  EXPECT_EQ(head_shape(config, 5).head_dim, 512);
  EXPECT_EQ(head_shape(config, 5).kv_head_count, 4);
  EXPECT_FALSE(keys_are_values(config, 4));
  EXPECT_TRUE(keys_are_values(config, 5));
  EXPECT_EQ(config.logits_cap, 30);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(Gemma4Config, ExpertsStandBesideTheMlp) {
  const ModelConfig config = config_of(gemma4_json(gemma4_experts()));
  EXPECT_EQ(config.experts,
            (ExpertConfig{
                .count = 8, .chosen = 2, .ffn_size = 24, .normalised = true, .beside_mlp = true}));
  EXPECT_EQ(config.ffn_size, 48);
  EXPECT_EQ(expert_layer_count(config), 6);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"k_proj", "o_proj", "q_proj", "v_proj"}));
  for (const char* field : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    Json json = gemma4_json(gemma4_experts());
    json[field] = nullptr;
    EXPECT_FAILS_WITH(parsed(json), Code::kNotFound, field);
    json["enable_moe_block"] = false;
    EXPECT_EQ(config_of(json).experts, ExpertConfig());
  }
  // 26B-A4B, and 30 scales of layers.
  const ModelConfig published = config_of(changed(gemma4_31b(), {{"hidden_size", 2816},
                                                                 {"intermediate_size", 2112},
                                                                 {"num_hidden_layers", 30},
                                                                 {"num_attention_heads", 16},
                                                                 {"num_key_value_heads", 8},
                                                                 {"num_global_key_value_heads", 2},
                                                                 {"enable_moe_block", true},
                                                                 {"num_experts", 128},
                                                                 {"top_k_experts", 8},
                                                                 {"moe_intermediate_size", 704}}));
  EXPECT_EQ(parameter_count(published), 25233141760 + 30);
  EXPECT_EQ(active_parameter_count(published), 25233141790 - int64_t{30} * 120 * 3 * 2816 * 704);
}

TEST(Gemma4Config, LayersHaveInputsAndShareKeys) {
  const Json types = {"sliding_attention", "full_attention", "sliding_attention",
                      "full_attention",    "full_attention", "full_attention"};
  Json json = gemma4_json({{"layer_types", types},
                           {"num_kv_shared_layers", 2},
                           {"use_double_wide_mlp", true},
                           {"vocab_size_per_layer_input", 128}});
  json.erase("hidden_size_per_layer_input");
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.layer_inputs, (LayerInputConfig{.size = 256, .vocab_size = 128}));
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  for (int64_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(shares_keys(config, layer), layer >= 4);
    EXPECT_EQ(key_source(config, layer), layer >= 4 ? 3 : layer);
    EXPECT_EQ(gives_keys(config, layer), layer == 3);  // no sliding layer shares them
    EXPECT_EQ(ffn_size_of(config, layer), layer >= 4 ? 96 : 48);
  }
  // The first layers are a model of their own.
  EXPECT_EQ(first_layers(config, 5).shared_kv_layers, 1);
  EXPECT_EQ(first_layers(config, 3).shared_kv_layers, 0);
}

TEST(Gemma4Config, OfModelsWithLayerInputsCountsTheParameters) {
  const auto published = [](const Json& members) {
    Json json = changed(gemma4_31b(), {{"attention_k_eq_v", false}, {"sliding_window", 512}});
    json.erase("hidden_size_per_layer_input");
    json.erase("num_global_key_value_heads");
    return config_of(changed(json, members));
  };
  Json types = Json::array();
  for (int i = 1; i <= 35; ++i)
    types.push_back(i % 5 == 0 ? "full_attention" : "sliding_attention");
  const ModelConfig e2b = published({{"hidden_size", 1536},
                                     {"intermediate_size", 6144},
                                     {"num_hidden_layers", 35},
                                     {"num_attention_heads", 8},
                                     {"num_key_value_heads", 1},
                                     {"num_kv_shared_layers", 20},
                                     {"use_double_wide_mlp", true},
                                     {"layer_types", types}});
  EXPECT_EQ(parameter_count(e2b), 4628569344 + 35);  // and scales of layers
  EXPECT_EQ(key_source(e2b, 34), 14);
  EXPECT_EQ(key_source(e2b, 33), 13);
  EXPECT_TRUE(gives_keys(e2b, 13) && gives_keys(e2b, 14) && !gives_keys(e2b, 12));
  const ModelConfig e4b = published({{"hidden_size", 2560},
                                     {"intermediate_size", 10240},
                                     {"num_hidden_layers", 42},
                                     {"num_attention_heads", 8},
                                     {"num_key_value_heads", 2},
                                     {"num_kv_shared_layers", 18}});
  EXPECT_EQ(parameter_count(e4b), 7463013376 + 42);
}

TEST(Gemma4Config, TheLastLayerHasNoWindow) {
  const Json types = {"full_attention",    "sliding_attention", "sliding_attention",
                      "sliding_attention", "sliding_attention", "sliding_attention"};
  const ModelConfig config = config_of(gemma4_json({{"layer_types", types}}));
  EXPECT_EQ(config.layer_is_sliding, (std::vector<uint8_t>{0, 1, 1, 1, 1, 0}));
  const ModelConfig one =
      config_of(gemma4_json({{"num_hidden_layers", 1}, {"layer_types", {"sliding_attention"}}}));
  EXPECT_EQ(one.sliding_window, 0);
  EXPECT_FALSE(one.sliding_rope);
  EXPECT_EQ(head_shape(one, 0).head_dim, 512);
}

TEST(Gemma4Config, HeadsByLayerAreReadWhereAFolderHasThem) {
  const Json heads = {{"head_dim", 96}, {"num_key_value_heads", 1}};
  const Json json =
      gemma4_json({{"attention_k_eq_v", true},
                   {"global_head_dim", 128},
                   {"num_hidden_layers", 3},
                   {"layer_types", {"full_attention", "sliding_attention", "full_attention"}},
                   {"per_layer_config", {{"0", heads}, {"2", heads}}}});
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.full_heads,
            (FullHeadsConfig{.head_dim = 96, .kv_head_count = 1, .keys_are_values = true}));
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  // What they leave out is as in the other layers.
  const ModelConfig usual = config_of(changed(json, {{"per_layer_config", Json::object()}}));
  EXPECT_EQ(usual.full_heads,
            (FullHeadsConfig{.head_dim = 256, .kv_head_count = 2, .keys_are_values = true}));

  const auto by_layer = [&](const Json& value) {
    return parsed(changed(json, {{"per_layer_config", value}}));
  };
  EXPECT_FAILS_WITH(by_layer({{"0", heads}}), Code::kUnsupported, "layer 2");
  EXPECT_FAILS_WITH(by_layer({{"0", heads}, {"1", heads}, {"2", heads}}), Code::kUnsupported,
                    "layer 1");
  EXPECT_FAILS_WITH(by_layer({{"0", {{"sliding_window", 3}}}}), Code::kUnsupported,
                    "\"sliding_window\"");
  EXPECT_FAILS_WITH(by_layer({{"3", heads}}), Code::kCorrupt, "\"3\"");
  EXPECT_FAILS_WITH(by_layer({{"-1", heads}}), Code::kCorrupt, "\"-1\"");
  EXPECT_FAILS_WITH(by_layer({{"0x", heads}}), Code::kCorrupt, "\"0x\"");
  EXPECT_FAILS_WITH(by_layer({{"0", 5}}), Code::kCorrupt, "per_layer_config");
  EXPECT_FALSE(by_layer({{"0", {{"head_dim", "wide"}}}}));
  EXPECT_FAILS_WITH(by_layer(Json::array()), Code::kCorrupt, "per_layer_config");
}

TEST(Gemma4Config, RefusesWhatItsLayersCannotHave) {
  const auto full_rope = [](const Json& full) {
    const Json sliding = {{"rope_theta", 1e4}};
    return Json{{"rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}}};
  };
  const std::pair<Json, const char*> corrupt[] = {
      {{{"global_head_dim", 0}}, "global_head_dim"},
      {{{"global_head_dim", 31}}, "global_head_dim"},
      {{{"global_head_dim", 1 << 20}}, "global_head_dim"},
      {{{"attention_k_eq_v", true}, {"num_global_key_value_heads", 3}},
       "num_global_key_value_heads"},
      {{{"attention_k_eq_v", true}, {"num_global_key_value_heads", -1}},
       "num_global_key_value_heads"},
      {{{"final_logit_softcapping", 0.0}}, "final_logit_softcapping"},
      {{{"final_logit_softcapping", 1e-300}}, "final_logit_softcapping"},
      {{{"rope_parameters", 3}}, "rope_parameters"},
      {{{"rope_parameters", {{"sliding_attention", {{"rope_theta", 3.0}}}}}}, "full_attention"},
      {full_rope({{"rope_theta", 0.5}}), "rope_theta"},
      {{{"rope_parameters", {{"full_attention", {{"rope_theta", 5.0}}}}}}, "sliding_attention"},
      {full_rope(
           {{"rope_type", "proportional"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 1.5}}),
       "partial_rotary_factor"},
      {{{"sliding_window", nullptr}}, "sliding_window"},
      {{{"hidden_size_per_layer_input", -1}}, "hidden_size_per_layer_input"},
      {{{"hidden_size_per_layer_input", 1 << 20}}, "hidden_size_per_layer_input"},
      {{{"hidden_size_per_layer_input", 8}, {"vocab_size_per_layer_input", 95}},
       "vocab_size_per_layer_input"},
      {{{"num_kv_shared_layers", 6}}, "num_kv_shared_layers"},
      {{{"num_kv_shared_layers", -1}}, "num_kv_shared_layers"},
      // Without a layer of the kind before it.
      {{{"num_kv_shared_layers", 1}}, "num_kv_shared_layers"},
      {{{"use_double_wide_mlp", true}, {"intermediate_size", 1 << 20}}, "intermediate_size"},
      {changed(gemma4_experts(), {{"num_experts", 0}}), "num_experts"},
      {changed(gemma4_experts(), {{"num_experts", 1 << 20}}), "num_experts"},
      {changed(gemma4_experts(), {{"top_k_experts", 9}}), "top_k_experts"},
      {changed(gemma4_experts(), {{"moe_intermediate_size", 0}}), "moe_intermediate_size"},
  };
  for (const auto& [members, word] : corrupt) {
    EXPECT_FAILS_WITH(parsed(gemma4_json(members)), Code::kCorrupt, word);
  }
  const Json yarn = {{"rope_type", "yarn"}, {"rope_theta", 1e4}, {"factor", 2.0}};
  const std::pair<Json, const char*> unsupported[] = {
      {{{"rope_parameters", {{"full_attention", yarn}}}}, "\"yarn\""},
      {{{"use_bidirectional_attention", "all"}}, "use_bidirectional_attention"},
      {{{"hidden_activation", "silu"}}, "hidden_activation"},
  };
  for (const auto& [members, word] : unsupported) {
    EXPECT_FAILS_WITH(parsed(gemma4_json(members)), Code::kUnsupported, word);
  }
  EXPECT_FAILS_WITH(parsed(changed(family_json("llama"), {{"use_bidirectional_attention", "all"}})),
                    Code::kUnsupported, "use_bidirectional_attention");
}

TEST(Gemma4Config, OfFoldersWithImagesIsTheLanguageModel) {
  Json text = gemma4_31b();
  text.erase("vocab_size");
  const Json json = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                     {"model_type", "gemma4"},
                     {"dtype", "bfloat16"},
                     {"eos_token_id", {1, 106}},
                     {"text_config", text},
                     {"vision_config", {{"model_type", "gemma4_vision"}}},
                     {"audio_config", nullptr}};
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.family, Family::kGemma4);
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(parameter_count(config), 30697345340);

  // The unified models have no embeddings for every layer, and say nothing of them.
  Json unified = json;
  unified["model_type"] = "gemma4_unified";
  unified["text_config"]["model_type"] = "gemma4_unified_text";
  for (const char* field : {"hidden_size_per_layer_input", "sliding_window",
                            "max_position_embeddings", "use_bidirectional_attention"}) {
    unified["text_config"].erase(field);
  }
  EXPECT_EQ(config_of(unified), config);
  EXPECT_EQ(to_hf_config(config)["architectures"], Json{"Gemma4ForCausalLM"});
}

TEST(Gemma4Config, AdaptersGoOnAllLinearLayers) {
  EXPECT_EQ(lora_linear_modules(config_of(gemma4_json())),
            (std::vector<std::string>{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj",
                                      "up_proj", "v_proj"}));
}

}  // namespace
}  // namespace jige::formats

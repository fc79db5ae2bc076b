// Configurations of models with images, as they are published: the language model in them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

ModelConfig config_of_text(const Json& json) {
  const auto config = parse_model_config(json, "config.json");
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig();
}

// What the folder of gemma-3-4b-it says of its language model.
Json gemma3_4b() {
  return {{"architectures", {"Gemma3ForConditionalGeneration"}},
          {"model_type", "gemma3"},
          {"eos_token_id", {1, 106}},
          {"text_config",
           {{"hidden_size", 2560},
            {"intermediate_size", 10240},
            {"model_type", "gemma3_text"},
            {"num_hidden_layers", 34},
            {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
            {"sliding_window", 1024}}},
          {"torch_dtype", "bfloat16"},
          {"vision_config", {{"hidden_size", 1152}, {"model_type", "siglip_vision_model"}}}};
}

// As Qwen2.5-VL 7B had it first: all in one object.
Json qwen2_5_vl() {
  return {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
          {"model_type", "qwen2_5_vl"},
          {"hidden_size", 3584},
          {"intermediate_size", 18944},
          {"max_position_embeddings", 128000},
          {"max_window_layers", 28},
          {"num_attention_heads", 28},
          {"num_hidden_layers", 28},
          {"num_key_value_heads", 4},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1e6},
          {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {16, 24, 24}}}},
          {"sliding_window", 32768},
          {"use_sliding_window", false},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"vision_config", {{"depth", 32}}},
          {"vocab_size", 152064}};
}

TEST(ModelConfigTextPart, OfPublishedFoldersIsTheirLanguageModel) {
  const ModelConfig gemma = config_of_text(gemma3_4b());
  EXPECT_EQ(gemma.family, Family::kGemma3);
  EXPECT_EQ(gemma.vocab_size, 262208);
  EXPECT_EQ(gemma.head_count, 8);
  EXPECT_EQ(gemma.kv_head_count, 4);
  EXPECT_EQ(gemma.context_max, 131072);
  EXPECT_EQ(gemma.rope.factor, 8);
  EXPECT_EQ(gemma.eos_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(gemma.stored_dtype, DType::kBF16);
  EXPECT_TRUE(gemma.tied_embeddings);
  EXPECT_EQ(parameter_count(gemma), 3880263168);
  EXPECT_EQ(config_of_text(to_hf_config(gemma)), gemma);

  const ModelConfig qwen = config_of_text(qwen2_5_vl());
  EXPECT_EQ(qwen.family, Family::kQwen2);
  EXPECT_EQ(qwen.rope.theta, 1e6);
  EXPECT_EQ(qwen.rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(qwen.sliding_window, 0);
  EXPECT_EQ(parameter_count(qwen), 7615616512);
  EXPECT_EQ(config_of_text(to_hf_config(qwen)), qwen);
}

TEST(ModelConfigTextPart, OfExaone45IsExaone4UnderEitherName) {
  const Json text = {{"vocab_size", 153600},
                     {"hidden_size", 5120},
                     {"intermediate_size", 27392},
                     {"num_hidden_layers", 64},
                     {"num_attention_heads", 40},
                     {"num_key_value_heads", 8},
                     {"head_dim", 128},
                     {"max_position_embeddings", 262144},
                     {"sliding_window", 4096}};
  Json json = {{"architectures", {"Exaone4_5_ForConditionalGeneration"}},
               {"model_type", "exaone4_5"},
               {"tie_word_embeddings", false},
               {"text_config", text},
               {"vision_config", {{"depth", 28}}}};
  const ModelConfig unnamed = config_of_text(json);
  EXPECT_EQ(unnamed.family, Family::kExaone4);
  EXPECT_EQ(unnamed.norm_place, NormPlace::kAfter);
  EXPECT_EQ(parameter_count(unnamed), 32527504384);
  for (const char* name : {"exaone4", "exaone4_5_text"}) {
    json["text_config"]["model_type"] = name;
    EXPECT_EQ(config_of_text(json), unnamed) << name;
  }
  json["text_config"]["model_type"] = "qwen3";
  EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kUnsupported, "\"qwen3\"");
}

TEST(ModelConfigTextPart, OfLlavaIsAMistralWhereItSaysSo) {
  Json json = {{"architectures", {"LlavaForConditionalGeneration"}},
               {"model_type", "llava"},
               {"torch_dtype", "bfloat16"},
               {"text_config",
                {{"head_dim", 128},
                 {"hidden_size", 5120},
                 {"intermediate_size", 14336},
                 {"max_position_embeddings", 1024000},
                 {"model_type", "mistral"},
                 {"num_hidden_layers", 40},
                 {"num_key_value_heads", 8},
                 {"rms_norm_eps", 1e-05},
                 {"rope_theta", 1e9},
                 {"sliding_window", nullptr},
                 {"vocab_size", 131072}}},
               {"vision_config", {{"model_type", "pixtral"}}}};
  const ModelConfig pixtral = config_of_text(json);
  EXPECT_EQ(pixtral.family, Family::kMistral);
  EXPECT_EQ(pixtral.head_count, 32);
  EXPECT_EQ(parameter_count(pixtral), 12247782400);
  json["text_config"]["model_type"] = "qwen2";
  EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kUnsupported, "\"qwen2\"");
}

// As LLaVA 1.5 has it: of its Llama what is not the first one's.
TEST(ModelConfigTextPart, OfLlavaIsALlamaWhereItSaysNothing) {
  Json json = {
      {"model_type", "llava"},
      {"text_config",
       {{"max_position_embeddings", 4096}, {"rms_norm_eps", 1e-05}, {"vocab_size", 32064}}},
      {"vision_config", {{"model_type", "clip_vision_model"}}}};
  const ModelConfig vicuna = config_of_text(json);
  EXPECT_EQ(vicuna.family, Family::kLlama);
  EXPECT_EQ(parameter_count(vicuna), 6738939904);
  json["model_type"] = "llava_next";
  EXPECT_EQ(config_of_text(json), vicuna);
  json["text_config"]["model_type"] = "mistral";
  EXPECT_EQ(config_of_text(json).kv_head_count, 8);
  json["model_type"] = "llava_onevision";
  EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kUnsupported, "\"mistral\"");
}

TEST(ModelConfigTextPart, OfIdefics3IsALlamaWhoseUsualSizesAreLeftOut) {
  Json json = {{"model_type", "idefics3"},
               {"tie_word_embeddings", false},
               {"text_config",
                {{"architectures", {"VLlama3ForCausalLM"}},
                 {"intermediate_size", 14336},
                 {"model_type", "llama"},
                 {"num_key_value_heads", 8},
                 {"rope_theta", 500000.0},
                 {"vocab_size", 128259}}}};
  const ModelConfig config = config_of_text(json);
  EXPECT_EQ(config.family, Family::kLlama);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.ffn_size, 14336);
  EXPECT_EQ(config.layer_count, 32);
  EXPECT_EQ(config.head_count, 32);
  EXPECT_EQ(config.kv_head_count, 8);
  EXPECT_EQ(config.vocab_size, 128259);
  EXPECT_FALSE(config.tied_embeddings);
  json["model_type"] = "smolvlm";
  EXPECT_EQ(config_of_text(json), config);
  json["text_config"]["model_type"] = "mistral";
  EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kUnsupported, "\"mistral\"");
}

// Other values than those of Qwen2 and Qwen3.
TEST(ModelConfigTextPart, WhatQwenWithImagesLeavesOutIsThatOfItsOwnClass) {
  Json qwen2 = qwen2_5_vl();
  for (const char* field :
       {"num_key_value_heads", "rms_norm_eps", "rope_theta", "max_window_layers"}) {
    qwen2.erase(field);
  }
  qwen2["num_attention_heads"] = 56;
  const ModelConfig old = config_of_text(qwen2);
  EXPECT_EQ(old.kv_head_count, 8);
  EXPECT_EQ(old.norm_eps, 1e-5);
  EXPECT_EQ(old.rope.theta, 1e6);
  qwen2["rope_scaling"]["rope_theta"] = 2e6;
  EXPECT_EQ(config_of_text(qwen2).rope.theta, 2e6);

  Json qwen3 = {{"model_type", "qwen3_vl"},
                {"text_config",
                 {{"model_type", "qwen3_vl_text"},
                  {"hidden_size", 64},
                  {"intermediate_size", 96},
                  {"max_position_embeddings", 128},
                  {"num_attention_heads", 32},
                  {"num_hidden_layers", 1},
                  {"vocab_size", 96}}}};
  EXPECT_EQ(config_of_text(qwen3).rope.theta, 5e5);
  EXPECT_EQ(config_of_text(qwen3).kv_head_count, 32);
  EXPECT_EQ(config_of_text(qwen3).head_dim, 128);
  qwen3["text_config"]["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7e6}};
  EXPECT_EQ(config_of_text(qwen3).rope.theta, 7e6);

  // With experts, whose weights are normalised whatever a folder says.
  qwen3["model_type"] = "qwen3_vl_moe";
  qwen3["text_config"].update({{"model_type", "qwen3_vl_moe_text"},
                               {"num_attention_heads", 16},
                               {"norm_topk_prob", false}});
  const ModelConfig experts = config_of_text(qwen3);
  EXPECT_EQ(experts.family, Family::kQwen3Moe);
  EXPECT_EQ(experts.experts.count, 60);
  EXPECT_EQ(experts.experts.ffn_size, 1408);
  EXPECT_TRUE(experts.experts.normalised);
  EXPECT_EQ(experts.kv_head_count, 16);
  EXPECT_EQ(experts.head_dim, 4);
  qwen3["text_config"]["num_local_experts"] = 12;
  EXPECT_EQ(config_of_text(qwen3).experts.count, 12);
}

// Where layers are named one by one, the number of the first ones does not count.
TEST(ModelConfigTextPart, LayersOfQwenWithImagesMayBeNamedAlone) {
  Json json = qwen2_5_vl();
  json.erase("max_window_layers");
  json["use_sliding_window"] = true;
  json["layer_types"] = Json::array();
  for (int layer = 0; layer < 28; ++layer) {
    json["layer_types"].push_back(layer < 20 ? "full_attention" : "sliding_attention");
  }
  const ModelConfig config = config_of_text(json);
  EXPECT_EQ(config.sliding_window, 32768);
  EXPECT_FALSE(config.layer_is_sliding.at(19));
  EXPECT_TRUE(config.layer_is_sliding.at(20));
}

// What the folder of Ministral 3 3B says of its language model.
Json ministral3_3b() {
  return {{"architectures", {"Mistral3ForConditionalGeneration"}},
          {"model_type", "mistral3"},
          {"dtype", "bfloat16"},
          {"text_config",
           {{"model_type", "ministral3"},
            {"hidden_size", 3072},
            {"intermediate_size", 9216},
            {"num_hidden_layers", 26},
            {"num_attention_heads", 32},
            {"num_key_value_heads", 8},
            {"head_dim", 128},
            {"max_position_embeddings", 262144},
            {"rms_norm_eps", 1e-5},
            {"sliding_window", nullptr},
            {"tie_word_embeddings", true},
            {"vocab_size", 131072},
            {"rope_parameters",
             {{"type", "yarn"},
              {"rope_type", "yarn"},
              {"rope_theta", 1e6},
              {"factor", 16.0},
              {"beta_fast", 32.0},
              {"beta_slow", 1.0},
              {"mscale", 1.0},
              {"mscale_all_dim", 1.0},
              {"llama_4_scaling_beta", 0.1},
              {"original_max_position_embeddings", 16384}}}}},
          {"vision_config", {{"model_type", "pixtral"}}}};
}

TEST(ModelConfigTextPart, OfMinistral3ItIsAFamilyOfItsOwn) {
  const ModelConfig config = config_of_text(ministral3_3b());
  EXPECT_EQ(config.family, Family::kMinistral3);
  EXPECT_EQ(parameter_count(config), 3429006336);
  EXPECT_EQ(config.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.rope.attention_factor, 1.0);
  EXPECT_EQ(config.rope.original_context, 16384);
  EXPECT_EQ(config.rope.query_growth, 0.1);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.sliding_window, 0);
  const Json written = to_hf_config(config);
  EXPECT_EQ(written["architectures"], Json{"Ministral3ForCausalLM"});
  EXPECT_FALSE(written.contains("rope_scaling") || written.contains("rope_theta"));
  EXPECT_EQ(config_of_text(written), config);
}

TEST(ModelConfigTextPart, OfWhatIsTiedTheWholeModelSays) {
  Json json = gemma3_4b();
  json["tie_word_embeddings"] = false;
  json["text_config"]["tie_word_embeddings"] = true;
  EXPECT_FALSE(config_of_text(json).tied_embeddings);
  json.erase("tie_word_embeddings");
  EXPECT_TRUE(config_of_text(json).tied_embeddings);
}

TEST(ModelConfigTextPart, RefusesOtherLanguageModelsByName) {
  Json json = gemma3_4b();
  json["model_type"] = "mistral3";
  json["text_config"]["model_type"] = "mixtral";
  EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kUnsupported, "\"mixtral\"");
  json = gemma3_4b();
  for (const Json& wrong : {Json(), Json(3), Json("text"), Json::array()}) {
    json["text_config"] = wrong;
    EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kCorrupt, "\"text_config\"");
  }
  json = gemma3_4b();
  json["text_config"]["model_type"] = 7;
  EXPECT_FALSE(parse_model_config(json, "config.json"));
  json["model_type"] = "gemma5";
  EXPECT_FAILS_WITH(parse_model_config(json, "config.json"), Code::kUnsupported, "gemma5");
}

}  // namespace
}  // namespace jige::formats

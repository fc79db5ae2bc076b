#include "formats/lora_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "formats/json_file.h"
#include "formats/lora_patterns.h"
#include "formats/tensor_folder.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json adapter_json() {
  return {{"peft_type", "LORA"}, {"r", 8}, {"lora_alpha", 16}, {"target_modules", {"q_proj"}}};
}

TEST(LoraConfig, ReadsWhatPeftWrote) {
  const auto config = load_lora_config(fixture("weights/adapter"));
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->rank, 2);
  EXPECT_EQ(config->alpha, 4.0);
  EXPECT_EQ(config->scale(), 2.0);
  EXPECT_EQ(config->target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(config->base_model, "base");
  EXPECT_EQ(parse_lora_config(to_peft_config(*config), "x").value(), *config);
}

TEST(LoraConfig, NamesTensorsAsPeftDoes) {
  const auto folder = TensorFolder::open(fixture("weights/adapter"), "adapter_model");
  ASSERT_TRUE(folder) << folder.error().message;
  for (const char* module :
       {"model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"}) {
    for (const LoraPart part : {LoraPart::kA, LoraPart::kB}) {
      const StoredTensor* tensor = folder->find(lora_tensor_name(module, part));
      ASSERT_TRUE(tensor) << lora_tensor_name(module, part);
      EXPECT_EQ(tensor->dims[part == LoraPart::kA ? 0 : 1], 2);
      const auto name = parse_lora_tensor_name(tensor->name, "x");
      ASSERT_TRUE(name) << name.error().message;
      EXPECT_EQ(name->module, module);
      EXPECT_EQ(name->part, part);
    }
  }
  for (const char* bad :
       {"", "lora_A.weight", "base_model.model..lora_A.weight.x", "base_model.model.lora_A.weight",
        "base_model.model..lora_A.weight", "model.q_proj.lora_A.weight",
        "base_model.model.q.lora_embedding_A", "base_model.model.q.lora_A.bias",
        "base_model.model..weight", "base_model.model.q.scale"}) {
    EXPECT_FAILS_WITH(parse_lora_tensor_name(bad, "x"), Code::kUnsupported, "is not named");
  }
}

TEST(LoraConfig, NamesTheOtherTensorsOfAdapters) {
  using enum LoraPart;
  const std::tuple<const char*, const char*, LoraPart> kNames[] = {
      {"a.q_proj.lora_magnitude_vector", "a.q_proj", kMagnitude},
      {"a.q_proj.lora_magnitude_vector.weight", "a.q_proj", kMagnitude},
      {"a.q_proj.lora_B.bias", "a.q_proj", kBiasOfB},
      {"a.q_proj.bias", "a.q_proj.bias", kSaved},
      {"a.q_proj.base_layer.bias", "a.q_proj.bias", kSaved},
      {"lm_head.weight", "lm_head.weight", kSaved}};
  for (const auto& [name, module, part] : kNames) {
    const auto read = parse_lora_tensor_name(std::string("base_model.model.") + name, "x");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->module, module);
    EXPECT_EQ(read->part, part) << name;
  }
}

TEST(LoraPatterns, GiveTheNumbersOfTheFirstThatMatchesAWholeNameOrItsEnd) {
  Json json = adapter_json();
  json["rank_pattern"] = {
      {"q_proj", 2}, {"layers.1.*_proj", 4}, {"attn", 5}, {"^model.*o_proj", 6}};
  json["alpha_pattern"] = {{"k_proj|q_proj", 3}};
  const auto config = parse_lora_config(json, "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(parse_lora_config(to_peft_config(*config), "x").value(), *config);
  const auto patterns = LoraPatterns::create(*config, "x");
  ASSERT_TRUE(patterns) << patterns.error().message;
  const std::tuple<const char*, int64_t, double> kModules[] = {
      {"model.layers.0.q_proj", 2, 1.5},
      {"model.layers.1.q_proj", 2, 1.5},
      {"q_proj", 2, 1.5},
      {"model.layers.1.k_proj", 4, 0.75},
      {"model.layers.0.k_proj", 8, 0.375},
      {"model.layers.0.attn.v_proj", 8, 2},
      {"model.layers.0.fq_proj", 8, 2},
      {"model.layers.0.o_proj", 6, 16.0 / 6}};
  for (const auto& [module, rank, scale] : kModules) {
    const auto numbers = patterns->of(module);
    ASSERT_TRUE(numbers) << numbers.error().message;
    EXPECT_EQ(numbers->rank, rank) << module;
    EXPECT_EQ(numbers->scale, scale) << module;
  }
  json["alpha_pattern"] = {{"(", 3}};
  const auto broken = parse_lora_config(json, "x");
  EXPECT_FAILS_WITH(LoraPatterns::create(*broken, "x"), Code::kCorrupt, "alpha_pattern");
}

TEST(LoraConfig, AcceptsPatternsAndRankStabilisedScaling) {
  Json json = adapter_json();
  json["target_modules"] = "all-linear";
  json["use_rslora"] = true;
  json["r"] = 16;
  const auto config = parse_lora_config(json, "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->target_pattern, "all-linear");
  EXPECT_EQ(config->scale(), 4.0);
  EXPECT_EQ(parse_lora_config(to_peft_config(*config), "x").value(), *config);
}

TEST(LoraConfig, RefusesVariantsByTheFieldThatAsksForThem) {
  const std::pair<const char*, Json> kVariants[] = {{"use_qalora", true},
                                                    {"bias", "some"},
                                                    {"trainable_token_indices", {1}},
                                                    {"layer_replication", {{0, 1}}},
                                                    {"init_lora_weights", "pissa"},
                                                    {"alora_invocation_tokens", {1, 2}},
                                                    {"peft_type", "IA3"}};
  for (const auto& [field, value] : kVariants) {
    Json json = adapter_json();
    json[field] = value;
    EXPECT_FAILS_WITH(parse_lora_config(json, "adapter_config.json"), Code::kUnsupported,
                      value.is_string() && std::string(field) == "peft_type" ? "IA3" : field);
  }
}

TEST(LoraConfig, RefusesFieldsThatAreAbsentOrOutOfRange) {
  for (const char* field : {"peft_type", "r", "lora_alpha", "target_modules"}) {
    Json json = adapter_json();
    json.erase(field);
    EXPECT_FAILS_WITH(parse_lora_config(json, "x"), Code::kNotFound, field);
  }
  const std::pair<const char*, Json> kBad[] = {{"r", 0},
                                               {"r", 1 << 20},
                                               {"lora_alpha", 1e12},
                                               {"lora_dropout", 1.0},
                                               {"lora_dropout", -0.1},
                                               {"rank_pattern", 5},
                                               {"rank_pattern", {{"q", 0}}},
                                               {"alpha_pattern", {{"q", 1e12}}},
                                               {"target_modules", Json::array()},
                                               {"target_modules", {1}},
                                               {"target_modules", 5}};
  for (const auto& [field, value] : kBad) {
    Json json = adapter_json();
    json[field] = value;
    EXPECT_FAILS_WITH(parse_lora_config(json, "x"), Code::kCorrupt, field);
  }
  EXPECT_FAILS_WITH(parse_lora_config(Json(1), "x"), Code::kCorrupt, "JSON object");
  EXPECT_FAILS_WITH(load_lora_config("/nowhere"), Code::kNotFound, "adapter_config.json");
  Json mistyped = adapter_json();
  mistyped["r"] = "eight";
  const ScratchFolder scratch;
  write_or_fail(scratch.file("adapter_config.json"), mistyped.dump());
  EXPECT_FAILS_WITH(load_lora_config(scratch.path()), Code::kCorrupt, "\"r\"");
}

TEST(LoraConfig, ListsTheLinearLayersOfAFamily) {
  EXPECT_EQ(lora_linear_modules({.family = Family::kLlama}).size(), 7u);
  EXPECT_EQ(lora_linear_modules({.family = Family::kGpt2}).front(), "c_attn");
}

}  // namespace
}  // namespace jige::formats

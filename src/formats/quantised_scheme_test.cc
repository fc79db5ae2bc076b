// quantization_config: what every method's fields mean, what is refused by field and value, and
// which modules lists and expressions name.
#include "formats/quantised_scheme.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "base/test_fuzz_rounds.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json fp8_json() {
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"weight_block_size", {128, 128}}};
}

Json compressed_json(const char* format, const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
          {"ignore", {"lm_head"}}};
}

Json int4_json() {
  return {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}};
}

Json gptq_json() {
  return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}};
}

Json awq_json() {
  return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"version", "gemm"}};
}

Json scheme_with(Json config, const char* field, const Json& value) {
  config[field] = value;
  return config;
}

QuantisedScheme scheme_in(const Json& json) {
  const auto scheme = parse_quantised_scheme(json, "config.json");
  EXPECT_TRUE(scheme.has_value()) << (scheme ? "" : scheme.error().message);
  return scheme.value_or(QuantisedScheme{});
}

const QuantisedWeights* weights_of(const QuantisedScheme& scheme, std::string_view module) {
  const auto found = scheme.find(module);
  EXPECT_TRUE(found.has_value()) << (found ? "" : found.error().message);
  return found.value_or(nullptr);
}

void expect_refused(const Json& json, const std::string& words) {
  EXPECT_FAILS_WITH(parse_quantised_scheme(json, "config.json"), Code::kUnsupported, words);
}

TEST(QuantisedScheme, ReadsWhatEveryMethodSays) {
  EXPECT_EQ(quantised_text(scheme_in(fp8_json())), "fp8: F8_E4M3 in blocks of 128 x 128");
  EXPECT_EQ(quantised_text(scheme_in(compressed_json("pack-quantized", int4_json()))),
            "compressed-tensors, pack-quantized: 4 bits in groups of 128");
  EXPECT_EQ(quantised_text(scheme_in(compressed_json(
                "int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}))),
            "compressed-tensors, int-quantized: 8 bits, a scale a row");
  EXPECT_EQ(quantised_text(scheme_in(compressed_json(
                "float-quantized", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}))),
            "compressed-tensors, float-quantized: F8_E4M3, a scale a matrix");
  EXPECT_EQ(quantised_text(scheme_in(gptq_json())), "gptq: 4 bits in groups of 128");
  EXPECT_EQ(quantised_text(scheme_in(scheme_with(awq_json(), "group_size", -1))),
            "awq, gemm: 4 bits, a scale a row");
}

TEST(QuantisedScheme, KnowsBothZerosOfGptq) {
  EXPECT_TRUE(scheme_in(gptq_json()).groups[0].weights.zeros_less_one);
  EXPECT_FALSE(scheme_in(scheme_with(gptq_json(), "checkpoint_format", "gptq_v2"))
                   .groups[0]
                   .weights.zeros_less_one);
}

TEST(QuantisedScheme, RefusesByFieldAndValueWhatItDoesNotRead) {
  expect_refused({{"quant_method", "bitsandbytes"}}, "\"quant_method\"");
  expect_refused(scheme_with(fp8_json(), "fmt", "e5m2"),
                 "\"fmt\" of quantization_config is \"e5m2\"");
  expect_refused(scheme_with(fp8_json(), "expert_dtype", "fp4"), "\"fp4\"");
  expect_refused(scheme_with(gptq_json(), "bits", 3), "\"bits\" of quantization_config is 3");
  expect_refused(scheme_with(gptq_json(), "checkpoint_format", "marlin"), "\"marlin\"");
  expect_refused(scheme_with(gptq_json(), "dynamic", {{"+:.*down.*", {{"bits", 8}}}}),
                 "+:.*down.*");
  expect_refused(scheme_with(awq_json(), "version", "gemv"), "\"gemv\"");
  expect_refused(scheme_with(awq_json(), "zero_point", false), "\"zero_point\"");
  expect_refused(compressed_json("nvfp4-pack-quantized", int4_json()), "nvfp4-pack-quantized");
  expect_refused(compressed_json("pack-quantized", scheme_with(int4_json(), "num_bits", 3)),
                 "\"num_bits\" of quantization_config is 3");
  expect_refused(compressed_json("pack-quantized", scheme_with(int4_json(), "strategy", "token")),
                 "\"token\"");
  expect_refused(compressed_json("float-quantized", int4_json()), "\"type\"");
  const Json packed = compressed_json("pack-quantized", int4_json());
  expect_refused(scheme_with(packed, "sparsity_config", {{"format", "sparse-24-bitmask"}}),
                 "sparse-24-bitmask");
  expect_refused(scheme_with(packed, "transform_config", {{"config_groups", {{"u", 1}}}}),
                 "config_groups");
}

TEST(QuantisedScheme, RefusesSizesThatCannotBe) {
  EXPECT_FAILS_WITH(
      parse_quantised_scheme(scheme_with(gptq_json(), "group_size", 0), "config.json"),
      Code::kCorrupt, "\"group_size\" of quantization_config is 0");
  EXPECT_FAILS_WITH(parse_quantised_scheme(scheme_with(fp8_json(), "weight_block_size", {128, -1}),
                                           "config.json"),
                    Code::kCorrupt, "weight_block_size");
  EXPECT_FAILS_WITH(
      parse_quantised_scheme(scheme_with(fp8_json(), "modules_to_not_convert", {7}), "config.json"),
      Code::kCorrupt, "no string: 7");
  EXPECT_FAILS_WITH(
      parse_quantised_scheme(
          scheme_with(compressed_json("pack-quantized", int4_json()), "ignore", {"re:("}),
          "config.json"),
      Code::kCorrupt, "ignore");
}

TEST(QuantisedScheme, LeavesOutTheModulesThatListsName) {
  const QuantisedScheme fp8 = scheme_in(
      scheme_with(fp8_json(), "modules_to_not_convert", {"lm_head", "model.layers.1.mlp.gate"}));
  EXPECT_EQ(weights_of(fp8, "lm_head"), nullptr);
  EXPECT_EQ(weights_of(fp8, "model.layers.1.mlp.gate"), nullptr);
  EXPECT_NE(weights_of(fp8, "model.layers.1.mlp.gate_proj"), nullptr);
  EXPECT_NE(weights_of(fp8, "model.layers.11.mlp.gate"), nullptr);
  const QuantisedScheme packed =
      scheme_in(scheme_with(compressed_json("pack-quantized", int4_json()), "ignore",
                            {"lm_head", "re:.*mlp.gate$", "re:layers"}));
  EXPECT_EQ(weights_of(packed, "lm_head"), nullptr);
  EXPECT_EQ(weights_of(packed, "model.layers.3.mlp.gate"), nullptr);
  EXPECT_NE(weights_of(packed, "model.layers.3.mlp.gate_proj"), nullptr);  // "$"
  EXPECT_NE(weights_of(packed, "model.lm_head"), nullptr);                 // a whole name
  const QuantisedScheme gptq =
      scheme_in(scheme_with(gptq_json(), "dynamic", {{"-:.*layers\\.0\\..*", Json::object()}}));
  EXPECT_EQ(weights_of(gptq, "model.layers.0.mlp.up_proj"), nullptr);
  EXPECT_NE(weights_of(gptq, "model.layers.1.mlp.up_proj"), nullptr);
}

TEST(QuantisedScheme, TakesTheGroupThatNamesAModuleMostSpecifically) {
  Json json = compressed_json("mixed-precision", int4_json());
  json["config_groups"]["group_0"]["format"] = "pack-quantized";
  json["config_groups"]["group_1"] = {
      {"targets", {"re:.*down_proj"}},
      {"format", "int-quantized"},
      {"weights", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}}};
  const QuantisedScheme scheme = scheme_in(json);
  EXPECT_EQ(weights_of(scheme, "model.layers.0.mlp.down_proj")->layout, QuantisedLayout::kInt8);
  EXPECT_EQ(weights_of(scheme, "model.layers.0.mlp.up_proj")->layout, QuantisedLayout::kPacked);
}

TEST(QuantisedScheme, StandsAnyDamage) {
  set_log_level(LogLevel::kError);
  const std::string texts[] = {dump_json(fp8_json()), dump_json(gptq_json()), dump_json(awq_json()),
                               dump_json(compressed_json("pack-quantized", int4_json()))};
  for (uint64_t seed = 0; seed < fuzz_rounds(4000); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto json = parse_json(Mutator(seed).mutate(texts[seed % 4]), "config.json");
    if (!json) continue;
    const auto scheme = parse_quantised_scheme(*json, "config.json");
    if (!scheme) {
      EXPECT_NE(scheme.error().message.find("config.json"), std::string::npos);
      continue;
    }
    for (const QuantisedGroup& group : scheme->groups) {
      EXPECT_GE(group.weights.block_columns, 0);
      EXPECT_TRUE(group.weights.bits == 4 || group.weights.bits == 8);
    }
  }
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace jige::formats

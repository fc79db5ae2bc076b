#include "formats/generation_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(GenerationConfig, ReadsWhatTransformersWrote) {
  for (const char* folder : {"configs/transformers-4", "configs/transformers-5"}) {
    const auto config = load_generation_config(fixture(folder));
    ASSERT_TRUE(config) << config.error().message;
    GenerationConfig wanted;
    wanted.eos_ids = {5, 6};
    wanted.bos_id = 4;
    wanted.pad_id = 0;
    wanted.do_sample = true;
    wanted.temperature = 0.7;
    wanted.top_k = 20;
    wanted.top_p = 0.8;
    wanted.repetition_penalty = 1.05;
    wanted.max_new_tokens = 64;
    EXPECT_EQ(*config, wanted) << folder;
    EXPECT_EQ(parse_generation_config(to_hf_generation_config(wanted), "x").value(), wanted);
  }
}

TEST(GenerationConfig, LeavesAbsentAndNullFieldsEmpty) {
  const ScratchFolder scratch;
  EXPECT_EQ(load_generation_config(scratch.path()).value(), GenerationConfig());
  const Json nulls = {{"temperature", nullptr},
                      {"eos_token_id", nullptr},
                      {"top_k", nullptr},
                      {"do_sample", nullptr},
                      {"unknown", {1, 2}}};
  EXPECT_EQ(parse_generation_config(nulls, "x").value(), GenerationConfig());
  EXPECT_EQ(to_hf_generation_config({}).dump(), "{}");
  EXPECT_EQ(parse_generation_config({{"eos_token_id", 3}}, "x")->eos_ids, std::vector<int32_t>{3});
  EXPECT_FALSE(parse_generation_config({{"pad_token_id", -1}}, "x")->pad_id);
}

TEST(GenerationConfig, RefusesValuesOutsideTheirRange) {
  const std::pair<const char*, Json> kBad[] = {{"temperature", -0.1},
                                               {"temperature", 1e9},
                                               {"top_k", -1},
                                               {"top_p", 0.0},
                                               {"top_p", 1.5},
                                               {"min_p", -0.5},
                                               {"min_p", 2},
                                               {"repetition_penalty", 0},
                                               {"max_new_tokens", 0},
                                               {"max_length", -5},
                                               {"eos_token_id", {1, -7}},
                                               {"bos_token_id", int64_t{1} << 40},
                                               {"eos_token_id", Json(std::vector<int>(300, 1))}};
  for (const auto& [field, value] : kBad) {
    EXPECT_FAILS_WITH(parse_generation_config({{field, value}}, "generation_config.json"),
                      Code::kCorrupt, field);
  }
  const std::pair<const char*, Json> kMistyped[] = {
      {"temperature", "hot"}, {"top_k", 0.5},           {"do_sample", 1},
      {"top_p", {0.5}},       {"eos_token_id", "</s>"}, {"eos_token_id", {1, "</s>"}}};
  for (const auto& [field, value] : kMistyped) {
    EXPECT_FAILS_WITH(parse_generation_config({{field, value}}, "generation_config.json"),
                      Code::kInvalidArgument, field);
  }
  EXPECT_FAILS_WITH(parse_generation_config(Json::array(), "x"), Code::kCorrupt, "JSON object");
  const ScratchFolder scratch;
  write_or_fail(scratch.file("generation_config.json"), "{,}");
  EXPECT_FAILS_WITH(load_generation_config(scratch.path()), Code::kCorrupt, "not valid JSON");
  write_or_fail(scratch.file("generation_config.json"), R"({"top_k": "all"})");
  EXPECT_FAILS_WITH(load_generation_config(scratch.path()), Code::kCorrupt, "top_k");
}

}  // namespace
}  // namespace jige::formats

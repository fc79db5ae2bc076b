#include "sim/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "sim/json_damage_test_support.h"

namespace jige::sim {
namespace {

using ::testing::HasSubstr;

StepProfile some_profile() {
  StepProfile profile{.subject = {.machine = {"EPYC", "avx512", "cpu", 2, 1},
                                  .model = {"15m (random)", "bf16", "q8", "bf16", 15'000'000, 6,
                                            288, 32'000, 1024}},
                      .step = {.base_s = 1.0 / 3,
                               .token_s = 1e-5,
                               .kv_token_s = 2e-9,
                               .pair_s = 0,
                               .sequence_s = 1e-6,
                               .sampling_s = 4e-4,
                               .sampled_row_s = 5e-6,
                               .row_segments = {{4, 1e-6}, {64, 0.1}},
                               .limits = {.rows_max = 512, .sample_rows_max = 64}}};
  NoiseGroup noise{.end_s = 0.125};
  for (const double share : noise_shares()) noise.quantiles.push_back(0.75 + share);
  profile.step.noise.groups = {noise};
  profile.held_out.all = {.cells = 2, .mean = 0.05, .worst = -0.08, .slower = 0.06};
  profile.held_out.kinds["decode"] = profile.held_out.all;
  StepFeatures features;
  features.add(10, 4, 1);
  features.add(30, 1, 1);
  profile.cells = {{"prompt", features, 0.25, 0.2, 0.3, 9, 2}};
  return profile;
}

TEST(StepProfile, ReadsWhatItWrites) {
  const StepProfile profile = some_profile();
  const std::string text = dump_json(step_profile_to_json(profile), 1);
  const auto read = step_profile_from_json(*parse_json(text, "p"), "p");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(dump_json(step_profile_to_json(*read), 1), text);
  EXPECT_EQ(read->subject.machine.threads, 1);
  EXPECT_EQ(read->subject.model.weights, "q8");
  EXPECT_EQ(read->step.limits.rows_max, 512);
  EXPECT_EQ(read->cells[0].features.decode_keys, 31);
  EXPECT_EQ(read->step.noise.groups[0].quantiles, profile.step.noise.groups[0].quantiles);
  EXPECT_EQ(read->held_out.all.slower, 0.06);
  EXPECT_EQ(read->held_out.kinds.at("decode").worst, -0.08);
  StepFeatures features;
  features.add(20, 7, 1);
  EXPECT_EQ(read->step.forward_seconds(features), profile.step.forward_seconds(features));
}

std::string error_of(const char* pointer, const Json& value) {
  Json json = step_profile_to_json(some_profile());
  json[Json::json_pointer(pointer)] = value;
  const auto read = step_profile_from_json(json, "p.json");
  return read ? "read" : read.error().message;
}

TEST(StepProfile, NamesWhatIsWrong) {
  EXPECT_THAT(error_of("/format", "jige.topology"), HasSubstr("jige.topology"));
  EXPECT_THAT(error_of("/version", 1), HasSubstr("version 1"));
  EXPECT_THAT(error_of("/machine", 1), HasSubstr("\"machine\" must be an object"));
  EXPECT_THAT(error_of("/machine/threads", "two"), HasSubstr("p.json: machine: field \"threads\""));
  EXPECT_THAT(error_of("/model/name", 5), HasSubstr("\"name\""));
  EXPECT_THAT(error_of("/limits/rows", 0), HasSubstr("rows is 0"));
  EXPECT_THAT(error_of("/step/base_s", -1), HasSubstr("base_s is -1"));
  EXPECT_THAT(error_of("/step/pair_s", 1e300), HasSubstr("pair_s"));
  EXPECT_THAT(error_of("/step/row_segments/1/end", 4), HasSubstr("end is 4"));
  EXPECT_THAT(error_of("/step/row_segments", Json::object()), HasSubstr("must be a list"));
  EXPECT_THAT(error_of("/step/noise", 1), HasSubstr("\"noise\" must be a list"));
  EXPECT_THAT(error_of("/step/noise/0/end_s", 0), HasSubstr("noise: end_s is 0"));
  EXPECT_THAT(error_of("/step/noise/0/quantiles/0", 0), HasSubstr("quantiles has 0"));
  EXPECT_THAT(error_of("/step/noise/0/quantiles/3", 0.1), HasSubstr("and ascend"));
  EXPECT_THAT(error_of("/step/noise/0/quantiles", Json::array()), HasSubstr("quantiles are 0"));
  EXPECT_THAT(error_of("/held_out/all", nullptr), HasSubstr("\"all\" is missing"));
  EXPECT_THAT(error_of("/held_out/all/slower", -0.1), HasSubstr("slower is -0.1"));
  EXPECT_THAT(error_of("/cells/0/decode_keys", "x"), HasSubstr("decode_keys"));
  EXPECT_THAT(error_of("/cells/0/seconds", 0), HasSubstr("cells[0]: seconds is 0"));
  EXPECT_THAT(error_of("/cells/0/runs", 0.5), HasSubstr("runs"));
  Json nothing = step_profile_to_json(some_profile());
  for (auto& [name, value] : nothing["step"].items()) {
    value.is_array() ? value = Json::array() : value = 0;
  }
  EXPECT_THAT(step_profile_from_json(nothing, "p").error().message, HasSubstr("takes no time"));
}

TEST(StepProfile, DamagedFilesAreRefusedOrGiveSoundTimes) {
  const std::string whole = dump_json(step_profile_to_json(some_profile()));
  Rng rng(derive_key(4, "step profile fuzz"));
  StepFeatures features;
  features.add(1000, 200, 64);
  int read_count = 0;
  for (uint64_t round = 0; round < fuzz_rounds(1200); ++round) {
    const std::string text = damaged_json(whole, rng);
    const auto json = parse_json(text, "fuzz");
    if (!json) continue;
    const auto read = step_profile_from_json(*json, "fuzz");
    if (!read) {
      EXPECT_THAT(read.error().message, HasSubstr("fuzz"));
      continue;
    }
    ++read_count;
    const double seconds = read->step.mean_seconds(features);
    EXPECT_TRUE(seconds >= 0 && seconds < 1e21) << text;
  }
  EXPECT_GT(read_count, 20);
}

TEST(StepProfile, AFileThatIsMissing) {
  EXPECT_EQ(load_step_profile("/nowhere/p.json").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace jige::sim

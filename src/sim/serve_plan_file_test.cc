#include "sim/serve_plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "sim/json_damage_test_support.h"
#include "sim/step_profile.h"

namespace jige::sim {
namespace {

using ::testing::HasSubstr;

ServePlanRequest some_request() {
  ServePlanRequest request;
  request.load.requests = {{0, 10, 4}, {1, 30, 8}};
  request.load.users = 6;
  request.load.pool = {.block_count = 64};
  request.load.step = {.base_s = 0.02,
                       .token_s = 1e-4,
                       .row_segments = {{8, 1e-5}},
                       .limits = {.rows_max = 512, .sample_rows_max = 48}};
  request.policies = {plan::ServePolicy::kRounds, plan::ServePolicy::kOrca};
  request.batch_requests_max = 48;
  request.batch_tokens_max = 256;
  request.bounds = {.itl_s = 0.05, .quantile = 0.9, .margin = 0.1};
  return request;
}

ServePlan some_plan() {
  ServePlan plan;
  plan.chosen.emplace();
  plan.chosen->settings = {.policy = plan::ServePolicy::kRounds,
                           .batch_requests_max = 12,
                           .round_prompts = 3,
                           .round_steps = 5};
  plan.chosen->requests_per_s = 2.5;
  plan.chosen->output_tokens_per_s = 100.0 / 3;
  plan.chosen->itl_s = {.mean = 0.03, .p50 = 0.02, .p90 = 0.04, .p99 = 0.045};
  plan.chosen->kv_blocks_max = 40;
  plan.usual.settings = {.batch_requests_max = 7, .batch_tokens_max = 99};
  plan.binding = "itl";
  return plan;
}

ProfiledSubject some_subject() {
  return {.machine = {"EPYC", "avx512", "cpu", 2, 1},
          .model = {"m", "bf16", "q8", "bf16", 15'000'000, 6, 288, 32'000, 1024}};
}

Json some_file() {
  return serve_plan_to_json(some_request(), some_plan(), {"20 ms an iteration", some_subject()});
}

TEST(ServePlanFile, ReadsWhatItWrites) {
  const auto json = parse_json(dump_json(some_file(), 1), "p");
  ASSERT_TRUE(json);
  const auto file = serve_plan_from_json(*json, "p");
  ASSERT_TRUE(file) << file.error().message;
  const ServePrediction chosen = *some_plan().chosen;
  EXPECT_EQ(file->settings, chosen.settings);
  EXPECT_EQ(file->prediction.settings, chosen.settings);
  EXPECT_EQ(file->prediction.requests_per_s, chosen.requests_per_s);
  EXPECT_EQ(file->prediction.output_tokens_per_s, chosen.output_tokens_per_s);
  EXPECT_EQ(file->prediction.kv_blocks_max, 40);
  EXPECT_NEAR(file->prediction.itl_s.p99, 0.045, 1e-12);
  EXPECT_EQ(file->users, 6);
  EXPECT_EQ(file->rate_per_s, 0);
  EXPECT_EQ(file->requests, 2);
  EXPECT_EQ(file->prompt_tokens_mean, 20);
  EXPECT_EQ(file->output_tokens_mean, 6);
  EXPECT_EQ(file->lengths.prompt_tokens, plan::length_quantiles({10, 30}));
  EXPECT_EQ(file->lengths.answer_tokens, plan::length_quantiles({4, 8}));
  EXPECT_EQ(file->lengths.rate_per_s, 0);
  EXPECT_EQ(file->lengths.requests, 2);
  EXPECT_EQ(file->kv_tokens, 1024);
  EXPECT_NEAR(*file->bounds.itl_s, 0.05, 1e-12);
  EXPECT_FALSE(file->bounds.e2e_s);
  EXPECT_EQ(file->bounds.quantile, 0.9);
  EXPECT_EQ(file->bounds.margin, 0.1);
  EXPECT_EQ(file->iteration, "20 ms an iteration");
  EXPECT_EQ(file->binding, "itl");
  ASSERT_TRUE(file->profiled);
  EXPECT_TRUE(same_shape(file->profiled->model, some_subject().model));
  EXPECT_TRUE(differences(*file->profiled, some_subject()).empty());
  ASSERT_TRUE(file->search);
  EXPECT_EQ(file->search->policies, some_request().policies);
  EXPECT_EQ(file->search->batch_requests_max, 48);
  EXPECT_EQ(file->search->batch_tokens_max, 256);
  const StepTime& step = file->search->step;
  EXPECT_EQ(step_time_to_json(step), step_time_to_json(some_request().load.step));
  EXPECT_EQ(step.limits.rows_max, 512);
  EXPECT_EQ(step.limits.sample_rows_max, 48);
  const Json by_figures = serve_plan_to_json(some_request(), some_plan(), {"20 ms"});
  EXPECT_FALSE(serve_plan_from_json(by_figures, "p")->profiled);
}

std::string plan_error_of(const char* pointer, const Json& value) {
  Json json = some_file();
  json[Json::json_pointer(pointer)] = value;
  const auto file = serve_plan_from_json(json, "p.json");
  return file ? "read" : file.error().message;
}

TEST(ServePlanFile, NamesWhatIsWrong) {
  EXPECT_THAT(plan_error_of("/format", "jige.topology"), HasSubstr("jige.topology"));
  EXPECT_THAT(plan_error_of("/version", 1), HasSubstr("version 1"));
  EXPECT_THAT(plan_error_of("/settings", 1), HasSubstr("\"settings\" must be an object"));
  EXPECT_THAT(plan_error_of("/settings/policy", "fifo"), HasSubstr("\"fifo\" is not one of"));
  EXPECT_THAT(plan_error_of("/settings/max_batch", 0),
              HasSubstr("p.json: settings: max_batch is 0"));
  EXPECT_THAT(plan_error_of("/settings/round_steps", "5"), HasSubstr("round_steps"));
  EXPECT_THAT(plan_error_of("/settings/max_bach", 5), HasSubstr("\"max_bach\" is no setting"));
  EXPECT_THAT(plan_error_of("/settings/batch_tokens", 64),
              HasSubstr("\"batch_tokens\" is no setting"));
  EXPECT_THAT(plan_error_of("/settings/round_prompts", nullptr), HasSubstr("round_prompts"));
  EXPECT_THAT(plan_error_of("/load/users", -1), HasSubstr("users is -1"));
  EXPECT_THAT(plan_error_of("/load/rate", 3), HasSubstr("two loads"));
  EXPECT_THAT(plan_error_of("/load/prompt_tokens", 3), HasSubstr("must be a list"));
  EXPECT_THAT(plan_error_of("/load/prompt_tokens/32", 3), HasSubstr("prompt_tokens has 3;"));
  EXPECT_THAT(plan_error_of("/load/output_tokens", Json::array()), HasSubstr("has 0 lengths"));
  EXPECT_THAT(plan_error_of("/load/iteration", 3), HasSubstr("iteration"));
  EXPECT_THAT(plan_error_of("/bounds/quantile", 2), HasSubstr("quantile is 2"));
  EXPECT_THAT(plan_error_of("/bounds/itl_ms", "x"), HasSubstr("itl_ms"));
  EXPECT_THAT(plan_error_of("/prediction/e2e_ms", Json::object()), HasSubstr("e2e_ms"));
  EXPECT_THAT(plan_error_of("/prediction/ttft_ms/p99", -1), HasSubstr("p99 is -1"));
  EXPECT_THAT(plan_error_of("/machine", nullptr), HasSubstr("\"machine\" is missing"));
  EXPECT_THAT(plan_error_of("/machine/threads", -1), HasSubstr("p.json: machine: threads is -1"));
  EXPECT_THAT(plan_error_of("/model/layers", "six"), HasSubstr("layers"));
  EXPECT_THAT(plan_error_of("/binding", 1), HasSubstr("binding"));
  EXPECT_EQ(plan_error_of("/usual", "for people"), "read");
  EXPECT_THAT(plan_error_of("/search", 7), HasSubstr("\"search\" must be an object"));
  EXPECT_THAT(plan_error_of("/search/policies", Json::array()), HasSubstr("policies has none"));
  EXPECT_THAT(plan_error_of("/search/policies/0", "fifo"), HasSubstr("policies has \"fifo\""));
  EXPECT_THAT(plan_error_of("/search/policies/0", "orca"), HasSubstr("each once"));
  EXPECT_THAT(plan_error_of("/search/max_batch", 0), HasSubstr("p.json: search: max_batch is 0"));
  EXPECT_THAT(plan_error_of("/search/batch_tokens", 1e9), HasSubstr("batch_tokens"));
  EXPECT_THAT(plan_error_of("/search/forward_rows", 0), HasSubstr("forward_rows is 0"));
  EXPECT_THAT(plan_error_of("/step", 7), HasSubstr("\"step\" must be an object"));
  EXPECT_THAT(plan_error_of("/step/base_s", -1), HasSubstr("p.json: step: base_s is -1"));
}

// From before there was "search".
TEST(ServePlanFile, ReadsPlansThatSayNotWhatTheyWereSearchedAmong) {
  Json json = some_file();
  json.erase("search");
  json.erase("step");
  const auto file = serve_plan_from_json(json, "p");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_FALSE(file->search);
}

TEST(ServePlanFile, DamagedFilesAreRefusedOrGiveSettingsWithinTheirRanges) {
  const std::string whole = dump_json(some_file());
  Rng rng(derive_key(4, "serve plan fuzz"));
  int read = 0;
  for (uint64_t round = 0; round < fuzz_rounds(1200); ++round) {
    const std::string text = damaged_json(whole, rng);
    const auto json = parse_json(text, "fuzz");
    if (!json) continue;
    const auto file = serve_plan_from_json(*json, "fuzz");
    if (!file) {
      EXPECT_THAT(file.error().message, HasSubstr("fuzz"));
      continue;
    }
    ++read;
    EXPECT_TRUE(file->settings.batch_requests_max >= 1 && file->settings.round_steps >= 1 &&
                file->settings.round_prompts >= 1 && file->settings.batch_tokens_max >= 16)
        << text;
  }
  EXPECT_GT(read, 20);
}

TEST(ServePlanFile, AFileThatIsMissing) {
  EXPECT_EQ(load_serve_plan("/nowhere/p.json").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace jige::sim

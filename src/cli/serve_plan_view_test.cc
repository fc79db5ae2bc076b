#include "cli/serve_plan_view.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/load_flags.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServePlanView, TheFlagsOfSettingsGiveThemBack) {
  for (const sim::ServeSettings& settings :
       {sim::ServeSettings{.batch_requests_max = 12, .batch_tokens_max = 96},
        sim::ServeSettings{.policy = plan::ServePolicy::kOrca, .batch_requests_max = 3},
        sim::ServeSettings{.policy = plan::ServePolicy::kRounds,
        .batch_requests_max = 9,
        .round_prompts = 2,
        .round_steps = 5}}) {
    SchedulingFlags scheduling;
    scheduling.set(settings);
    const std::string text = settings_flags(settings);
    EXPECT_THAT(text, HasSubstr("--policy " + scheduling.policies));
    EXPECT_THAT(text, HasSubstr(fmt::format("--max-batch {}", scheduling.batch_requests)));
    const bool chunked = settings.policy == plan::ServePolicy::kChunked;
    EXPECT_EQ(text.find("--batch-tokens 96") != std::string::npos, chunked) << text;
    const bool rounds = settings.policy == plan::ServePolicy::kRounds;
    EXPECT_EQ(text.find("--round-prompts 2 --round-steps 5") != std::string::npos, rounds) << text;
    EXPECT_EQ(scheduling.rounds.steps, settings.round_steps);
  }
}

TEST(ServePlanView, PlannedBesideMeasured) {
  sim::ServePlanFile plan;
  plan.prediction.requests_per_s = 4;
  plan.prediction.itl_s = {.mean = 0.02, .p99 = 0.05};
  sim::LoadReport report;
  report.requests_per_s = 3;
  report.itl_s = {.count = 9, .mean = 0.025, .p99 = 0.04};
  const std::string text = planned_and_measured_text(plan, report);
  EXPECT_THAT(text, HasSubstr("-25.0 %"));
  EXPECT_THAT(text, HasSubstr("+25.0 %"));
  EXPECT_THAT(text, HasSubstr("-20.0 %"));
  EXPECT_THAT(text, Not(HasSubstr("inf")));
  const Json json = planned_and_measured_json(plan, report);
  EXPECT_EQ(json["itl_p99_s"]["planned"], 0.05);
  EXPECT_EQ(json["itl_p99_s"]["measured"], 0.04);
}

TEST(ServePlanView, BoundsAreToldWithTheirMargin) {
  sim::ServePlanRequest request;
  request.bounds = {.itl_s = 0.05, .e2e_s = 9, .margin = 0.08};
  sim::ServePlan plan;
  plan.chosen.emplace().itl_s.bounded = 0.0441;
  plan.chosen->e2e_s.bounded = 7;
  EXPECT_THAT(serve_plan_text(request, plan, 0.1),
              HasSubstr("bounds with a margin of 8.0 %: itl 44.1 of 46 ms at the quantile 0.995, "
                        "e2e 7000 of 8280 ms at the quantile 0.99"));
  EXPECT_EQ(plan_json(request, plan)["margin"], 0.08);
  EXPECT_EQ(margin_text({}), "");
  // Rounded up, so that what is told can be kept.
  EXPECT_EQ(bounds_flag(request.bounds, 1), "itl=50,e2e=9000");
  EXPECT_EQ(bounds_flag(request.bounds, 1.23456), "itl=61.8,e2e=11200");
  EXPECT_EQ(bounds_flag({.ttft_s = 1e-5}, 1.0001), "ttft=0.0101");
}

TEST(ServePlanView, ASettingThatNothingIsBetterThan) {
  sim::ServePlanRequest request;
  request.bounds.e2e_s = 1;
  sim::ServePlan plan;
  plan.chosen.emplace().requests_per_s = 2;
  plan.binding = "e2e";
  plan.settings = 7;
  const std::string text = serve_plan_text(request, plan, 0.1);
  EXPECT_THAT(text, HasSubstr("chosen"));
  EXPECT_THAT(text, HasSubstr("keeps bounds"));
  EXPECT_THAT(text, HasSubstr("in the way of more: e2e"));
  EXPECT_THAT(text, HasSubstr("jige serve FOLDER --policy chunked --max-batch 64"));
  EXPECT_THAT(text, Not(HasSubstr("next")));
  EXPECT_EQ(plan_json(request, plan)["chosen"]["keeps_bounds"], true);
}

TEST(LoadFlags, OneLoadHasNoSweep) {
  LoadFlags load;
  load.rate = 0;
  Flags flags("test");
  load.declare(flags, LoadFlags::Use::kOneLoad);
  EXPECT_FALSE(flags.parse({"--sweep", "1,2"}));
  Flags again("test");
  load.declare(again, LoadFlags::Use::kOneLoad);
  ASSERT_TRUE(again.parse({"-n", "7"}));
  const auto plan = load.plan(again);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->rates, (std::vector<double>{0}));
  EXPECT_EQ(plan->at(0, 0).requests.size(), 7u);
}

}  // namespace
}  // namespace jige::cli

#include "cli/load_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/flags.h"
#include "cli/random_model.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;

Result<LoadPlan> plan_of(const std::vector<std::string>& words) {
  LoadFlags load;
  Flags flags("test");
  load.declare(flags);
  JIGE_DO(flags.parse(words));
  return load.plan(flags);
}

TEST(LoadFlags, DefaultIsOrcasTrace) {
  const auto plan = plan_of({});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->rates, (std::vector<double>{1}));
  const sim::Workload load = plan->at(0, 0);
  EXPECT_EQ(load.requests.size(), 100u);
  EXPECT_LE(plan->tokens_max(), 640);
  EXPECT_GT(plan->tokens_max(), 400);
}

TEST(LoadFlags, SweepsTheSameRequests) {
  const auto plan = plan_of({"--sweep", "1,2.5", "-n", "9", "--output-tokens", "7"});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->rates, (std::vector<double>{1, 2.5}));
  const auto slow = plan->at(0, 0), fast = plan->at(1, 0);
  ASSERT_EQ(slow.requests.size(), 9u);
  EXPECT_NEAR(slow.requests[8].arrival_s, 2.5 * fast.requests[8].arrival_s, 1e-9);
  EXPECT_EQ(slow.requests[8].output_tokens, 7);
  EXPECT_EQ(slow.requests[8].prompt_tokens, fast.requests[8].prompt_tokens);
  EXPECT_GT(plan->at(0, 40).cut_count, 0);
}

TEST(LoadFlags, ReadsATraceAndPlaysItFaster) {
  auto folder = TemporaryFolder::make();
  ASSERT_TRUE(folder);
  const std::string path = folder->path() + "/load.jsonl";
  ASSERT_TRUE(write_file_atomic(path,
                                "{\"arrival_s\":7,\"prompt_tokens\":3,\"output_tokens\":4}\n\n"
                                "{\"arrival_s\":5,\"prompt_tokens\":1,\"output_tokens\":2}\n"));
  const auto plan = plan_of({"--trace", path});
  ASSERT_TRUE(plan) << plan.error().message;
  const auto as_it_is = plan->at(0, 0);
  ASSERT_EQ(as_it_is.requests.size(), 2u);
  EXPECT_EQ(as_it_is.requests[0].prompt_tokens, 1) << "by arrival";
  EXPECT_DOUBLE_EQ(as_it_is.requests[1].arrival_s, 2);
  const auto faster = plan_of({"--trace", path, "--sweep", "4"});
  EXPECT_DOUBLE_EQ(faster->at(0, 0).requests[1].arrival_s, 0.5);
  EXPECT_EQ(plan_of({"--trace", path, "-n", "1"})->at(0, 0).requests.size(), 1u);
  ASSERT_TRUE(write_file_atomic(path, "{\"arrival_s\":7}\n"));
  EXPECT_THAT(plan_of({"--trace", path}).error().message, HasSubstr("load.jsonl:1"));
  EXPECT_FALSE(plan_of({"--trace", path + "x"}));
}

TEST(LoadFlags, RefusesWhatContradictsItself) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--users", "4", "--rate", "2"},
           {"--users", "4", "--sweep", "2"},
           {"--trace", "x", "--rate", "2"},
           {"--trace", "x", "--lengths", "chat"},
           {"--trace", "x", "--burstiness", "2"},
           {"--users", "4", "--burstiness", "2"},
           {"--lengths", "chat", "--prompt-tokens", "5", "--output-tokens", "5"},
           {"--sweep", "1,,2"},
           {"--sweep", "0"},
           {"--sweep", "1;2"},
           {"--goodput", "x=1"},
           {"--prompt-tokens", "5:1"}}) {
    const auto plan = plan_of(words);
    ASSERT_FALSE(plan) << words[0];
    EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
    EXPECT_THAT(plan.error().message, HasSubstr("--"));
  }
}

TEST(SchedulingFlags, ReadsPolicies) {
  using plan::ServePolicy;
  SchedulingFlags scheduling;
  const auto policies_of = [&](const std::vector<std::string>& words) {
    Flags flags("test");
    scheduling = {};
    scheduling.declare(flags);
    EXPECT_TRUE(flags.parse(words));
    return scheduling.read_policies(flags);
  };
  EXPECT_EQ(policies_of({"--policies", "static,chunked"}),
            (std::vector<ServePolicy>{ServePolicy::kStatic, ServePolicy::kChunked}));
  EXPECT_THAT(policies_of({"--policies", "orka"}).error().message, HasSubstr("did you mean orca"));
  EXPECT_EQ(
      policies_of({"--policies", "orca,rounds", "--round-prompts", "5", "--round-steps", "7"}),
      (std::vector<ServePolicy>{ServePolicy::kOrca, ServePolicy::kRounds}));
  plan::ServeSchedulerOptions options;
  scheduling.rounds.set(options);
  EXPECT_EQ(options.round_prompts, 5);
  EXPECT_EQ(options.round_steps, 7);
  for (const char* flag : {"--round-prompts", "--round-steps"}) {
    const auto refused = policies_of({"--policies", "orca", flag, "5"});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr(flag));
    EXPECT_THAT(refused.error().message, HasSubstr("--policies rounds"));
  }
  scheduling.kv_tokens = 33;
  EXPECT_EQ(scheduling.kv_block_count(16), 3);
}

}  // namespace
}  // namespace jige::cli

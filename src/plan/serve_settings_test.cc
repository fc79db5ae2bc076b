#include "plan/serve_settings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace jige::plan {
namespace {

TEST(ServeSettings, AreToldAsFarAsThePolicyHasThem) {
  EXPECT_EQ(settings_text({.batch_requests_max = 5, .batch_tokens_max = 99}),
            "chunked, 5 answers at once, 99 tokens an iteration");
  EXPECT_EQ(settings_text({.policy = ServePolicy::kRounds,
                           .batch_requests_max = 5,
                           .round_prompts = 2,
                           .round_steps = 3}),
            "rounds, 5 answers at once, rounds of 2 prompts and 3 steps");
  EXPECT_EQ(settings_text({.policy = ServePolicy::kOrca}), "orca, 64 answers at once");
  EXPECT_EQ(dump_json(settings_json({.batch_requests_max = 7, .batch_tokens_max = 99})),
            R"({"policy":"chunked","max_batch":7,"batch_tokens":99})");
  EXPECT_EQ(dump_json(settings_json({.policy = ServePolicy::kStatic})),
            R"({"policy":"static","max_batch":64})");
}

TEST(ServeSettings, SchedulersHaveThem) {
  const ServeSettings settings{.policy = ServePolicy::kRounds,
                               .batch_requests_max = 3,
                               .batch_tokens_max = 17,
                               .round_prompts = 5,
                               .round_steps = 7};
  ServeSchedulerOptions options;
  apply_settings(settings, options);
  EXPECT_EQ(settings_of(options), settings);
  EXPECT_EQ(settings_of({}), ServeSettings{});
}

}  // namespace
}  // namespace jige::plan

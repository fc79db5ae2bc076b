#include "cli/serve_replanner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "serve/engine_test_support.h"

namespace jige::cli {
namespace {

class ReplannedPlans : public ::testing::Test {
 protected:
  ReplannedPlans() { std::filesystem::create_directory(folder_); }
  ~ReplannedPlans() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const auto path = write_next_plan(folder_, text);
    EXPECT_TRUE(path) << path.error().message;
    return path ? std::filesystem::path(*path).filename().string() : "";
  }

  const std::string folder_ = ::testing::TempDir() + "replanned-" + std::to_string(::getpid());
};

TEST_F(ReplannedPlans, AreNumberedBehindWhatIsThere) {
  EXPECT_EQ(write("one"), "plan-1.json");
  EXPECT_EQ(write("two"), "plan-2.json");
  for (const char* name : {"/plan-9.json", "/plan-11.json.bak", "/plan-x.json", "/12.json"}) {
    std::ofstream(folder_ + name) << "good";
  }
  EXPECT_EQ(write("ten"), "plan-10.json");
  EXPECT_EQ(*read_file(folder_ + "/plan-1.json"), "one");
  EXPECT_EQ(*read_file(folder_ + "/plan-9.json"), "good");
  EXPECT_EQ(*read_file(folder_ + "/plan-10.json"), "ten");
}

TEST_F(ReplannedPlans, AFolderThatIsGoneIsTold) {
  const auto path = write_next_plan(folder_ + "/nowhere", "plan");
  ASSERT_FALSE(path);
  EXPECT_NE(path.error().message.find("nowhere/plan-1.json"), std::string::npos);
}

// An engine with a plan for answers of 3 tokens, one at once, and what plans again for it.
class Replanned {
 public:
  explicit Replanned(sim::ServeBounds bounds = {}, double pause_s = 0) {
    serve::EngineOptions options;
    options.policy = plan::ServePolicy::kStatic;
    options.batch_requests_max = 1;
    options.replan_requests_max = 4;
    options.planned_load = {.prompt_tokens = std::vector<double>(plan::kLengthQuantiles, 5),
                            .answer_tokens = std::vector<double>(plan::kLengthQuantiles, 3)};
    options.drift = {.window = 8, .step = 1};
    sim::ServePlanFile plan;
    plan.settings = {.policy = options.policy, .batch_requests_max = 1};
    plan.bounds = bounds;
    plan.users = 4;
    plan.search = {.policies = {plan::ServePolicy::kChunked, plan::ServePolicy::kStatic},
                   .batch_requests_max = 4,
                   .batch_tokens_max = 64,
                   .step = {.base_s = 0.02, .token_s = 1e-4}};
    engine_ = serve::testing::value_of(
        serve::Engine::create(*loaded_.model, loaded_.tokenizer, std::move(options)));
    replanner_ = std::make_unique<ServeReplanner>(*engine_, std::move(plan),
                                                  ServeReplanOptions{.pause_s = pause_s});
  }

  serve::Engine& engine() { return *engine_; }
  ServeReplanner& replanner() { return *replanner_; }

  // Requests until it has planned.
  plan::ReplanStatus run(int64_t answer_tokens) {
    const StopWatch watch;
    while (replanner_->status().outcome.empty() && watch.seconds() < 20) {
      serve::EngineRequest request;
      request.prompt = {3, 4, 5, 6, 7};
      request.tokens_max = answer_tokens;
      request.ignore_eos = true;
      const auto sink = std::make_shared<serve::testing::KeepingSink>();
      EXPECT_TRUE(engine_->submit(request, sink));
      EXPECT_TRUE(sink->wait());
      EXPECT_EQ(sink->outcome, serve::testing::alone(other_, request));
    }
    return replanner_->status();
  }

 private:
  serve::testing::Loaded loaded_{"llama2", {.kv_block_count = 40, .batch_tokens_max = 64}};
  serve::testing::Loaded other_{"llama2", {.kv_block_count = 40, .batch_tokens_max = 64}};
  std::unique_ptr<serve::Engine> engine_;
  std::unique_ptr<ServeReplanner> replanner_;
};

TEST(ServeReplanning, SwitchesTheEngineToWhatIsBetter) {
  Replanned replanned;
  const plan::ReplanStatus status = replanned.run(20);
  EXPECT_EQ(status.outcome, "switched") << status.text;
  EXPECT_EQ(status.outcomes, (std::array<int64_t, 4>{1, 0, 0, 0}));
  EXPECT_EQ(status.file, "");
  const StopWatch watch;  // behind the last request at the latest
  while (replanned.engine().settings().batch_requests_max != 4 && watch.seconds() < 20) {
    std::this_thread::yield();
  }
  EXPECT_EQ(replanned.engine().settings().batch_requests_max, 4);
  EXPECT_EQ(replanned.engine().status().drift->plans, 2);
  EXPECT_FALSE(replanned.engine().status().drift->drifted);
}

TEST(ServeReplanning, KeepsWhatThereIsWhereNothingKeepsTheBounds) {
  Replanned replanned({.itl_s = 1e-6});
  const plan::ReplanStatus status = replanned.run(20);
  EXPECT_EQ(status.outcome, "infeasible") << status.text;
  EXPECT_EQ(replanned.engine().settings().batch_requests_max, 1);
  EXPECT_TRUE(replanned.engine().status().drift->drifted);
}

TEST(ServeReplanning, StopsWhileItLooksOn) {
  Replanned replanned;
  EXPECT_FALSE(replanned.replanner().status().planning);
  replanned.replanner().stop();
  replanned.replanner().stop();
  EXPECT_EQ(replanned.replanner().status().outcome, "");
}

}  // namespace
}  // namespace jige::cli

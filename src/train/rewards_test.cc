// Who scores answers: rules, programs, and what is refused of programs.

#include "train/rewards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include "base/clock.h"

namespace jige::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RewardsTest : public testing::Test {
 protected:
  void SetUp() override { before_ = signal(SIGPIPE, SIG_IGN); }
  void TearDown() override { signal(SIGPIPE, before_); }

  std::string error_of(const std::string& command, double limit_s = 20) {
    Rewards rewards({.command = command, .line_limit_s = limit_s});
    const std::vector<AnswerToScore> answers = {{&prompt_, "a"}, {&prompt_, "b"}};
    const auto scores = rewards.score(answers, 7);
    EXPECT_FALSE(scores) << command;
    return scores ? "" : scores.error().message;
  }

  const Prompt prompt_{.record = R"({"prompt": "p", "answer": "7", "level": 3, "step": 1})",
                       .answer = "7"};

 private:
  void (*before_)(int) = nullptr;
};

TEST_F(RewardsTest, AreThoseOfTheRule) {
  Rewards rewards({.rule = RewardRule::kNumber});
  EXPECT_EQ(*rewards.score(std::vector<AnswerToScore>{{&prompt_, "7."}, {&prompt_, "8"}}, 1),
            (std::vector<double>{1, 0}));
}

TEST_F(RewardsTest, AreThoseThatAProgramSaysOfTheWholeRecord) {
  // `read -r` keeps backslashes.
  const std::string line = R"({"prompt":"p","answer":"7","level":3,"step":9,"completion":"\"q\""})";
  Rewards rewards({.command = "while read -r x; do [ \"$x\" = '" + line +
                              "' ] && echo '{\"reward\": 3}' || echo 0; done"});
  for (int i = 0; i < 2; ++i) {
    const auto scores = rewards.score(std::vector<AnswerToScore>{{&prompt_, "\"q\""}}, 9);
    ASSERT_TRUE(scores) << scores.error().message;
    EXPECT_EQ(*scores, std::vector<double>{3});
  }
  Rewards plain({.command = "exit 1"});  // is not asked for nothing
  EXPECT_FALSE(plain.score({}, 1)->size());
}

TEST_F(RewardsTest, RefuseWhatIsNoNumber) {
  for (const char* said : {"nonsense", "", "nan", "1e999", "[1]", "{\"reward\": \"1\"}", "true",
                           "{\"score\": 1}", "1 2"}) {
    EXPECT_THAT(
        error_of(std::string("read -r x; echo 0.5; echo '") + said + "'; cat > /dev/null"),
        AllOf(HasSubstr("--reward-command"), HasSubstr("line 2 of 2"), HasSubstr("is no reward")))
        << said;
  }
  EXPECT_EQ(read_reward("-0.25"), -0.25);
  EXPECT_EQ(read_reward("{\"why\": \"x\", \"reward\": 2}"), 2);
}

TEST_F(RewardsTest, AreLeftWhereTheirUserSaysSo) {
  const GoOn leave = []() -> Status { return fail(Code::kCancelled, "left"); };
  const std::vector<AnswerToScore> answers = {{&prompt_, "1"}};
  const StopWatch watch;
  for (const RewardOptions& options :
       {RewardOptions{.rule = RewardRule::kExact}, RewardOptions{.command = "cat >&2; sleep 60"}}) {
    Rewards rewards(options);
    const auto scores = rewards.score(answers, 1, leave);
    ASSERT_FALSE(scores);
    EXPECT_EQ(scores.error().message, "left");
  }
  EXPECT_LT(watch.seconds(), 20);
}

TEST_F(RewardsTest, TellOfProgramsThatEndOrAreSlow) {
  EXPECT_THAT(error_of("read -r x; echo 1; exit 2"),
              AllOf(HasSubstr("--reward-command"), HasSubstr("ended with exit code 2")));
  EXPECT_THAT(error_of("sleep 60", 0.02), HasSubstr("no answer to line 1 of 2"));
}

}  // namespace
}  // namespace jige::train

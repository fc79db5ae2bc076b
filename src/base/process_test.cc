#include "base/process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/clock.h"

namespace jige {
namespace {

TEST(Process, GivesOutputErrorsAndExitCode) {
  const auto outcome = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->exit_code, 3);
  EXPECT_EQ(outcome->out, "out\n");
  EXPECT_EQ(outcome->err, "err\n");
}

TEST(Process, TakesMoreThanAPipeHolds) {
  const auto outcome = run_process({"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->out, std::string(1'000'000, 'x'));
}

TEST(Process, ReadsNothing) {
  const auto outcome = run_process({"cat"}, {.limit_s = 5});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->out, "");
}

TEST(Process, ReadsNothingWhereOurOwnInputIsClosed) {
  const int saved = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  const auto outcome = run_process({"cat"}, {.limit_s = 5});
  dup2(saved, STDIN_FILENO);
  close(saved);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(outcome->exit_code, 0) << outcome->err;
}

TEST(Process, SaysWhichSignalEndedIt) {
  const auto outcome = run_process({"sh", "-c", "kill -9 $$"});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_code, 137);
}

TEST(Process, EndsWhatHangsAndItsChildren) {
  const StopWatch watch;
  const auto outcome = run_process({"sh", "-c", "sleep 60 & sleep 60"}, {.limit_s = 0.2});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::kUnavailable);
  EXPECT_LT(watch.seconds(), 5);
  // One that ends but leaves a child with the pipe open counts as hanging too.
  const auto left = run_process({"sh", "-c", "sleep 60 &"}, {.limit_s = 0.2});
  ASSERT_FALSE(left);
  EXPECT_EQ(left.error().code, Code::kUnavailable);
  EXPECT_LT(watch.seconds(), 5);
}

TEST(Process, RefusesWhatItCannotRunOrHold) {
  EXPECT_EQ(run_process({}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(run_process({"no-such-program-here"}).error().code, Code::kNotFound);
  EXPECT_EQ(run_process({"sh", "-c", "yes"}, {.limit_s = 10, .output_max = 1000}).error().code,
            Code::kExhausted);
  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(run_process({"sleep", "9"}, {.limit_s = 10, .cancel = &cancelled}).error().code,
            Code::kCancelled);
}

}  // namespace
}  // namespace jige

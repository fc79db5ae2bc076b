// A program that answers lines: that it is asked in one piece or line by line, and what becomes of
// one that ends, is slow, or says too much.

#include "base/line_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <cerrno>

#include "base/clock.h"

namespace jige {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LineProcessTest : public testing::Test {
 protected:
  void SetUp() override { before_ = signal(SIGPIPE, SIG_IGN); }
  void TearDown() override { signal(SIGPIPE, before_); }

  static std::string error_of(const std::string& command, double limit_s = 20,
                              std::vector<std::string> lines = {"a", "b", "c"}) {
    auto program = LineProcess::start(command, 0.05);
    EXPECT_TRUE(program);
    const pid_t pid = (*program)->pid();
    const auto answers = (*program)->exchange(lines, limit_s);
    EXPECT_FALSE(answers) << command;
    // Waited for, at once: neither running nor a zombie.
    EXPECT_EQ(kill(pid, 0), -1) << command;
    EXPECT_EQ(errno, ESRCH) << command;
    EXPECT_FALSE((*program)->exchange(lines, limit_s)) << command;
    return answers ? "" : answers.error().message;
  }

 private:
  void (*before_)(int) = nullptr;
};

TEST_F(LineProcessTest, AnswersLineByLineOrWhenItHasReadAll) {
  const std::vector<std::string> lines = {"1", "22", ""};
  for (const char* command :
       {"cat", "while read -r x; do echo \"$x\"; done",
        "read -r a; read -r b; read -r c; printf '%s\\n%s\\n%s\\n' $a $b \"$c\"; cat"}) {
    auto program = LineProcess::start(command);
    ASSERT_TRUE(program);
    const auto answers = (*program)->exchange(lines, 20);
    ASSERT_TRUE(answers) << answers.error().message;
    EXPECT_EQ(*answers, lines) << command;
  }
}

TEST_F(LineProcessTest, TakesMoreThanPipesHold) {
  auto program = LineProcess::start("cat");
  ASSERT_TRUE(program);
  const std::vector<std::string> lines(64, std::string(10'000, 'x'));
  for (int i = 0; i < 2; ++i) {
    const auto answers = (*program)->exchange(lines, 20);
    ASSERT_TRUE(answers) << answers.error().message;
    EXPECT_EQ(*answers, lines);
  }
}

TEST_F(LineProcessTest, TellsOfOneThatEnds) {
  EXPECT_THAT(error_of("read -r x; echo 1; exit 3"),
              HasSubstr("ended with exit code 3 after 1 of 3 answers"));
  EXPECT_THAT(error_of("exit 0"), HasSubstr("ended with exit code 0 after 0 of 3 answers"));
  EXPECT_THAT(error_of("kill -9 $$"), HasSubstr("was ended by signal 9"));
  EXPECT_THAT(error_of("no-such-program-at-all 2>/dev/null"), HasSubstr("exit code 127"));
  EXPECT_THAT(error_of("exec >&-; sleep 60"), HasSubstr("closed its output after 0 of 3"));
  // One that takes no input, and has more coming than a pipe holds.
  EXPECT_THAT(error_of("exec <&-; sleep 0.01; exit 4", 20,
                       std::vector<std::string>(3, std::string(100'000, 'y'))),
              HasSubstr("exit code 4"));
}

TEST_F(LineProcessTest, DoesNotWaitForOneThatIsSlowOrIgnoresItsEnd) {
  const StopWatch watch;
  EXPECT_THAT(error_of("read -r x; echo 1; sleep 60", 0.05),
              AllOf(HasSubstr("no answer to line 2 of 3"), HasSubstr("0.05 s")));
  EXPECT_THAT(error_of("trap '' TERM INT; sleep 60 & wait", 0.05), HasSubstr("line 1 of 3"));
  {
    auto program = LineProcess::start("sleep 60", 0.02);
    ASSERT_TRUE(program);
  }
  EXPECT_LT(watch.seconds(), 30);
}

TEST_F(LineProcessTest, EndsWhenItsUserHasSomethingElseToDo) {
  const StopWatch watch;
  auto program = LineProcess::start("sleep 60", 0.02);
  ASSERT_TRUE(program);
  const std::vector<std::string> lines = {"a"};
  const auto answers = (*program)->exchange(lines, 50, [&]() -> Status {
    if (watch.seconds() < 0.1) return {};
    return fail(Code::kCancelled, "no more");
  });
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().message, "no more");
  EXPECT_EQ(kill((*program)->pid(), 0), -1);
  EXPECT_LT(watch.seconds(), 20);
}

TEST_F(LineProcessTest, RefusesLinesThatNobodyAskedFor) {
  EXPECT_THAT(error_of("read -r x; printf '1\\n2\\n3\\n4 is too many\\n'; sleep 60"),
              AllOf(HasSubstr("more than one line"), HasSubstr("4 is too many")));
  EXPECT_THAT(error_of("read -r x; head -c 200000 /dev/zero | tr '\\0' x; sleep 60"),
              HasSubstr("a line of more than 65536 bytes"));
}

}  // namespace
}  // namespace jige

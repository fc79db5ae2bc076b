#include "cli/chat_input.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "cli/interrupt.h"

namespace jige::cli {
namespace {

// Standard input, for a while, as what a pipe brings.
class PipedInput {
 public:
  explicit PipedInput(const std::string& text) : kept_(dup(STDIN_FILENO)) {
    EXPECT_EQ(pipe(ends_), 0);
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), std::ssize(text));
    dup2(ends_[0], STDIN_FILENO);
  }
  ~PipedInput() {
    end();
    dup2(kept_, STDIN_FILENO);
    close(ends_[0]);
    close(kept_);
  }
  PipedInput(const PipedInput&) = delete;
  PipedInput& operator=(const PipedInput&) = delete;

  void end() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int kept_;
  int ends_[2] = {-1, -1};
};

// Wakes a read that waits, again and again.
class Alarm {
 public:
  Alarm() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often{.it_interval = {0, 10'000}, .it_value = {0, 10'000}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Alarm() {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    signal(SIGALRM, SIG_DFL);
  }
};

TEST(ChatInput, JoinsLinesAndTakesTheLastWithoutItsEnd) {
  PipedInput input("one\\\ntwo\r\n\nlast\\\n");
  input.end();
  ChatInput chat(true);
  EXPECT_EQ(chat.next().value(), "one\ntwo");
  EXPECT_EQ(chat.next().value(), "");
  EXPECT_EQ(chat.next().value(), "last\n");
  EXPECT_EQ(chat.next().value(), std::nullopt);
}

TEST(ChatInput, CtrlCTakesAnUnfinishedMessageWithIt) {
  const InterruptScope interrupts;
  PipedInput input("do not say that\\\n");
  ChatInput chat(true);
  const Alarm alarm;
  raise(SIGINT);
  EXPECT_EQ(chat.next().value(), std::nullopt);
  EXPECT_TRUE(take_interrupt());
}

}  // namespace
}  // namespace jige::cli

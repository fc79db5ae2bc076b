#include "cli/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>

namespace jige::cli {
namespace {

using Handler = void (*)(int);

Handler handler_of(int signal) {
  struct sigaction action {};
  EXPECT_EQ(sigaction(signal, nullptr, &action), 0);
  return action.sa_handler;
}

// As a terminal starts a program, also where the tests were started by nohup.
class InterruptScopeTest : public ::testing::Test {
 protected:
  InterruptScopeTest() { signal(SIGHUP, SIG_DFL); }
  ~InterruptScopeTest() override { signal(SIGHUP, before_); }

 private:
  Handler before_ = handler_of(SIGHUP);
};

TEST_F(InterruptScopeTest, HearsASignalOfEachKind) {
  constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  for (const int signal : kSignals) {
    {
      const InterruptScope scope;
      EXPECT_FALSE(interrupted());
      raise(signal);
      EXPECT_TRUE(interrupted());
      EXPECT_TRUE(take_interrupt());
      EXPECT_FALSE(interrupted());
    }
    EXPECT_EQ(handler_of(signal), SIG_DFL);
  }
}

TEST_F(InterruptScopeTest, ASecondSignalEndsTheProcess) {
  const InterruptScope scope;
  EXPECT_EXIT((raise(SIGINT), raise(SIGTERM)), ::testing::ExitedWithCode(130), "");
  EXPECT_EXIT((raise(SIGHUP), raise(SIGINT)), ::testing::ExitedWithCode(130), "");
}

// The kernel and the shell both send one where a terminal is closed.
TEST_F(InterruptScopeTest, ATerminalThatEndsTwiceEndsOnce) {
  const InterruptScope scope;
  raise(SIGHUP);
  raise(SIGHUP);
  EXPECT_TRUE(interrupted());
}

TEST_F(InterruptScopeTest, WhatNohupStartedGoesOn) {
  signal(SIGHUP, SIG_IGN);
  {
    const InterruptScope scope;
    raise(SIGHUP);
    EXPECT_FALSE(interrupted());
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
}

}  // namespace
}  // namespace jige::cli

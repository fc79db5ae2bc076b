#include "cli/passing_note.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "base/test_terminal.h"

namespace jige::cli {
namespace {

// What `body` writes to standard error where that is `fd`.
template <typename Body>
void with_standard_error(int fd, Body body) {
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  dup2(fd, STDERR_FILENO);
  body();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
}

void talk_as(PassingNote note) {
  note.say("measuring one");
  note.clear();
  note.show();
  note.say("measuring two");
  note.clear();
}

void talk() { talk_as(PassingNote()); }

TEST(PassingNote, StandsInTheLastLineOfATerminalAndGoesUnlessQuiet) {
  const std::optional<std::string> shown = shown_on_terminal({STDERR_FILENO}, 80, [] {
    talk_as(PassingNote(true));
    talk();
  });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  EXPECT_EQ(*shown, "measuring one …\r\x1b[Kmeasuring one …\r\x1b[Kmeasuring two …\r\x1b[K");
}

TEST(PassingNote, IsNowhereElse) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  with_standard_error(pipe_ends[1], talk);
  close(pipe_ends[1]);
  char text[16];
  EXPECT_EQ(read(pipe_ends[0], text, sizeof text), 0);
  close(pipe_ends[0]);
}

}  // namespace
}  // namespace jige::cli

#include "cli/passing_note.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

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
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(end, 0);
  with_standard_error(end, [] {
    talk_as(PassingNote(true));
    talk();
  });
  const std::string wanted =
      "measuring one …\r\x1b[Kmeasuring one …\r\x1b[Kmeasuring two …\r\x1b[K";
  std::string text;
  char part[64];
  // A terminal hands on what it gets in parts, and a little later.
  for (pollfd entry{terminal, POLLIN, 0};
       text.size() < wanted.size() && poll(&entry, 1, 5000) > 0;) {
    const ssize_t came = read(terminal, part, sizeof part);
    if (came <= 0) break;
    text.append(part, static_cast<size_t>(came));
  }
  EXPECT_EQ(text, wanted);
  close(end);
  close(terminal);
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

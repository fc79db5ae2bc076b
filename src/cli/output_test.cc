#include "cli/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/progress.h"

namespace jige::cli {
namespace {

// What body() writes to standard output and standard error while both are one terminal.
template <typename Body>
std::string on_terminal(Body body) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return "no terminal";
  const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  std::fflush(nullptr);
  const int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
  dup2(end, STDOUT_FILENO);
  dup2(end, STDERR_FILENO);
  body();
  std::fflush(nullptr);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const int fd : {out, err, end}) close(fd);
  std::string text;
  char part[4096];
  for (ssize_t came; (came = read(terminal, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(came));
  }
  close(terminal);
  return text;
}

TEST(PrintText, TakesThePlaceOfAProgressBar) {
  const std::string text = on_terminal([] {
    Progress progress("scoring", 4);
    progress.update(1, "1 record");
    print_text("a result\n");
    print_text("another\n");
    progress.update(2, "2 records", true);
  });
  const size_t bar = text.find("left\x1b[K");
  ASSERT_NE(bar, std::string::npos) << text;
  EXPECT_TRUE(text.substr(bar + 7).starts_with("\r\x1b[Ka result\r\nanother\r\n\rscoring")) << text;
}

}  // namespace
}  // namespace jige::cli

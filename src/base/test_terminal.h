// For tests: what a program shows on a terminal.
//
// Threads: one test at a time; the process's streams are turned to a terminal of their own
// meanwhile.
#pragma once

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace jige {

// What body() writes to the streams `fds` while they are one terminal of `columns` columns.
template <typename Body>
std::string shown_on_terminal(const std::vector<int>& fds, unsigned short columns, Body&& body) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return "no terminal";
  const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  winsize size = {24, columns, 0, 0};
  ioctl(other_end, TIOCSWINSZ, &size);
  std::fflush(nullptr);
  std::vector<int> kept;
  for (const int fd : fds) {
    kept.push_back(dup(fd));
    dup2(other_end, fd);
  }
  body();
  std::fflush(nullptr);
  for (size_t i = 0; i < fds.size(); ++i) {
    dup2(kept[i], fds[i]);
    close(kept[i]);
  }
  close(other_end);  // the last: what was written can be read, then comes the end
  std::string text;
  char part[4096];
  for (ssize_t came; (came = read(terminal, part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(came));
  }
  close(terminal);
  return text;
}

}  // namespace jige

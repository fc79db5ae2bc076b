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
#include <optional>
#include <string>
#include <vector>

namespace jige {

// Why a test that needs a terminal is skipped.
inline constexpr char kNoTerminal[] = "no pseudo-terminal can be had here (is /dev/pts mounted?)";

// What body() writes to the streams `fds` while they are one terminal of `columns` columns;
// nothing where no terminal can be had, and body() has not run then.
template <typename Body>
std::optional<std::string> shown_on_terminal(const std::vector<int>& fds, unsigned short columns,
                                             Body&& body) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) return std::nullopt;
  const bool usable = grantpt(terminal) == 0 && unlockpt(terminal) == 0;
  const char* const name = usable ? ptsname(terminal) : nullptr;
  const int other_end = name == nullptr ? -1 : open(name, O_RDWR | O_NOCTTY);
  if (other_end < 0) {
    close(terminal);
    return std::nullopt;
  }
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

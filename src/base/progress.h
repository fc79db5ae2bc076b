// Progress of long work: a bar that redraws itself on a terminal, a line now and then elsewhere.
//
// Writes to standard error, so that a command's result on standard output stays clean. Log lines
// (log.h) take the place of a bar, which is drawn again below them.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace jige {

// `shown_after_s` of commands that are mostly over at once: a wait that needs no explanation.
inline constexpr double kSilentSeconds = 1;

class Progress {
 public:
  // `total` in units of the caller's choice. Quiet draws nothing. Of work that mostly takes no time
  // nothing is drawn either, unless it takes longer than `shown_after_s`.
  Progress(std::string_view title, int64_t total, bool quiet = false, double shown_after_s = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows `done` of total with a note such as "loss 2.31 · 12.4 k tokens/s". Draws at most ten
  // times a second on a terminal and once in five seconds elsewhere; `force` draws in any case.
  void update(int64_t done, std::string_view note, bool force = false);
  // Draws the last state and ends the line; not of short work of which nothing was drawn.
  void finish(std::string_view note);

 private:
  std::string line(int64_t done, std::string_view note, size_t columns) const;

  std::string title_;
  int64_t total_;
  bool quiet_;
  bool terminal_;
  double shown_after_s_;
  double last_drawn_s_ = -1e9;
  StopWatch watch_;
};

// Takes away the bar that stands on the terminal's last line, if one does, so that another line can
// be written. The next update draws it again. Threads: any.
void clear_progress_line();

}  // namespace jige

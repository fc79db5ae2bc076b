#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/bytes.h"
#include "base/printable.h"

namespace jige {
namespace {

constexpr int kBarWidth = 24;

// Whether the terminal's last line is a bar. One terminal, so one bar.
std::atomic<bool> open_line = false;

size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

}  // namespace

Progress::Progress(std::string_view title, int64_t total, bool quiet)
    : title_(printable(title)),
      total_(std::max<int64_t>(total, 1)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!quiet_ && open_line.exchange(false)) std::fputc('\n', stderr);
}

std::string Progress::line(int64_t done, std::string_view note) const {
  const double share =
      std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const double elapsed_s = watch_.seconds();
  const int filled = static_cast<int>(share * kBarWidth);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < filled ? "█" : "░";
  std::string left = "starting";
  if (share >= 1) left = "finishing";
  if (share > 0 && share < 1) {
    left = format_duration(elapsed_s * (1 - share) / share) + " left";
  }
  return fmt::format("{} {} {:3.0f} %  {}  {}", title_, bar, share * 100, printable(note), left);
}

void Progress::update(int64_t done, std::string_view note, bool force) {
  if (quiet_) return;
  const double now_s = watch_.seconds();
  if (!force && now_s - last_drawn_s_ < (terminal_ ? 0.1 : 5.0)) return;
  last_drawn_s_ = now_s;
  if (terminal_) {
    std::fprintf(stderr, "\r%s\x1b[K",
                 cut_to_columns(line(done, note), terminal_columns() - 1).c_str());
    open_line = true;
  } else {
    std::fprintf(stderr, "%s\n", line(done, note).c_str());
  }
  std::fflush(stderr);
}

void Progress::finish(std::string_view note) {
  if (quiet_) return;
  const std::string text =
      fmt::format("{} done in {}  {}", title_, format_duration(watch_.seconds()), printable(note));
  std::fprintf(stderr, terminal_ ? "\r%s\x1b[K\n" : "%s\n", text.c_str());
  std::fflush(stderr);
  open_line = false;
}

void clear_progress_line() {
  if (!open_line.exchange(false)) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace jige

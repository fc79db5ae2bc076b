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

// Cells of a bar. It gives room to what stands behind it, and is left out of narrow terminals
// before its end would be.
constexpr size_t kBarWidth = 24;
constexpr size_t kBarWidthLeast = 8;
constexpr size_t kNarrowColumns = 60;

// Whether the terminal's last line is a bar. One terminal, so one bar.
std::atomic<bool> open_line = false;

size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

}  // namespace

Progress::Progress(std::string_view title, int64_t total, bool quiet, double shown_after_s)
    : title_(printable(title)),
      total_(std::max<int64_t>(total, 1)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      shown_after_s_(shown_after_s) {}

Progress::~Progress() {
  if (!quiet_ && open_line.exchange(false)) std::fputc('\n', stderr);
}

std::string Progress::line(int64_t done, std::string_view note, size_t columns) const {
  const double share =
      std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const double elapsed_s = watch_.seconds();
  std::string left = "starting";
  if (share >= 1) left = "finishing";
  if (share > 0 && share < 1) {
    left = format_duration(elapsed_s * (1 - share) / share) + " left";
  }
  // What is left stands in front of the note, which may be cut.
  const std::string behind = fmt::format("{:3.0f} %  {}  {}", share * 100, left, printable(note));
  const size_t others = column_count(title_) + column_count(behind) + 2;
  const size_t room = columns > others ? columns - others : 0;
  if (room < kBarWidthLeast && columns < kNarrowColumns) {
    return fmt::format("{} {}", title_, behind);
  }
  const size_t width = std::clamp(room, kBarWidthLeast, kBarWidth);
  const auto filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string bar;
  for (size_t i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
  return fmt::format("{} {} {}", title_, bar, behind);
}

void Progress::update(int64_t done, std::string_view note, bool force) {
  if (quiet_) return;
  const double now_s = watch_.seconds();
  if (now_s < shown_after_s_) return;
  if (!force && now_s - last_drawn_s_ < (terminal_ ? 0.1 : 5.0)) return;
  last_drawn_s_ = now_s;
  if (terminal_) {
    const size_t columns = terminal_columns() - 1;
    std::fprintf(stderr, "\r%s\x1b[K", cut_to_columns(line(done, note, columns), columns).c_str());
    open_line = true;
  } else {
    std::fprintf(stderr, "%s\n", line(done, note, std::string::npos).c_str());
  }
  std::fflush(stderr);
}

void Progress::finish(std::string_view note) {
  if (quiet_ || (shown_after_s_ > 0 && last_drawn_s_ < 0)) return;
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

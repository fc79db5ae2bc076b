#include "slurm/demo_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "cluster/trace_fields.h"

namespace jige::slurm {
namespace {

// How often the speed is looked at; no look is shorter than the second.
constexpr int64_t kLook_us = 100'000;
constexpr int64_t kLookMin_us = 1'000;
constexpr double kRateMin = 1e-6, kRateMax = 1e6;
constexpr size_t kSmallFile = 4096;

tl::unexpected<Error> file_error(const std::string& path, std::string_view action) {
  return fail(Code::kIo, "{}: cannot {}: {}", path, action, std::strerror(errno));
}

// One write, so that no reader sees half of it. These files need not outlive the machine.
Status put(const std::string& path, const std::string& text, int flags) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);
  if (fd < 0) return file_error(path, "open");
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int reason = errno;
  ::close(fd);
  errno = reason;
  return whole ? Status() : file_error(path, "write");
}

// The signal that came within the time; 0: none.
int wait_for_signal(const sigset_t& signals, int64_t limit_us) {
  const timespec limit{.tv_sec = limit_us / 1'000'000, .tv_nsec = limit_us % 1'000'000 * 1000};
  return std::max(sigtimedwait(&signals, nullptr, &limit), 0);
}

std::string first_word(const std::string& text) {
  const auto words = cluster::split_blanks(text.substr(0, text.find('\n')));
  return words.empty() ? "" : words.front();
}

}  // namespace

DemoJob::DemoJob(DemoJobOptions options) : options_(std::move(options)) {
  const std::string own = fmt::format("{}/jobs/{}", options_.folder, options_.id);
  log_ = own + ".log";
  marker_ = own + ".marker";
  alive_ = own + ".alive";
  rates_ = fmt::format("{}/rates/{}", options_.state, options_.id);
}

Result<int64_t> DemoJob::saved_work() const {
  const Result<std::string> text = read_file(marker_, kSmallFile);
  if (!text)
    return text.error().code == Code::kNotFound ? Result<int64_t>(0)
                                                : tl::unexpected<Error>(text.error());
  const std::optional<double> done_us = cluster::parse_double(first_word(*text));
  if (!done_us || *done_us < 0 || *done_us > 1e18) {
    return fail(Code::kCorrupt,
                "{}: \"{}\" is no number of microseconds; remove the file to begin "
                "anew",
                marker_, first_word(*text));
  }
  return static_cast<int64_t>(*done_us);
}

Status DemoJob::say_missing_stop() const {
  struct stat info {};
  const Result<std::string> done_us = read_file(alive_, kSmallFile);
  if (!done_us || ::stat(alive_.c_str(), &info) != 0) return {};
  JIGE_TRY(const std::string log, read_file(log_));
  const size_t line = log.rfind('\n', log.size() < 2 ? 0 : log.size() - 2);
  if (log.find(" start ", line == std::string::npos ? 0 : line) == std::string::npos) return {};
  const double at_s =
      static_cast<double>(info.st_mtim.tv_sec) + static_cast<double>(info.st_mtim.tv_nsec) / 1e9;
  return put(log_, fmt::format("{:.6f} stop {}\n", at_s, first_word(*done_us)), O_APPEND);
}

Status DemoJob::say(const std::string& text) const {
  return put(log_, fmt::format("{:.6f} {}\n", unix_now_s(), text), O_APPEND);
}

Status DemoJob::checkpoint(int64_t done_us) const {
  const std::string next = marker_ + ".new";
  JIGE_DO(put(next, fmt::format("{}\n", done_us), O_TRUNC));
  return std::rename(next.c_str(), marker_.c_str()) == 0 ? Status()
                                                         : file_error(marker_, "replace");
}

double DemoJob::rate() const {
  const Result<std::string> text = read_file(rates_, kSmallFile);
  const std::optional<double> rate = text ? cluster::parse_double(first_word(*text)) : std::nullopt;
  return rate ? std::clamp(*rate, kRateMin, kRateMax) : 1;
}

Status DemoJob::run() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  JIGE_DO(say_missing_stop());
  JIGE_TRY(int64_t done_us, saved_work());
  int64_t saved_us = done_us;
  JIGE_DO(say(
      fmt::format("start {} {} {} {}", options_.nodes, options_.gpus, options_.restarts, done_us)));
  const RealClock clock;
  int64_t last_ns = clock.now_ns();
  while (done_us < options_.total_us) {
    const double speed = rate();
    const double left_us = static_cast<double>(options_.total_us - done_us) / speed;
    const double pause_us =
        std::clamp(left_us, static_cast<double>(kLookMin_us), static_cast<double>(kLook_us));
    const int signal = wait_for_signal(signals, static_cast<int64_t>(pause_us));
    const int64_t now_ns = clock.now_ns();
    done_us += static_cast<int64_t>(static_cast<double>(now_ns - last_ns) / 1000 * speed);
    last_ns = now_ns;
    if (signal == SIGTERM) return say(fmt::format("stop {}", done_us));
    JIGE_DO(put(alive_, fmt::format("{:020}\n", done_us), 0));
    if (signal == SIGUSR1 || done_us - saved_us > options_.checkpoint_every_us) {
      JIGE_DO(checkpoint(done_us));
      saved_us = done_us;
    }
  }
  return say(fmt::format("end {}", done_us));
}

}  // namespace jige::slurm

#include "base/line_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"

namespace jige {
namespace {

constexpr int kWaitMilliseconds = 2;
constexpr int kPollMillisecondsMax = 50;  // between questions whether to go on
constexpr size_t kTakeBytes = 65536;
constexpr size_t kShownColumns = 60;

struct Pipes {
  std::array<int, 2> in = {-1, -1}, out = {-1, -1};  // the program's
  ~Pipes() {
    for (const int fd : {in[0], in[1], out[0], out[1]}) {
      if (fd >= 0) close(fd);
    }
  }
  bool open() {
    return pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(out.data(), O_CLOEXEC) == 0 &&
           fcntl(in[1], F_SETFL, O_NONBLOCK) == 0 && fcntl(out[0], F_SETFL, O_NONBLOCK) == 0;
  }
};

// In the child; only calls that are safe behind fork().
[[noreturn]] void become_shell(const char* command, const Pipes& pipes, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) syscall(SYS_exit_group, 1);
  dup2(pipes.in[0], STDIN_FILENO);
  dup2(pipes.out[1], STDOUT_FILENO);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  execl("/bin/sh", "sh", "-c", command, nullptr);
  syscall(SYS_exit_group, 127);
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<LineProcess>> LineProcess::start(const std::string& command,
                                                        double end_seconds) {
  Pipes pipes;
  if (!pipes.open()) return fail(Code::kIo, "'{}': no pipe: {}", command, std::strerror(errno));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return fail(Code::kIo, "'{}': cannot be started: {}", command, std::strerror(errno));
  }
  if (pid == 0) become_shell(command.c_str(), pipes, parent);
  setpgid(pid, pid);
  return std::unique_ptr<LineProcess>(new LineProcess(
      command, end_seconds, pid, std::exchange(pipes.in[1], -1), std::exchange(pipes.out[0], -1)));
}

LineProcess::~LineProcess() {
  close_input();
  if (!wait_end()) kill_group();
  close(from_fd_);
}

void LineProcess::close_input() {
  if (to_fd_ >= 0) close(to_fd_);
  to_fd_ = -1;
}

void LineProcess::kill_group() {
  close_input();
  if (gone_) return;
  if (kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);
  while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  gone_ = true;
}

bool LineProcess::wait_end() {
  const StopWatch watch;
  while (!gone_) {
    gone_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    if (gone_ || watch.seconds() > end_seconds_) break;
    poll(nullptr, 0, kWaitMilliseconds);
  }
  // Children that it left go with it.
  if (gone_) kill(-pid_, SIGKILL);
  return gone_;
}

tl::unexpected<Error> LineProcess::ended(size_t answered, size_t asked) {
  if (!wait_end()) {
    return fail(Code::kUnavailable, "'{}': closed its output after {} of {} answers", command_,
                answered, asked);
  }
  const std::string how = WIFSIGNALED(status_)
                              ? fmt::format("was ended by signal {}", WTERMSIG(status_))
                              : fmt::format("ended with exit code {}", WEXITSTATUS(status_));
  return fail(Code::kUnavailable, "'{}': {} after {} of {} answers", command_, how, answered,
              asked);
}

Result<bool> LineProcess::take(std::vector<std::string>& answers, size_t wanted) {
  std::array<char, kTakeBytes> buffer;
  const ssize_t size = read(from_fd_, buffer.data(), buffer.size());
  if (size == 0) return false;
  if (size < 0) return errno == EAGAIN || errno == EINTR;
  pending_.append(buffer.data(), static_cast<size_t>(size));
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (answers.size() == wanted) {
      return fail(Code::kCorrupt, "'{}': says more than one line for each that it gets: \"{}\"",
                  command_, cut_to_columns(printable(pending_.substr(begin)), kShownColumns));
    }
    answers.push_back(pending_.substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  if (pending_.size() <= kAnswerLineBytesMax) return true;
  return fail(Code::kCorrupt, "'{}': says a line of more than {} bytes", command_,
              kAnswerLineBytesMax);
}

Result<std::vector<std::string>> LineProcess::try_exchange(std::span<const std::string> lines,
                                                           double line_limit_s, const GoOn& go_on) {
  std::vector<std::string> answers;
  // What came since the last time was not asked for.
  JIGE_TRY(const bool open, take(answers, 0));
  if (!open || to_fd_ < 0) return ended(0, lines.size());
  std::string unsent;
  for (const std::string& line : lines) unsent += line + "\n";
  size_t sent = 0;
  StopWatch watch;  // since the last answer
  while (answers.size() < lines.size()) {
    JIGE_DO(may_go_on(go_on));
    const bool sends = sent < unsent.size();
    std::array<pollfd, 2> ends = {pollfd{from_fd_, POLLIN, 0},
                                  pollfd{sends ? to_fd_ : -1, POLLOUT, 0}};
    const double left_s = line_limit_s - watch.seconds();
    if (left_s <= 0) {
      return fail(Code::kUnavailable, "'{}': no answer to line {} of {} within {:g} s", command_,
                  answers.size() + 1, lines.size(), line_limit_s);
    }
    poll(ends.data(), ends.size(),
         1 + static_cast<int>(std::min(1000 * left_s, double{kPollMillisecondsMax})));
    if (ends[0].revents != 0) {
      const size_t before = answers.size();
      JIGE_TRY(const bool more, take(answers, lines.size()));
      if (answers.size() > before) watch = StopWatch();
      if (!more) return ended(answers.size(), lines.size());
    }
    if (!sends || ends[1].revents == 0) continue;
    const ssize_t size = write(to_fd_, unsent.data() + sent, unsent.size() - sent);
    if (size > 0) sent += static_cast<size_t>(size);
    // It closed its input: what it still says decides.
    if (size < 0 && errno != EAGAIN && errno != EINTR) sent = unsent.size();
  }
  return answers;
}

Result<std::vector<std::string>> LineProcess::exchange(std::span<const std::string> lines,
                                                       double line_limit_s, const GoOn& go_on) {
  auto answers = try_exchange(lines, line_limit_s, go_on);
  if (!answers) kill_group();
  return answers;
}

}  // namespace jige

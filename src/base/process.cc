#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace jige {
namespace {

constexpr int kLookMilliseconds = 50;
constexpr int kNotFoundExit = 127;
constexpr size_t kReadBytes = 65536;

struct Pipe {
  int read_fd = -1, write_fd = -1;
  ~Pipe() {
    close_read();
    close_write();
  }
  bool open() {
    std::array<int, 2> fds{};
    if (pipe2(fds.data(), O_CLOEXEC) != 0) return false;
    read_fd = fds[0];
    write_fd = fds[1];
    return true;
  }
  void close_read() {
    if (read_fd >= 0) close(read_fd);
    read_fd = -1;
  }
  void close_write() {
    if (write_fd >= 0) close(write_fd);
    write_fd = -1;
  }
};

// In the child; only calls that are safe behind fork().
[[noreturn]] void become(char* const* argv, int null_fd, int out_fd, int err_fd) {
  setpgid(0, 0);
  // Where our own input was closed, it is in place already, but would close with us.
  if (null_fd == STDIN_FILENO) fcntl(null_fd, F_SETFD, 0);
  dup2(null_fd, STDIN_FILENO);
  dup2(out_fd, STDOUT_FILENO);
  dup2(err_fd, STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  execvp(argv[0], argv);
  // Under the thread sanitizer _exit() writes what our streams have buffered, as the program's.
  syscall(SYS_exit_group, kNotFoundExit);
  _exit(kNotFoundExit);
}

// A started program: ends it when it is dropped before its end was seen.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  ~Child() {
    if (ended_) return;
    end_group();
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  int exit_code() const {
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  void end_group() {
    if (kill(-pid_, SIGKILL) != 0) kill(pid_, SIGKILL);
  }

  pid_t pid_;
  int status_ = 0;
  bool ended_ = false;
};

// Takes what is there; false at the end of the stream.
bool drain(int fd, std::string& text) {
  std::array<char, kReadBytes> buffer;
  const ssize_t size = read(fd, buffer.data(), buffer.size());
  if (size > 0) text.append(buffer.data(), static_cast<size_t>(size));
  return size > 0 || (size < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

Result<ProcessOutcome> run_process(const std::vector<std::string>& words,
                                   const ProcessOptions& options) {
  if (words.empty()) return fail(Code::kInvalidArgument, "no program to run");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  Pipe out, err, null;
  null.read_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null.read_fd < 0 || !out.open() || !err.open()) {
    return fail(Code::kIo, "{}: no pipe: {}", words[0], std::strerror(errno));
  }
  const StopWatch watch;
  const pid_t pid = fork();
  if (pid < 0) return fail(Code::kIo, "{}: cannot be started: {}", words[0], std::strerror(errno));
  if (pid == 0) become(argv.data(), null.read_fd, out.write_fd, err.write_fd);
  Child child(pid);
  setpgid(pid, pid);
  out.close_write();
  err.close_write();
  ProcessOutcome outcome;
  std::array<pollfd, 2> ends = {pollfd{out.read_fd, POLLIN, 0}, pollfd{err.read_fd, POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0 || !child.ended()) {
    const int ready =
        poll(ends.data(), ends.size(), ends[0].fd < 0 && ends[1].fd < 0 ? 1 : kLookMilliseconds);
    if (ready > 0) {
      if (ends[0].revents != 0 && !drain(ends[0].fd, outcome.out)) ends[0].fd = -1;
      if (ends[1].revents != 0 && !drain(ends[1].fd, outcome.err)) ends[1].fd = -1;
    }
    if (watch.seconds() > options.limit_s) {
      return fail(Code::kUnavailable, "{}: no end within {:g} s", words[0], options.limit_s);
    }
    if (options.cancel && options.cancel->load()) return fail(Code::kCancelled, "{}", words[0]);
    if (outcome.out.size() + outcome.err.size() > options.output_max) {
      return fail(Code::kExhausted, "{}: says more than {} bytes", words[0], options.output_max);
    }
  }
  outcome.exit_code = child.exit_code();
  if (outcome.exit_code == kNotFoundExit && outcome.out.empty() && outcome.err.empty()) {
    return fail(Code::kNotFound, "{}: not found on PATH", words[0]);
  }
  return outcome;
}

}  // namespace jige

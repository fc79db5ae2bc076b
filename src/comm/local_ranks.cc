#include "comm/local_ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/file.h"

namespace jige::comm {

Result<LocalRanks> LocalRanks::start(int count, const std::function<int(int rank)>& body) {
  LocalRanks ranks;
  // Where this process was started with children ignored, the system would keep no exit codes.
  struct sigaction children = {};
  if (sigaction(SIGCHLD, nullptr, &children) == 0 && children.sa_handler == SIG_IGN) {
    std::signal(SIGCHLD, SIG_DFL);
  }
  std::fflush(nullptr);  // or every process would write what is buffered
  const pid_t parent = getpid();
  for (int r = 0; r < count; ++r) {
    const pid_t pid = fork();
    if (pid < 0) {
      return fail(Code::kExhausted, "rank {} cannot be started: {}", r, std::strerror(errno));
    }
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const int code = body(r);
      std::fflush(nullptr);
      _exit(code);
    }
    ranks.pids_.push_back(pid);
    ranks.codes_.emplace_back();
  }
  return ranks;
}

LocalRanks::LocalRanks(LocalRanks&& other) noexcept
    : pids_(std::exchange(other.pids_, {})), codes_(std::exchange(other.codes_, {})) {}

LocalRanks::~LocalRanks() {
  for (const pid_t pid : pids_) {
    if (pid > 0) kill(pid, SIGKILL);
  }
  wait();
}

std::vector<int> LocalRanks::wait() {
  std::vector<int> codes;
  for (size_t r = 0; r < pids_.size(); ++r) {
    collect(r, 0);
    codes.push_back(codes_[r].value_or(0));
  }
  return codes;
}

void LocalRanks::look() {
  for (size_t r = 0; r < pids_.size(); ++r) collect(r, WNOHANG);
}

void LocalRanks::collect(size_t rank, int options) {
  if (pids_[rank] <= 0) return;
  int state = 0;
  pid_t ended = -1;
  do {
    ended = waitpid(pids_[rank], &state, options);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return;
  pids_[rank] = -1;
  codes_[rank] = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

bool LocalRanks::stands_still(int rank) const {
  if (pid(rank) <= 0) return false;
  // "PID (NAME) STATE …": a name may hold anything, parentheses too.
  const Result<std::string> text = read_file(fmt::format("/proc/{}/stat", pid(rank)));
  if (!text) return false;
  const size_t name_end = text->rfind(") ");
  return name_end != std::string::npos && text->compare(name_end + 2, 2, "T ") == 0;
}

void LocalRanks::send_signal(int number) const {
  for (const pid_t pid : pids_) {
    if (pid > 0) kill(pid, number);
  }
}

}  // namespace jige::comm

#include "comm/local_ranks.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

namespace jige::comm {

Result<LocalRanks> LocalRanks::start(int count, const std::function<int(int rank)>& body) {
  LocalRanks ranks;
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
  }
  return ranks;
}

LocalRanks::LocalRanks(LocalRanks&& other) noexcept : pids_(std::exchange(other.pids_, {})) {}

LocalRanks::~LocalRanks() {
  for (const pid_t pid : pids_) {
    if (pid > 0) kill(pid, SIGKILL);
  }
  wait();
}

std::vector<int> LocalRanks::wait() {
  std::vector<int> codes;
  for (pid_t& pid : pids_) {
    int state = 0;
    while (pid > 0 && waitpid(pid, &state, 0) < 0 && errno == EINTR) {
    }
    pid = -1;
    codes.push_back(WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state));
  }
  return codes;
}

}  // namespace jige::comm

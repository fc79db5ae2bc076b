// Local ranks: processes of this machine, started by one of them.
//
// Threads: start() in a process of one thread, since it forks.
#pragma once

#include <sys/types.h>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::comm {

class LocalRanks {
 public:
  // Forks `count` processes; each runs body(rank) and ends with its exit code. They die with this
  // process. Where it ignores children (SIGCHLD), it does so no more.
  static Result<LocalRanks> start(int count, const std::function<int(int rank)>& body);
  LocalRanks(LocalRanks&& other) noexcept;
  LocalRanks& operator=(LocalRanks&&) = delete;
  // Kills what still runs.
  ~LocalRanks();

  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  // Waits for all; their exit codes, 128 + n for one that signal n ended.
  std::vector<int> wait();
  // Collects those that have ended, without waiting.
  void look();
  // Of a rank that has ended, else nothing.
  std::optional<int> exit_code(int rank) const { return codes_[static_cast<size_t>(rank)]; }
  // Whether it was stopped by a signal, and not continued.
  bool stands_still(int rank) const;
  // To all that still run.
  void send_signal(int number) const;

 private:
  LocalRanks() = default;
  void collect(size_t rank, int options);
  std::vector<pid_t> pids_;  // -1 once it has ended
  std::vector<std::optional<int>> codes_;
};

}  // namespace jige::comm

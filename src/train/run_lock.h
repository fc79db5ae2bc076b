// One run per output folder: an advisory lock that the kernel drops when the process ends, however
// it ends. A folder that was made for a run which was refused, and holds nothing, goes with it.
//
// Threads: one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::train {

class RunLock {
 public:
  // Makes the folder and takes FOLDER/.lock. Fails with kUnavailable when another process holds it,
  // or as make_folders does. Tests let others come between opening the file and locking it.
  static Result<RunLock> take(const std::string& folder,
                              const std::function<void()>& before_lock = {});
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  // Removes the folders that take() has made, as far as they hold nothing but the lock.
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  void remove_made() const;

  int fd_ = -1;
  std::vector<std::string> made_;  // the innermost first
};

}  // namespace jige::train

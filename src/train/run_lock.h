// One run per output folder: an advisory lock that the kernel drops when the process ends, however
// it ends.
//
// Threads: one thread at a time.
#pragma once

#include <string>

#include "base/result.h"

namespace jige::train {

class RunLock {
 public:
  // Takes FOLDER/.lock. Fails with kUnavailable when another process holds it, kIo.
  static Result<RunLock> take(const std::string& folder);
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;
  ~RunLock();

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace jige::train

#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace jige::train {

RunLock::RunLock(RunLock&& other) noexcept { *this = std::move(other); }

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<RunLock> RunLock::take(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return fail(Code::kIo, "{}: cannot open: {}", path, std::strerror(errno));
  RunLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    // File systems without locks let everybody in.
    if (errno != EWOULDBLOCK) return lock;
    return fail(Code::kUnavailable,
                "{}: another run is writing into this folder; wait for it or choose another folder",
                folder);
  }
  return lock;
}

}  // namespace jige::train

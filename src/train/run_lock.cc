#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/file.h"

namespace jige::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".lock";

// As often a folder may vanish while it is made: who had the lock has removed it.
constexpr int kVanishesMax = 1000;

// Folders on the way to `folder` that are not there, the innermost first.
std::vector<std::string> missing_folders(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> missing;
  fs::path at = fs::absolute(folder, error).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  while (!error && !fs::exists(at, error) && at != at.parent_path()) {
    missing.push_back(at.string());
    at = at.parent_path();
  }
  return missing;
}

bool holds_files(const std::string& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (!fs::is_directory(it->symlink_status(error)) && it->path().filename() != kLockName) {
      return true;
    }
  }
  return static_cast<bool>(error);
}

// False where who had the lock has removed the file since it was opened.
bool is_in_place(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 && file.st_nlink > 0;
}

}  // namespace

RunLock::RunLock(RunLock&& other) noexcept { *this = std::move(other); }

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(made_, other.made_);
  return *this;
}

RunLock::~RunLock() {
  if (!made_.empty() && !holds_files(made_[0])) remove_made();
  if (fd_ >= 0) ::close(fd_);
}

// The lock's file last: behind it the folder is another's who makes one.
void RunLock::remove_made() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(made_[0], error)) {
    if (entry.path().filename() != kLockName) fs::remove_all(entry.path(), error);
  }
  fs::remove(fs::path(made_[0]) / kLockName, error);
  for (size_t i = 0; i < made_.size() && !error; ++i) fs::remove(made_[i], error);
}

Result<RunLock> RunLock::take(const std::string& folder, const std::function<void()>& before_lock) {
  const std::string path = folder + "/" + kLockName;
  for (int vanished = 0;; ++vanished) {
    const bool again = vanished < kVanishesMax;
    std::vector<std::string> missing = missing_folders(folder);
    if (Status made = make_folders(folder); !made) {
      if (made.error().code == Code::kNotFound && again) continue;
      return tl::unexpected(std::move(made.error()));
    }
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT && again) continue;
    if (fd < 0) return fail(Code::kIo, "{}: cannot open: {}", path, std::strerror(errno));
    RunLock lock(fd);
    if (before_lock) before_lock();
    // File systems without locks let everybody in.
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return fail(
          Code::kUnavailable,
          "{}: another run is writing into this folder; wait for it or choose another folder",
          folder);
    }
    if (!is_in_place(fd) && again) continue;
    lock.made_ = std::move(missing);
    return lock;
  }
}

}  // namespace jige::train

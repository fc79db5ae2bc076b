#include "train/step_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace jige::train {
namespace {

constexpr int64_t kRecordBytesMax = int64_t{1} << 20;

tl::unexpected<Error> system_error(const std::string& path, std::string_view action) {
  const int reason = errno;
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
  return fail(full ? Code::kExhausted : Code::kIo, "{}: cannot {}: {}", path, action,
              std::strerror(reason));
}

}  // namespace

StepLog::StepLog(StepLog&& other) noexcept { *this = std::move(other); }

StepLog& StepLog::operator=(StepLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

StepLog::~StepLog() {
  if (fd_ >= 0) ::close(fd_);
}

Result<StepLog> StepLog::open(const std::string& path, int64_t keep_bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return system_error(path, "open");
  StepLog log(path, fd, 0);
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error(path, "examine");
  log.size_ = std::clamp<int64_t>(keep_bytes, 0, info.st_size);
  if (S_ISREG(info.st_mode) && ::ftruncate(fd, log.size_) != 0) return system_error(path, "cut");
  if (S_ISREG(info.st_mode) && ::lseek(fd, log.size_, SEEK_SET) < 0) {
    return system_error(path, "position");
  }
  return log;
}

Status StepLog::write(const Json& record) {
  const std::string line = dump_json(record) + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(fd_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(path_, "write");
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<int64_t>(line.size());
  return {};
}

Status StepLog::sync() {
  // A pipe or a terminal cannot be synchronised, and need not be.
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) return system_error(path_, "sync");
  return {};
}

Json last_record(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  file.seekg(std::max<int64_t>(file.tellg() - kRecordBytesMax, 0));
  std::string line;
  std::string last;
  while (std::getline(file, line)) last = line;
  auto record = parse_json(last, path);
  return record ? std::move(*record) : Json();
}

}  // namespace jige::train

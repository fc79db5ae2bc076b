#include "base/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/file.h"

namespace jige {
namespace {

std::string older(const std::string& path) { return path + ".1"; }

}  // namespace

Result<LogFile> LogFile::open(const std::string& path, int64_t bytes_max) {
  LogFile file(path, bytes_max);
  JIGE_DO(file.open_file());
  return file;
}

LogFile::LogFile(LogFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_max_(other.bytes_max_),
      fd_(std::exchange(other.fd_, -1)),
      bytes_(other.bytes_),
      plain_(other.plain_),
      cut_short_(other.cut_short_) {}

LogFile::~LogFile() {
  if (fd_ >= 0) close(fd_);
}

Status LogFile::open_file() {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) {
    return fail(Code::kIo, "{}: {}", path_, std::strerror(errno));
  }
  bytes_ = info.st_size;
  plain_ = S_ISREG(info.st_mode);
  char last = '\n';
  cut_short_ = bytes_ > 0 && pread(fd_, &last, 1, bytes_ - 1) == 1 && last != '\n';
  return {};
}

Status LogFile::begin_anew() {
  if (std::rename(path_.c_str(), older(path_).c_str()) != 0 && errno != ENOENT) {
    return fail(Code::kIo, "{}: {}", older(path_), std::strerror(errno));
  }
  close(std::exchange(fd_, -1));
  return open_file();
}

Status LogFile::append(std::string_view line) {
  if (fd_ < 0) JIGE_DO(open_file());
  // Behind what a full disk or a crash cut short, a line of its own.
  std::string text = cut_short_ ? "\n" : "";
  text += line;
  text += '\n';
  const bool full = plain_ && bytes_ > 0 && bytes_ + std::ssize(text) > bytes_max_;
  if (full) JIGE_DO(begin_anew());
  const ssize_t count = ::write(fd_, text.data(), text.size());
  if (count > 0) bytes_ += count;
  if (count > 0 || !cut_short_) cut_short_ = count > 0 && count < std::ssize(text);
  if (count != std::ssize(text)) {
    return fail(Code::kIo, "{}: {}", path_,
                count < 0 ? std::strerror(errno) : "no room for a whole line");
  }
  return {};
}

Result<std::string> read_log(const std::string& path) {
  std::string all;
  Result<std::string> before = read_file(older(path));
  if (before) {
    all = std::move(*before);
  } else if (before.error().code != Code::kNotFound) {
    return before;
  }
  Result<std::string> now = read_file(path);
  if (!now && (now.error().code != Code::kNotFound || all.empty())) return now;
  return now ? all + *now : all;
}

}  // namespace jige

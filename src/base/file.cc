#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/clock.h"
#include "base/rng.h"

namespace jige {
namespace {

tl::unexpected<Error> system_error(const std::string& path, std::string_view action) {
  return file_error(path, action, errno);
}

tl::unexpected<Error> is_a_folder(const std::string& path) {
  return fail(Code::kInvalidArgument, "{}: is a folder; name a file", path);
}

tl::unexpected<Error> no_folder_for(const std::string& path) {
  return fail(Code::kNotFound, "{}: there is no folder {} to write it to; make it first", path,
              std::filesystem::path(path).parent_path().string());
}

Status write_all(int fd, const char* data, size_t size, const std::string& path) {
  while (size > 0) {
    const ssize_t written = ::write(fd, data, size);
    if (written < 0) {
      if (errno == EINTR) continue;
      return system_error(path, "write");
    }
    data += written;
    size -= static_cast<size_t>(written);
  }
  return {};
}

std::string parent_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The descriptor of this process that a path names, or -1.
int descriptor_named(std::string_view path) {
  if (path == "/dev/stdin") return STDIN_FILENO;
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int fd = -1;
    const char* const end = path.data() + path.size();
    if (path.starts_with(folder) &&
        std::from_chars(path.data() + folder.size(), end, fd).ptr == end) {
      return fd;
    }
  }
  return -1;
}

// Whether a path such as /dev/stdout or /dev/fd/3 leads to what is open already: a file that the
// caller's shell writes to as well, and no name to be replaced.
bool names_open_file(const std::string& path) {
  struct stat info {};
  return descriptor_named(path) >= 0 ||
         (path.starts_with("/proc/") && ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode));
}

// Opens what is written in place. A descriptor of our own is not opened anew: then it and whoever
// else writes to it would each have a place of their own in the file, and a socket has no name.
int open_in_place(const std::string& path) {
  const int own = descriptor_named(path);
  if (own >= 0) return ::fcntl(own, F_DUPFD_CLOEXEC, 0);
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
}

constexpr int kNameAttempts = 1000;

// Six letters and digits that differ from call to call, between processes and between machines.
std::string temporary_suffix() {
  static std::atomic<uint64_t> counter{0};
  const auto now_ns = static_cast<uint64_t>(RealClock().now_ns());
  uint64_t key = derive_key(now_ns, "temporary file", counter.fetch_add(1)) +
                 static_cast<uint64_t>(::getpid());
  std::string suffix;
  for (int i = 0; i < 6; ++i, key /= 36) {
    suffix += "0123456789abcdefghijklmnopqrstuvwxyz"[key % 36];
  }
  return suffix;
}

// Reads an open file to its end. A pipe or a file that grows has no size to trust, so the limit is
// checked as it comes.
Result<std::string> read_all(int fd, const struct stat& info, const std::string& path,
                             size_t size_max) {
  const auto too_large = [&] {
    return fail(Code::kExhausted, "{}: is larger than the limit of {} bytes", path, size_max);
  };
  try {
    std::string content;
    if (S_ISREG(info.st_mode)) {
      if (static_cast<uint64_t>(info.st_size) > size_max) return too_large();
      content.reserve(static_cast<size_t>(info.st_size));
    }
    char buffer[1 << 16];
    for (;;) {
      const ssize_t got = ::read(fd, buffer, sizeof buffer);
      if (got < 0) return system_error(path, "read");
      if (got == 0) return content;
      if (static_cast<size_t>(got) > size_max - content.size()) return too_large();
      content.append(buffer, static_cast<size_t>(got));
    }
  } catch (const std::bad_alloc&) {
    return fail(Code::kExhausted, "{}: no memory to read it", path);
  }
}

}  // namespace

tl::unexpected<Error> file_error(const std::string& path, std::string_view action, int reason) {
  if (reason == EINTR) return fail(Code::kCancelled, "{}: waiting to {} it", path, action);
  Code code = Code::kIo;
  if (reason == ENOENT || reason == ENOTDIR) code = Code::kNotFound;
  if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG || reason == ENOMEM) {
    code = Code::kExhausted;
  }
  return fail(code, "{}: cannot {}: {}", path, action, std::strerror(reason));
}

Result<std::string> read_file(const std::string& path, size_t size_max) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error(path, "open");
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    auto error = S_ISDIR(info.st_mode) ? is_a_folder(path) : system_error(path, "read");
    ::close(fd);
    return error;
  }
  auto content = read_all(fd, info, path, size_max);
  ::close(fd);
  return content;
}

Status write_file_atomic(const std::string& path, std::string_view content) {
  JIGE_TRY(AtomicFile file, AtomicFile::create(path));
  JIGE_DO(file.write(content.data(), content.size()));
  return file.commit();
}

Status make_folders(const std::string& path) {
  std::error_code error;
  if (const auto status = std::filesystem::status(path, error);
      std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    return fail(Code::kInvalidArgument, "{}: is a file; name a folder", path);
  }
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  errno = error.value();
  return system_error(path, "create folder");
}

Status check_folders(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  bool there = true;
  while (!fs::exists(at, error) && at != at.parent_path()) {
    at = at.parent_path();
    there = false;
  }
  if (!fs::is_directory(at, error)) {
    if (there) return fail(Code::kInvalidArgument, "{}: is a file; name a folder", path);
    errno = ENOTDIR;
    return system_error(path, "create folder");
  }
  if (::access(at.c_str(), W_OK | X_OK) == 0) return {};
  return system_error(path, there ? "write into folder" : "create folder");
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  if (path == "-") {
    return fail(Code::kInvalidArgument,
                "-: name a file; /dev/stdout is standard output, ./- a file of that name");
  }
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists) {
    if (S_ISDIR(info.st_mode)) return is_a_folder(path);
    if (!S_ISREG(info.st_mode) || names_open_file(path)) {
      const int fd = open_in_place(path);
      if (fd < 0) return system_error(path, "open");
      return AtomicFile(path, "", fd);
    }
  }
  // Not mkstemp: its files are private, and the umask, which says how open they should be, cannot
  // be read without changing it for other threads.
  for (int attempt = 0;; ++attempt) {
    std::string temporary = path + "." + temporary_suffix();
    const int fd = ::open(temporary.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd >= 0) {
      // Where the file system has no permissions, there are none to keep.
      if (exists) (void)::fchmod(fd, info.st_mode & 0777);
      return AtomicFile(path, std::move(temporary), fd);
    }
    if (errno == ENOENT && path.find('/') != std::string::npos) return no_folder_for(path);
    if (errno != EEXIST || attempt == kNameAttempts) return system_error(path, "create");
  }
}

Status AtomicFile::write(const void* data, size_t size) {
  return write_all(fd_, static_cast<const char*>(data), size, path_);
}

Status AtomicFile::write_at(uint64_t offset, const void* data, size_t size) {
  const char* cursor = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::pwrite(fd_, cursor, size, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return system_error(path_, "write");
    }
    cursor += written;
    offset += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
  return {};
}

Status AtomicFile::sync() {
  // Pipes and devices have nothing that could be synced.
  if (::fsync(fd_) != 0 && !temporary_.empty()) return system_error(path_, "write to disk");
  return {};
}

Status AtomicFile::commit() {
  JIGE_DO(sync());
  if (temporary_.empty()) {
    ::close(fd_);
    fd_ = -1;
    return {};
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_error(path_, "put in place");
  ::close(fd_);
  fd_ = -1;
  const int folder = ::open(parent_folder(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  return {};
}

MappedFile::MappedFile(std::string path, const std::byte* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe, which cannot be mapped, is not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error(path, "open");
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    if (S_ISDIR(info.st_mode)) return is_a_folder(path);
    return fail(Code::kIo, "{}: is not a regular file", path);
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    ::close(fd);
    return MappedFile(path, nullptr, 0);
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED) return system_error(path, "map");
  return MappedFile(path, static_cast<const std::byte*>(data), size);
}

}  // namespace jige

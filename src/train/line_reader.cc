#include "train/line_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "text/unicode.h"

namespace jige::train {
namespace {

constexpr size_t kReadBytes = size_t{1} << 17;

}  // namespace

LineReader::LineReader(std::string path, int fd, size_t line_bytes_max)
    : path_(std::move(path)), fd_(fd), line_bytes_max_(line_bytes_max) {}

LineReader::LineReader(LineReader&& other) noexcept { *this = std::move(other); }

LineReader& LineReader::operator=(LineReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(line_bytes_max_, other.line_bytes_max_);
  std::swap(buffer_, other.buffer_);
  std::swap(begin_, other.begin_);
  std::swap(scanned_, other.scanned_);
  std::swap(bytes_read_, other.bytes_read_);
  std::swap(number_, other.number_);
  std::swap(inside_line_, other.inside_line_);
  std::swap(at_end_, other.at_end_);
  return *this;
}

LineReader::~LineReader() {
  if (fd_ >= 0) ::close(fd_);
}

tl::unexpected<Error> folder_is_no_data(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string first;  // in the order of names, so that the message is always the same
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!it->is_regular_file(error) || name.starts_with('.') || !it->path().has_extension())
      continue;
    if (first.empty() || name < first) first = name;
  }
  return fail(Code::kInvalidArgument, "{}: is a folder; name files, such as {}/*{}", folder, folder,
              first.empty() ? ".txt" : fs::path(first).extension().string());
}

Result<LineReader> LineReader::open(const std::string& path, size_t line_bytes_max) {
  JIGE_CHECK(line_bytes_max >= 4, "a line limit of {} bytes holds no character", line_bytes_max);
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return folder_is_no_data(path);
  }
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path, "open", errno);
  return LineReader(path, fd, line_bytes_max);
}

Result<bool> LineReader::fill() {
  if (at_end_) return false;
  buffer_.erase(0, begin_);
  scanned_ -= begin_;
  begin_ = 0;
  const size_t old_size = buffer_.size();
  buffer_.resize(old_size + kReadBytes);
  const ssize_t got = ::read(fd_, buffer_.data() + old_size, kReadBytes);
  const int reason = errno;
  buffer_.resize(old_size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0) return file_error(path_, "read", reason);
  at_end_ = got == 0;
  return !at_end_;
}

Result<bool> LineReader::next(Line& line) {
  size_t newline = std::string::npos;
  for (;;) {
    newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos) break;
    scanned_ = buffer_.size();
    if (buffer_.size() - begin_ > line_bytes_max_) break;
    JIGE_TRY(const bool more, fill());
    if (!more) break;
  }
  if (begin_ == buffer_.size()) {
    // A line cut exactly at the end of the file still owes its last, empty piece.
    if (!inside_line_) return false;
    inside_line_ = false;
    line = Line{.text = {}, .number = number_, .begins = false, .ends = true};
    return true;
  }
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  size_t size = newline != std::string::npos ? newline - begin_ : rest.size();
  line.ends = size <= line_bytes_max_;
  if (!line.ends) {
    size = line_bytes_max_;
    size -= text::incomplete_utf8_suffix(rest.substr(0, size));
  }
  if (!inside_line_) ++number_;
  line.begins = !inside_line_;
  inside_line_ = !line.ends;
  line.number = number_;
  line.text = rest.substr(0, size);
  const size_t taken = size + (line.ends && newline != std::string::npos ? 1 : 0);
  if (line.ends && line.text.ends_with('\r')) line.text.remove_suffix(1);
  begin_ += taken;
  scanned_ = std::max(scanned_, begin_);
  bytes_read_ += static_cast<int64_t>(taken);
  return true;
}

}  // namespace jige::train

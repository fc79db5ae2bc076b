// LogFile: lines appended to a file that does not grow without bound.
//
// Where a line would take PATH beyond its limit, PATH becomes PATH.1 in place of an older one, and
// PATH begins anew. So the last `bytes_max` bytes are always there, and no more than twice as many.
// What is no plain file, such as a pipe or /dev/null, keeps its name and has no limit.
// Invariants: a line is written whole, in one append, and never across the two files. Threads: one
// thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace jige {

class LogFile {
 public:
  // Goes on behind what is there. Fails with kIo.
  static Result<LogFile> open(const std::string& path, int64_t bytes_max);
  LogFile(LogFile&& other) noexcept;
  LogFile& operator=(LogFile&&) = delete;
  ~LogFile();

  // Appends `line` and an end of line. Fails with kIo; the next call tries again.
  Status append(std::string_view line);

 private:
  LogFile(std::string path, int64_t bytes_max) : path_(std::move(path)), bytes_max_(bytes_max) {}
  Status open_file();
  Status begin_anew();

  std::string path_;
  int64_t bytes_max_;
  int fd_ = -1;
  int64_t bytes_ = 0;       // in the file
  bool plain_ = true;       // it is a file, and no pipe or device
  bool cut_short_ = false;  // its last line is not whole
};

// What a LogFile keeps at `path`, oldest first. Fails with kNotFound, kIo.
Result<std::string> read_log(const std::string& path);

}  // namespace jige

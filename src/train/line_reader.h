// Lines of a file of any size, in bounded memory, with their numbers for error messages.
//
// A line longer than the limit comes in pieces, cut where no UTF-8 character is split; only the
// last piece has `ends`. The newline, and a carriage return before it, are not part of the line.
// Invariant: a reader holds at most the limit plus one read of 1 MiB.
// Threads: one reader per thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige::train {

struct Line {
  std::string_view text;  // valid until the next call
  int64_t number = 0;     // from 1
  bool begins = true;     // first piece of its line
  bool ends = true;       // last piece of its line
};

// That a folder stands where data is wanted, with an example of the files that it holds.
// kInvalidArgument.
tl::unexpected<Error> folder_is_no_data(const std::string& folder);

class LineReader {
 public:
  // Fails with kInvalidArgument for a folder, kNotFound or kIo, naming the file.
  static Result<LineReader> open(const std::string& path, size_t line_bytes_max);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&& other) noexcept;
  ~LineReader();

  // Reads the next line or piece; false at the end of the file.
  Result<bool> next(Line& line);
  // Bytes of the file behind the lines handed out.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  LineReader(std::string path, int fd, size_t line_bytes_max);
  // Reads more into the buffer; false at the end of the file.
  Result<bool> fill();

  std::string path_;
  int fd_ = -1;
  size_t line_bytes_max_ = 0;
  std::string buffer_;
  size_t begin_ = 0;    // of what has not been handed out
  size_t scanned_ = 0;  // no newline in [begin_, scanned_)
  int64_t bytes_read_ = 0;
  int64_t number_ = 0;
  bool inside_line_ = false;
  bool at_end_ = false;
};

}  // namespace jige::train

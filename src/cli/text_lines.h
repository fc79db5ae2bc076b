// Texts one a line, of a file or of standard input: JSON lines, {"text": …} or a string, or lines
// that are texts as they stand.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige::cli {

struct TextLines {
  std::string path;  // empty or "-": standard input
  bool as_they_stand = false;

  // For messages.
  std::string shown_name() const { return path.empty() || path == "-" ? "standard input" : path; }
  // The text of a line. Fails, naming file and line, where it is no such thing or not UTF-8.
  Result<std::string> read(std::string_view line, int64_t number) const;
};

}  // namespace jige::cli

// Bad lines of data files, which commands leave out and count where they are told to.
//
// Threads: pure, but for the log.
#pragma once

#include <cstdint>
#include <string>

namespace jige::cli {

class Flags;

// The flag --skip-bad.
void declare_skip_bad(Flags& flags, bool& skip);

// "3 bad lines left out".
std::string bad_lines_text(int64_t count);

// Says so, where there are any.
void warn_of_bad_lines(int64_t count);

}  // namespace jige::cli

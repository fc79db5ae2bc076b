// Text as one word of a POSIX shell, for files and command lines that a shell will read.
//
// Threads: pure.
#pragma once

#include <string>
#include <string_view>

namespace jige::cli {

// The text in single quotes, whatever is in it; as it is where a shell takes no character of it for
// anything else.
std::string shell_word(std::string_view text);

}  // namespace jige::cli

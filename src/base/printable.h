// Text from files, sockets and other programs, made fit for a terminal: what would command it is
// shown as an escape instead ("\x1b[2J", "\n", "\u009b"), and so is a byte that is not UTF-8.
//
// It belongs where text is printed. Names stay as they are in memory, in files and in JSON.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace jige {

// The text in one line: no control character is left, line feeds and tabs included.
std::string printable(std::string_view text);

// The same for text that has lines: line feeds and tabs stay, and every line but the first begins
// with `indent`, so that a name with a line feed in it cannot begin a message of its own.
std::string printable_lines(std::string_view text, std::string_view indent = "");

// Text that people read as it comes, such as a model's: what would command a terminal is left out,
// and bytes that are not UTF-8, but for line feeds and tabs.
std::string without_controls(std::string_view text);

// Columns that one line of UTF-8 takes, each character counted as one.
size_t column_count(std::string_view text);

// The first so many of them.
std::string cut_to_columns(std::string_view text, size_t columns);

}  // namespace jige

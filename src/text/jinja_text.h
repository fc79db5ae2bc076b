// Python's string functions, on UTF-8: positions and counts are in characters, white space is what
// Python calls so.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace jige::text::jinja {

// Python's str.isspace for one character; a superset of Unicode White_Space.
bool is_space(char32_t c);

// Without the white space, or without any of `characters`, at an end.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view characters);
std::string_view strip_right(std::string_view text, std::string_view characters);

// str.split: at runs of white space, dropping empty parts, at most `count` cuts (below 0: no
// limit).
std::vector<std::string_view> split_space(std::string_view text, int64_t count);
// At every `separator`. REQUIRES: separator not empty.
std::vector<std::string_view> split_text(std::string_view text, std::string_view separator,
                                         int64_t count);
// From the right; parts in text order.
std::vector<std::string_view> rsplit_text(std::string_view text, std::string_view separator,
                                          int64_t count);
std::vector<std::string_view> rsplit_space(std::string_view text, int64_t count);
// str.splitlines, line ends dropped unless they are to be kept.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

// The first `count` occurrences replaced (below 0: all). An empty `from` matches between
// characters. nullopt when the result would be longer than `bytes_max`.
std::optional<std::string> replace_text(std::string_view text, std::string_view from,
                                        std::string_view to, int64_t count, size_t bytes_max);

std::string capitalize(std::string_view text);
// str.title: each run of letters begins in upper case.
std::string title_words(std::string_view text);
// Jinja's title filter: words begin after space and - ( { [ <.
std::string title_filter(std::string_view text);

// The characters as strings of their own.
std::vector<std::string_view> characters(std::string_view text);

// <, >, &, ' and " as HTML entities.
std::string escape_html(std::string_view text);

}  // namespace jige::text::jinja

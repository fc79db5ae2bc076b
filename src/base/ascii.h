// Letters of protocols, files and devices: ASCII, whatever the locale.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace jige {

inline char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline bool is_ascii_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// The text with A to Z as a to z; other bytes as they are.
std::string lower_ascii(std::string_view text);

}  // namespace jige

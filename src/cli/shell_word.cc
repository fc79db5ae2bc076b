#include "cli/shell_word.h"

#include <algorithm>

#include "base/ascii.h"

namespace jige::cli {
namespace {

bool is_plain(char c) {
  return is_ascii_alphanumeric(c) || std::string_view("/._-+,:@").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace jige::cli

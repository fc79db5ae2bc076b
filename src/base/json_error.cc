#include "base/json_error.h"

namespace jige {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Takes `prefix` off the text; false where it begins otherwise.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

// The library says "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error
// while parsing value - invalid literal; last read: 'x'".
std::string json_error_text(std::string_view what, std::string_view text) {
  const size_t last = text.find_last_not_of(kSpace);
  if (last == std::string_view::npos) return "it is empty";
  constexpr size_t kNone = std::string_view::npos;
  if (const size_t end = what.find("] "); what.starts_with('[') && end != kNone) {
    what.remove_prefix(end + 2);
  }
  std::string place;
  if (take(what, "parse error at ")) {
    const size_t comma = what.find(", "), colon = what.find(": ");
    if (comma < colon && colon != kNone) {
      const bool one_line = text.substr(0, last).find('\n') == kNone;
      const size_t begin = one_line ? comma + 2 : 0;
      place = what.substr(begin, colon + 2 - begin);
      what.remove_prefix(colon + 2);
    }
  }
  if (const size_t dash = what.find(" - "); what.starts_with("syntax error") && dash != kNone) {
    what.remove_prefix(dash + 3);
  }
  return place + std::string(what.substr(0, kJsonErrorBytesMax));
}

}  // namespace jige

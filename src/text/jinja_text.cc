#include "text/jinja_text.h"

#include <algorithm>

#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

// The last character of `text` and where it begins. REQUIRES: not empty.
std::pair<char32_t, size_t> last_code_point(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return {decode_utf8(text.substr(begin)).code_point, begin};
}

// Whether a valid UTF-8 `set` holds the character spelled `character`.
bool holds_character(std::string_view set, std::string_view character) {
  return find_text(set, character) != set.npos;
}

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_cased(std::string_view character) {
  return to_lower(character) != character || to_upper(character) != character;
}

}  // namespace

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Decoded first = decode_utf8(text);
    if (!is_space(first.code_point)) break;
    text.remove_prefix(first.size);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const auto [last, begin] = last_code_point(text);
    if (!is_space(last)) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view set) {
  while (!text.empty() && holds_character(set, text.substr(0, utf8_size(text[0])))) {
    text.remove_prefix(utf8_size(text[0]));
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view set) {
  while (!text.empty()) {
    const size_t begin = last_code_point(text).second;
    if (!holds_character(set, text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t count) {
  std::vector<std::string_view> parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (count >= 0 && static_cast<int64_t>(parts.size()) >= count) {
      parts.push_back(strip_right(text));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const Decoded next = decode_utf8(text.substr(end));
      if (is_space(next.code_point)) break;
      end += next.size;
    }
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, int64_t count) {
  std::vector<std::string_view> parts;
  text = strip_right(text);
  while (!text.empty()) {
    if (count >= 0 && static_cast<int64_t>(parts.size()) >= count) {
      parts.push_back(strip_left(text));
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      const auto [last, at] = last_code_point(text.substr(0, begin));
      if (is_space(last)) break;
      begin = at;
    }
    parts.push_back(text.substr(begin));
    text = strip_right(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_text(std::string_view text, std::string_view separator,
                                         int64_t count) {
  std::vector<std::string_view> parts;
  while (count < 0 || static_cast<int64_t>(parts.size()) < count) {
    const size_t at = find_text(text, separator);
    if (at == text.npos) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> rsplit_text(std::string_view text, std::string_view separator,
                                          int64_t count) {
  // Searching from the right finds other places than from the left only for separators that
  // overlap themselves; rfind is right for those and quick enough for the short ones in use.
  std::vector<std::string_view> parts;
  while (count < 0 || static_cast<int64_t>(parts.size()) < count) {
    const size_t at = text.rfind(separator);
    if (at == text.npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text.substr(i));
    size_t after = i + next.size;
    if (is_line_end(next.code_point)) {
      if (text[i] == '\r' && after < text.size() && text[after] == '\n') ++after;
      lines.push_back(text.substr(begin, (keep_ends ? after : i) - begin));
      begin = after;
    }
    i = after;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::optional<std::string> replace_text(std::string_view text, std::string_view from,
                                        std::string_view to, int64_t count, size_t bytes_max) {
  std::string out;
  size_t at = 0;
  int64_t done = 0;
  while (count < 0 || done < count) {
    if (out.size() + to.size() > bytes_max) return std::nullopt;
    if (from.empty()) {
      out.append(to);
      ++done;
      if (at >= text.size()) return out;
      const size_t size = utf8_size(text[at]);
      out.append(text.substr(at, size));
      at += size;
      continue;
    }
    const size_t next = find_text(text, from, at);
    if (next == text.npos) break;
    out.append(text.substr(at, next - at)).append(to);
    at = next + from.size();
    ++done;
  }
  out.append(text.substr(std::min(at, text.size())));
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const size_t first = utf8_size(text[0]);
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_words(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for (const std::string_view character : characters(text)) {
    const bool cased = is_cased(character);
    out += !cased        ? std::string(character)
           : inside_word ? to_lower(character)
                         : to_upper(character);
    inside_word = cased;
  }
  return out;
}

std::string title_filter(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (const std::string_view character : characters(text)) {
    const bool separates = is_space(decode_utf8(character).code_point) ||
                           std::string_view("-({[<").find(character) != std::string_view::npos;
    out += separates  ? std::string(character)
           : at_start ? to_upper(character)
                      : to_lower(character);
    at_start = separates;
  }
  return out;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> list;
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_size(text[i]);
    list.push_back(text.substr(i, size));
    i += size;
  }
  return list;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace jige::text::jinja

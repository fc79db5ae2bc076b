#include "base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace jige {
namespace {

uint8_t byte_at(std::string_view text, size_t at) {
  return at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
}

// Bytes of the UTF-8 character that begins the text; 0 where none does.
size_t character_bytes(std::string_view text) {
  const uint8_t first = byte_at(text, 0);
  const uint8_t second = byte_at(text, 1);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  // Longer than it need be, or no character: a surrogate, or beyond the last.
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  const size_t count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < count; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return 0;
  }
  return count;
}

// The escape for the character of `count` bytes; empty where it can be shown.
std::string escape_of(std::string_view character, size_t count) {
  const uint8_t first = byte_at(character, 0);
  if (first == '\n') return "\\n";
  if (first == '\r') return "\\r";
  if (first == '\t') return "\\t";
  if (count == 0 || first < 0x20 || first == 0x7F) return fmt::format("\\x{:02x}", first);
  const uint8_t second = byte_at(character, 1);
  return first == 0xC2 && second < 0xA0 ? fmt::format("\\u{:04x}", second) : "";
}

// Whether this byte of UTF-8 is the first of a character.
bool starts_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

bool is_line_feed_or_tab(std::string_view character) {
  return character == "\n" || character == "\t";
}

// Calls body(character, escape) for every character or byte that is none; the escape is empty where
// it can be shown.
template <typename Body>
void for_each_character(std::string_view text, Body&& body) {
  while (!text.empty()) {
    const size_t count = character_bytes(text);
    const std::string_view character = text.substr(0, count == 0 ? 1 : count);
    body(character, escape_of(text, count));
    text.remove_prefix(character.size());
  }
}

std::string escaped(std::string_view text, bool lines, std::string_view indent) {
  std::string out;
  out.reserve(text.size());
  bool at_start = false;  // of a line but the first
  for_each_character(text, [&](std::string_view character, const std::string& escape) {
    if (at_start) out += indent;
    at_start = lines && character == "\n";
    const bool kept = escape.empty() || (lines && is_line_feed_or_tab(character));
    out += kept ? character : escape;
  });
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false, ""); }

std::string printable_lines(std::string_view text, std::string_view indent) {
  return escaped(text, true, indent);
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](std::string_view character, const std::string& escape) {
    if (escape.empty() || is_line_feed_or_tab(character)) out += character;
  });
  return out;
}

size_t column_count(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string cut_to_columns(std::string_view text, size_t columns) {
  size_t count = 0;
  size_t end = 0;
  while (end < text.size()) {
    if (starts_character(text[end]) && ++count > columns) break;
    ++end;
  }
  return std::string(text.substr(0, end));
}

}  // namespace jige

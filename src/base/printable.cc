#include "base/printable.h"

#include <fmt/format.h>

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

std::string escaped(std::string_view text, bool lines, std::string_view indent) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t count = character_bytes(text);
    const bool kept = lines && (text[0] == '\n' || text[0] == '\t');
    const std::string escape = kept ? "" : escape_of(text, count);
    const std::string_view character = text.substr(0, count == 0 ? 1 : count);
    out += escape.empty() ? character : escape;
    text.remove_prefix(character.size());
    if (lines && character == "\n" && !text.empty()) out += indent;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escaped(text, false, ""); }

std::string printable_lines(std::string_view text, std::string_view indent) {
  return escaped(text, true, indent);
}

std::string cut_to_columns(std::string_view text, size_t columns) {
  size_t count = 0;
  size_t end = 0;
  while (end < text.size()) {
    const bool starts_character = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts_character && ++count > columns) break;
    ++end;
  }
  return std::string(text.substr(0, end));
}

}  // namespace jige

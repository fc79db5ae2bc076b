// The byte-level alphabet: each byte has a printable character of its own, so that a vocabulary
// file can spell any bytes as text. Printable Latin-1 bytes stand for themselves, the other 68 for
// U+0100 onwards in order: a space is "Ġ", a newline "Ċ".
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace jige::text {

// The character of a byte.
char32_t byte_level_character(uint8_t byte);
// The byte of a character, or -1.
int byte_level_byte(char32_t character);

// Appends the spelling of raw bytes.
void append_byte_level(std::string& out, std::string_view bytes);
// The bytes that a spelling stands for; nullopt when a character is outside the alphabet.
std::optional<std::string> from_byte_level(std::string_view spelling);

}  // namespace jige::text

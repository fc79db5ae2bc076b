// UTF-8 and the Unicode character properties that tokenizers and templates ask for.
//
// Invalid bytes: every maximal part of an ill-formed sequence counts as one error and is read as
// U+FFFD (Unicode 15, section 3.9; the same as Python's errors="replace").
// Properties and normal forms come from utf8proc, those of late characters as newer_characters.h
// says. All costs are linear in the text, also for
// hostile runs of combining marks.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace jige::text {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct Decoded {
  char32_t code_point;
  uint32_t size;  // bytes read, at least 1
  bool valid;
};

// The character at the start of `text`. REQUIRES: text is not empty.
Decoded decode_utf8(std::string_view text);

// Appends the UTF-8 form; surrogates and values above 0x10FFFF become U+FFFD.
void append_utf8(std::string& out, char32_t code_point);
std::string to_utf8(char32_t code_point);

bool is_valid_utf8(std::string_view text);

// The text with every ill-formed part replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// How many bytes at the end of `text` begin a character that more bytes could complete: 0 to 3.
size_t incomplete_utf8_suffix(std::string_view text);

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁, a space in SentencePiece

// The size in bytes of a character whose first byte is `lead`, in valid UTF-8.
inline size_t utf8_size(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Where the last character begins. REQUIRES: valid UTF-8, not empty.
inline size_t last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

// The first place of `what` at or after `from`, or npos; linear in the text whatever it holds,
// which std::string::find is not.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0);

// The bytes of the first extended grapheme cluster, what a reader takes for one character
// (Unicode's annex 29). REQUIRES: valid UTF-8, not empty.
size_t grapheme_size(std::string_view text);
// Whether a cluster never goes across from one character to another, whatever is around them. May
// say no where it is so.
bool never_one_grapheme(char32_t left, char32_t right);

// Number of characters. REQUIRES: valid UTF-8.
size_t count_characters(std::string_view text);

// White_Space of Unicode, which is what \s means in tokenizer files (U+180E is not in it).
bool is_white_space(char32_t c);
bool is_numeric(char32_t c);          // general category N
bool is_letter(char32_t c);           // general category L
bool is_mark(char32_t c);             // general category M
bool is_nonspacing_mark(char32_t c);  // general category Mn, up to Unicode 8
bool is_other(char32_t c);            // general category Cc, Cf or Co, up to Unicode 8
bool is_punctuation(char32_t c);      // general category P, up to Unicode 8, or ASCII punctuation
bool is_word(char32_t c);             // \w: alphabetic, mark, decimal digit, connector, joiner

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// The normal form of a text. REQUIRES: valid UTF-8.
std::string normalize(std::string_view text, NormalForm form);

// Whether the normal forms of any text before this character and of the text from it on, put
// together, are the normal form of both together. May say no of characters for which it is so.
bool begins_normal_form(char32_t c);

// Every character's full lower-case form, without context. REQUIRES: valid UTF-8.
std::string to_lower(std::string_view text);
// Every character's upper-case form; ß becomes SS. REQUIRES: valid UTF-8.
std::string to_upper(std::string_view text);

// The text without its marks (general category M, up to Unicode 9). REQUIRES: valid UTF-8.
std::string strip_marks(std::string_view text);

}  // namespace jige::text

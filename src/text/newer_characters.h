// Characters that Unicode took up late. Libraries of different ages see them differently, and the
// ids of a text must not depend on that.
//
// Patterns are matched, and categories told, as of Unicode 16, which Oniguruma knows: where PCRE2
// or utf8proc may be older, a later character is shown to them as an older one that is like it.
// Normal forms are those of Unicode 9 and punctuation is that of Unicode 8, whose tables Hugging
// Face `tokenizers` has: what came later stays as it is, and in one word with its neighbours.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace jige::text {

// For a character of Unicode 15 or 16 one of Unicode 14 with the same general category, in the Han
// script if it is, and with as many bytes in UTF-8; every other character for itself.
char32_t older_character(char32_t c);

// Makes `changed` the text with such characters, if it has any, and says whether it has. Places in
// both are the same. REQUIRES: valid UTF-8.
bool show_older_characters(std::string_view text, std::string& changed);

// For a character that is another class to the clusters of Unicode 17, which Hugging Face
// `tokenizers` knows, than to utf8proc, one of that class; every other character for itself.
char32_t cluster_character(char32_t c);

// Whether it came after Unicode 9 and is a mark, has a normal form other than itself, or is part of
// one. Also a few whose combining class came later.
bool is_newer_mark(char32_t c);

// Whether it is a mark without a width of its own that is one from Unicode 9 on, or from one of the
// next where it came earlier.
bool is_mark_of_unicode_9(char32_t c);

// Whether it is a format character that came after Unicode 8.
bool is_newer_format(char32_t c);

// Whether it is punctuation that came after Unicode 8.
bool is_newer_punctuation(char32_t c);

}  // namespace jige::text

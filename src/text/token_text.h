// What one token is by itself: its text in the middle of others, and its bytes.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace jige::text {

// The text of a token in the middle of a text; empty for ids outside the vocabulary. Half a
// character shows as U+FFFD.
std::string token_text(const Tokenizer& tokenizer, int32_t id);

// The bytes of a token whose token_text is `text`: of half a character, those that its spelling
// stands for, "<0xC3>" or in the byte-level alphabet.
std::string token_bytes(const Tokenizer& tokenizer, int32_t id, const std::string& text);

}  // namespace jige::text

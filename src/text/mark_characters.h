// The two characters that stand around control tokens in what people write while a template is
// rendered (chat_marks.h): noncharacters, which no text needs and no template writes.
//
// Invariant: what shows characters by escapes (repr, ASCII alone) shows these as they are. Escaped
// they would stay in the prompt, and what is between them would be a control token again.
// Threads: constants.
#pragma once

#include <string_view>

namespace jige::text {

inline constexpr std::string_view kMarkBegin = "\xEF\xB7\x90";  // U+FDD0
inline constexpr std::string_view kMarkEnd = "\xEF\xB7\x91";    // U+FDD1

inline constexpr bool is_guard_mark(char32_t character) {
  return character == 0xFDD0 || character == 0xFDD1;
}

}  // namespace jige::text

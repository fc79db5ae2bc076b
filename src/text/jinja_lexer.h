// Cuts template source into tokens, with the white-space rules of transformers: trim_blocks (the
// newline after a block tag goes) and lstrip_blocks (blanks before a block tag that begins a line
// go), overridden by "-" and "+" inside the tags. Line ends count as "\n"; one at the very end
// goes.
//
// Threads: pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::text::jinja {

enum class TokenKind {
  kData,           // text outside tags
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,  // the text after escapes
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  uint32_t line = 0;
};

inline constexpr size_t kSourceBytesMax = size_t{1} << 20;

// The tokens of a template, ending in one kEnd. Fails with kCorrupt and the line on tags, comments
// and strings that do not end and on stray characters; kUnsupported above kSourceBytesMax.
Result<std::vector<Token>> tokenize(std::string_view source, std::string_view where);

}  // namespace jige::text::jinja

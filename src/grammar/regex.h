// Regular expressions as constraints: the whole text is to match.
//
//   a|b  ab  (…)  (?:…)  x? x* x+ x{m} x{m,} x{m,n}, also lazy ones, which fit the same texts
//   .    any character but a line feed
//   [a-z\d] [^…]   \d \w \s in ASCII, \D \W \S the rest; \n \t \r \f \v \0 \xHH \uHHHH
//   ^ $  at the ends of the whole expression or of its alternatives, where they say nothing new
//
// Refused: look-around, back references, named groups, \b, \p, possessive repeats. What is repeated
// more than kRepeatMax times, nests more than kRegexDepthMax deep or is longer than kRegexBytesMax.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_points.h"
#include "grammar/grammar.h"
#include "grammar/repeat.h"

namespace jige::grammar {

inline constexpr size_t kRegexBytesMax = size_t{1} << 16;
inline constexpr int kRegexDepthMax = 48;

struct RegexNode {
  enum class Kind : uint8_t { kEmpty, kCharacter, kSequence, kAlternatives, kRepeat };
  Kind kind = Kind::kEmpty;
  CodePoints characters;         // kCharacter
  Counts counts;                 // kRepeat
  std::vector<RegexNode> parts;  // kRepeat: one
};

// Fails with kInvalidArgument, naming the place.
Result<RegexNode> parse_regex(std::string_view pattern);

// How a character is spelled: one of a set, then `next`.
using Spelling = NodeId (*)(GrammarBuilder& builder, const CodePoints& characters, NodeId next);
NodeId spell_plainly(GrammarBuilder& builder, const CodePoints& characters, NodeId next);

// The texts of the expression, then `next`.
NodeId build_regex(GrammarBuilder& builder, const RegexNode& regex, Spelling spell, NodeId next);

}  // namespace jige::grammar

// Grammars in EBNF as constraints, in the form of llama.cpp's GBNF, which vLLM takes too: the whole
// text is to fit the rule `root`.
//
//   root ::= greeting (", " name)* "!"     # up to the end of the line
//   greeting ::= "Hello" | "Hi"
//   name ::= [A-Z] [a-z]{1,20}
//
//   "text"  [a-z]  [^a-z]  .  (…)  a|b  a b  x? x* x+ x{m} x{m,} x{m,n}
//   \n \t \r \" \\ \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH in texts and classes; . is any character
//
// A rule ends where the next one begins, wherever lines end. Refused: rules that are not defined or
// defined twice, left recursion (a rule that can begin with itself), tokens in angle brackets. What
// is repeated more than kRepeatMax times, nests more than kEbnfDepthMax deep, is longer than
// kEbnfBytesMax or has more than kEbnfRulesMax rules.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_points.h"
#include "grammar/grammar.h"
#include "grammar/repeat.h"

namespace jige::grammar {

inline constexpr size_t kEbnfBytesMax = size_t{1} << 16;
inline constexpr int kEbnfDepthMax = 48;
inline constexpr size_t kEbnfRulesMax = 4096;

struct EbnfNode {
  enum class Kind : uint8_t { kText, kCharacter, kRule, kSequence, kAlternatives, kRepeat };
  Kind kind = Kind::kText;
  std::string text;             // kText
  CodePoints characters;        // kCharacter
  size_t rule = 0;              // kRule: which of the rules
  Counts counts;                // kRepeat
  std::vector<EbnfNode> parts;  // kRepeat: one
};

struct EbnfRule {
  std::string name;
  size_t at = 0;  // the byte of its definition
  EbnfNode body;
};

struct Ebnf {
  std::vector<EbnfRule> rules;
  size_t root = 0;
};

// Fails with kInvalidArgument, naming the place.
Result<Ebnf> parse_ebnf(std::string_view source);

// The texts of the root, to the end of the rule that is being built.
NodeId build_ebnf(GrammarBuilder& builder, const Ebnf& ebnf);

}  // namespace jige::grammar

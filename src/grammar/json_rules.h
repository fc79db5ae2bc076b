// JsonRules: the parts of JSON texts as rules of a grammar, each made when it is first asked for.
//
//   white space  behind "{", "[", "," and before "}", "]": none, one space, or a line feed and up
//   to
//                kIndentMax spaces; behind ":": none or one space; nowhere else
//   numbers      up to kDigitsMax digits before the point and behind it, an exponent of up to 2
//   strings      any character; escapes \" \\ \/ \b \f \n \r \t, \uHHHH and pairs of surrogates
//
// So what a small model writes ends in JSON that any parser takes, and cannot loop on white space.
// Threads: one, with its builder.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grammar/code_points.h"
#include "grammar/grammar.h"
#include "grammar/repeat.h"

namespace jige::grammar {

inline constexpr int32_t kIndentMax = 32;
inline constexpr int32_t kDigitsMax = 18;

// A set of characters inside a string of JSON: what may stand there plainly does, the rest is
// escaped.
NodeId spell_in_json(GrammarBuilder& builder, const CodePoints& characters, NodeId next);

class JsonRules {
 public:
  explicit JsonRules(GrammarBuilder& builder) : builder_(builder) {}

  // Each reads what it names, then `next`.
  NodeId value(NodeId next) { return builder_.call(value_rule(), next); }
  NodeId object(NodeId next) { return builder_.call(object_rule(), next); }
  NodeId array(NodeId next) { return builder_.call(array_rule(), next); }
  NodeId string(NodeId next) { return builder_.call(string_rule(), next); }
  NodeId number(NodeId next) { return builder_.call(number_rule(), next); }
  NodeId integer(NodeId next) { return builder_.call(integer_rule(), next); }
  NodeId boolean(NodeId next);
  NodeId null(NodeId next) { return builder_.text("null", next); }
  // A string of so many characters.
  NodeId string(Counts characters, NodeId next);
  // White space inside brackets, and behind a colon.
  NodeId space(NodeId next) { return builder_.call(space_rule(), next); }
  NodeId colon(NodeId next);
  NodeId comma(NodeId next) { return builder_.byte(',', space(next)); }

 private:
  RuleId value_rule();
  RuleId object_rule();
  RuleId array_rule();
  RuleId string_rule();
  RuleId number_rule();
  RuleId integer_rule();
  RuleId space_rule();
  // What a string holds, one character of it, but for the plain ASCII ones.
  RuleId rare_character_rule();
  NodeId character(NodeId next);
  NodeId digits(Counts counts, NodeId next);

  GrammarBuilder& builder_;
  std::optional<RuleId> value_, object_, array_, string_, number_, integer_, space_, rare_;
};

}  // namespace jige::grammar

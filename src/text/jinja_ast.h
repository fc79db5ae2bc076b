// The tree of a parsed template.
//
// One node type for expressions and one for statements, each read according to its kind; the tables
// below say what the members mean. Names are numbers into Template::names.
//
// Invariant: no node is deeper than kTreeHeightMax, so walking and freeing need bounded stack.
// Threads: immutable after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace jige::text::jinja {

inline constexpr uint32_t kTreeHeightMax = 150;

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

// f(value), f(name=value), f(*value), f(**value).
struct Argument {
  enum class Spread { kNone, kItems, kEntries };

  std::string name;  // empty for positional arguments
  ExprPtr value;
  Spread spread = Spread::kNone;
};

enum class ExprKind {
  kLiteral,   // literal
  kName,      // name
  kList,      // parts
  kTuple,     // parts
  kDict,      // parts: key, value, key, value, …
  kMember,    // parts[0].text
  kIndex,     // parts[0][parts[1]]
  kSlice,     // parts[0][parts[1]:parts[2]:parts[3]], null where left out
  kCall,      // parts[0](arguments)
  kFilter,    // parts[0]|text(arguments); parts[0] null in {% filter %} and {% set %} blocks
  kTest,      // parts[0] is text(arguments)
  kNegative,  // -parts[0]
  kPositive,  // +parts[0]
  kNot,       // not parts[0]
  kAnd,       // parts[0] and parts[1]
  kOr,        // parts[0] or parts[1]
  kBinary,    // parts[0] text parts[1]: + - * / // % **
  kConcat,    // parts joined as text: a ~ b ~ c
  kCompare,   // parts[0] operators[0] parts[1] operators[1] parts[2] …
  kTernary,   // parts[0] if parts[1] else parts[2], null where left out
};

struct Expr {
  ExprKind kind;
  uint32_t line = 0;
  uint32_t height = 1;
  uint32_t name = 0;
  bool is_local = false;  // a name that never means what was given to the template
  std::string text;
  Value literal;
  std::vector<ExprPtr> parts;
  std::vector<Argument> arguments;
  std::vector<std::string> operators;
};

struct Parameter {
  uint32_t name = 0;
  ExprPtr fallback;  // null where there is none
};

// A place that {% set %} and {% for %} write to.
struct Target {
  std::vector<uint32_t> names;  // more than one: the value is unpacked; those of `parts` in order
  std::vector<Target> parts;    // where a part unpacks its value, too: a, (b, c)
  std::string attribute;        // {% set names[0].attribute = … %}
  bool unpacks = false;
};

enum class StmtKind {
  kText,         // text
  kOutput,       // value
  kIf,           // branches: condition (null for else) and body
  kFor,          // target, value, condition (or null), body, else_body, is_recursive
  kSet,          // target, value
  kSetBlock,     // target, body; value: the filters, or null
  kMacro,        // name, parameters, body
  kCallBlock,    // parameters of caller(), value (a call), body
  kFilterBlock,  // value (the filters), body
  kWith,         // targets with values in `assignments`, body
  kGeneration,   // body
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind;
  uint32_t line = 0;
  uint32_t name = 0;
  bool uses_extras = false;   // a macro that reads varargs or kwargs
  bool is_recursive = false;  // a loop that loop(…) runs over other items
  std::string text;
  Target target;
  ExprPtr value;
  ExprPtr condition;
  std::vector<Parameter> parameters;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<uint32_t, ExprPtr>> assignments;
  Body body;
  Body else_body;
};

struct Template {
  std::string where;
  std::vector<std::string> names;
  Body body;
  bool has_generation = false;
};

}  // namespace jige::text::jinja

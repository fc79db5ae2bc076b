// Loops that have nothing left to do (jinja_interpreter.h).
//
// A template that looks for the last question goes through the messages from their end, and behind
// what it looked for every turn asks the same again: {% if ns.searching and … %}. Where no
// statement of a turn can do or write anything, whatever the item, the turns that are left are not
// run.
#include <algorithm>

#include "text/jinja_interpreter.h"

namespace jige::text::jinja {
namespace {

constexpr int64_t kSmall = int64_t{1} << 31;

}  // namespace

// Whether a name means the same in every turn, in which no more names are set than these.
bool Interpreter::is_outer(const Expr& node, const std::vector<uint32_t>& own) const {
  return node.kind == ExprKind::kName && node.name != loop_name_ &&
         std::find(own.begin(), own.end(), node.name) == own.end();
}

// Whether every turn finds a condition false, at something that no turn sets.
Result<bool> Interpreter::is_always_false(const Expr& node, const std::vector<uint32_t>& own,
                                          Scope& scope) {
  if (node.kind == ExprKind::kAnd) return is_always_false(*node.parts[0], own, scope);
  const bool is_attribute = node.kind == ExprKind::kMember && is_outer(*node.parts[0], own);
  if (!is_attribute) return false;
  JIGE_TRY(const Value holder, lookup(*node.parts[0], scope));
  if (!holder.is(Kind::kNamespace)) return false;
  JIGE_TRY(const Value value, member(holder, node.text));
  return !value.truth();
}

// Whether an expression is a number that can be had without an error.
Result<bool> Interpreter::is_plain_number(const Expr& node, const std::vector<uint32_t>& own,
                                          Scope& scope) {
  switch (node.kind) {
    case ExprKind::kLiteral:
      return node.literal.is(Kind::kInt) && -kSmall < node.literal.as_int() &&
             node.literal.as_int() < kSmall;
    case ExprKind::kMember:
      return node.parts[0]->kind == ExprKind::kName && node.parts[0]->name == loop_name_ &&
             (node.text == "index" || node.text == "index0");
    case ExprKind::kFilter: {
      if (node.text != "length" || !node.arguments.empty() || !node.parts[0] ||
          !is_outer(*node.parts[0], own)) {
        return false;
      }
      JIGE_TRY(const Value list, lookup(*node.parts[0], scope));
      return list.is_sequence();
    }
    case ExprKind::kBinary: {
      if (node.text != "+" && node.text != "-") return false;
      JIGE_TRY(const bool left, is_plain_number(*node.parts[0], own, scope));
      return left ? is_plain_number(*node.parts[1], own, scope) : false;
    }
    default:
      return false;
  }
}

// `scope` is that around the loop.
Result<bool> Interpreter::is_idle(const Stmt& loop, Scope& scope) {
  // What the loop itself sets must fit and be seen by nobody outside.
  if (loop.target.unpacks || !loop.target.attribute.empty()) return false;
  std::vector<uint32_t> own = loop.target.names;
  for (const auto& statement : loop.body) {
    if (statement->kind == StmtKind::kSet) {
      const Target& target = statement->target;
      if (!target.attribute.empty() || target.unpacks) return false;
      JIGE_TRY(const bool is_number, is_plain_number(*statement->value, own, scope));
      if (!is_number) return false;
      own.push_back(target.names[0]);
    } else if (statement->kind == StmtKind::kIf) {
      for (const auto& [condition, body] : statement->branches) {
        if (!condition) return false;
        JIGE_TRY(const bool is_false, is_always_false(*condition, own, scope));
        if (!is_false) return false;
      }
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace jige::text::jinja

// Expressions of the interpreter (jinja_interpreter.h).
#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_depth.h"
#include "text/jinja_format.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace jige::text::jinja {
namespace {

Value no_element(const Value& value, int64_t number) {
  return Value::undefined(fmt::format("'{}' object has no element {}", value.type_name(), number));
}

// Gives the entries of a mapping as named arguments: f(**value).
Status add_named(const Value& value, Arguments& given, Budget& budget) {
  if (!value.is(Kind::kDict)) {
    return fail(Code::kInvalidArgument, "what follows ** must be a mapping, not {}",
                value.type_name());
  }
  for (const auto& [key, item] : value.entries().entries) {
    JIGE_DO(budget.steps(1 + given.named.size()));
    if (!key.is(Kind::kString)) {
      return fail(Code::kInvalidArgument, "what follows ** must have names, found {}",
                  key.type_name());
    }
    const bool twice = std::any_of(given.named.begin(), given.named.end(),
                                   [&](const auto& pair) { return pair.first == key.text(); });
    if (twice) {
      return fail(Code::kInvalidArgument, "two values were given for \"{}\"", key.text());
    }
    given.named.emplace_back(key.text(), item);
  }
  return {};
}

}  // namespace

Result<Value> Interpreter::evaluate(const Expr& node, Scope& scope) {
  const DepthGuard depth(depth_);
  JIGE_DO(depth.check());
  JIGE_DO(budget_.steps(1));
  auto value = evaluate_kind(node, scope);
  if (!value) return at_line(std::move(value.error()), node.line);
  return value;
}

Result<Value> Interpreter::evaluate_kind(const Expr& node, Scope& scope) {
  switch (node.kind) {
    case ExprKind::kLiteral:
      return node.literal;
    case ExprKind::kName:
      return lookup(node, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return sequence(node, scope);
    case ExprKind::kDict:
      return dict(node, scope);
    case ExprKind::kSlice:
      return slice(node, scope);
    case ExprKind::kCall:
      return call(node, nullptr, scope);
    case ExprKind::kFilter:
      return filter(node, nullptr, scope);
    case ExprKind::kCompare:
      return compare(node, scope);
    case ExprKind::kConcat:
      return concat(node, scope);
    default:
      break;
  }
  if (node.kind == ExprKind::kTernary) {
    JIGE_TRY(const Value condition, evaluate(*node.parts[1], scope));
    if (condition.truth()) return evaluate(*node.parts[0], scope);
    if (node.parts[2]) return evaluate(*node.parts[2], scope);
    return Value::undefined("the inline if-expression has no else and its condition was false");
  }
  JIGE_TRY(const Value left, evaluate(*node.parts[0], scope));
  switch (node.kind) {
    case ExprKind::kMember:
      return member(left, node.text);
    case ExprKind::kTest: {
      JIGE_TRY(const Arguments given, arguments(node.arguments, scope));
      JIGE_TRY(const bool holds, run_test(*this, node.text, left, given));
      return Value::boolean(holds);
    }
    case ExprKind::kNegative:
      return negate(left);
    case ExprKind::kPositive:
      if (left.is(Kind::kBool)) return Value::integer(left.as_int());
      if (left.is_number()) return left;
      return fail(Code::kInvalidArgument, "\"+\" does not work on {}", left.type_name());
    case ExprKind::kNot:
      return Value::boolean(!left.truth());
    case ExprKind::kAnd:
      return left.truth() ? evaluate(*node.parts[1], scope) : left;
    case ExprKind::kOr:
      return left.truth() ? left : evaluate(*node.parts[1], scope);
    default:
      break;
  }
  JIGE_TRY(const Value right, evaluate(*node.parts[1], scope));
  if (node.kind == ExprKind::kIndex) return index(left, right);
  return arithmetic(node.text, left, right, budget_);
}

Result<Value> Interpreter::lookup(const Expr& node, const Scope& scope) {
  const Scope* end = node.is_local ? given_ : nullptr;
  size_t looked_at = 0;
  for (const Scope* at = &scope; at != end; at = at->parent) {
    if (at == top_) note_name_read(node.name);
    for (const auto& [name, value] : at->values) {
      if (name == node.name) return value;
      ++looked_at;
    }
  }
  JIGE_DO(budget_.steps(looked_at / 16));
  const std::string& name = names_[node.name];
  if (!node.is_local && has_function(name)) return Value::function(name);
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Interpreter::sequence(const Expr& node, Scope& scope) {
  Items items;
  for (const ExprPtr& part : node.parts) {
    JIGE_TRY(Value item, evaluate(*part, scope));
    items.push_back(std::move(item));
  }
  return node.kind == ExprKind::kTuple ? Value::tuple(std::move(items), budget_)
                                       : Value::list(std::move(items), budget_);
}

Result<Value> Interpreter::dict(const Expr& node, Scope& scope) {
  DictData entries;
  for (size_t i = 0; i + 1 < node.parts.size(); i += 2) {
    JIGE_TRY(Value key, evaluate(*node.parts[i], scope));
    JIGE_TRY(Value value, evaluate(*node.parts[i + 1], scope));
    if (!key.is(Kind::kString) && !key.is_number() && !key.is(Kind::kNone)) {
      return fail(Code::kInvalidArgument, "{} cannot be a key", key.type_name());
    }
    if (!key.is(Kind::kString)) JIGE_DO(budget_.steps(entries.entries.size()));
    entries.set(std::move(key), std::move(value));
  }
  return Value::dict(std::move(entries), budget_);
}

Result<Value> Interpreter::slice(const Expr& node, Scope& scope) {
  JIGE_TRY(const Value value, evaluate(*node.parts[0], scope));
  Value bounds[3];
  SliceBounds chosen;
  const Value** slots[3] = {&chosen.begin, &chosen.end, &chosen.step};
  for (size_t i = 0; i < 3; ++i) {
    if (!node.parts[i + 1]) continue;
    JIGE_TRY(bounds[i], evaluate(*node.parts[i + 1], scope));
    *slots[i] = &bounds[i];
  }
  // Slicing what is not there gives undefined, as every failed subscript does.
  if (value.is(Kind::kUndefined)) {
    return fail(Code::kInvalidArgument, "{}", value.undefined_hint());
  }
  return slice_value(value, chosen, budget_);
}

Result<Value> Interpreter::compare(const Expr& node, Scope& scope) {
  std::optional<Cell> left_cell;
  JIGE_TRY(Value left, compared_part(*node.parts[0], scope, left_cell));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    std::optional<Cell> right_cell;
    JIGE_TRY(Value right, compared_part(*node.parts[i + 1], scope, right_cell));
    const std::string& op = node.operators[i];
    Result<bool> holds = false;
    if (op == "==" || op == "!=") {
      holds = equals(left, right, budget_);
      if (holds && op == "!=") holds = !*holds;
    } else if (op == "in" || op == "not in") {
      holds = contains(right, left, budget_);
      if (holds && op == "not in") holds = !*holds;
    } else {
      // a > b is b < a; a <= b is a < b or a == b, so that NaN is in no order.
      const bool swapped = op[0] == '>';
      holds = swapped ? less(right, left, budget_) : less(left, right, budget_);
      if (holds && !*holds && op.size() == 2) holds = equals(left, right, budget_);
    }
    if (!holds) return tl::unexpected<Error>(std::move(holds.error()));
    note_compared(left_cell, left, op, right_cell, right, *holds);
    if (!*holds) return Value::boolean(false);
    left = std::move(right);
    left_cell = std::move(right_cell);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::concat(const Expr& node, Scope& scope) {
  std::string text;
  for (const ExprPtr& part : node.parts) {
    JIGE_TRY(const Value value, evaluate(*part, scope));
    JIGE_DO(append_text(text, value, budget_));
  }
  return Value::string(std::move(text));
}

Result<Value> Interpreter::member(const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) {
    return fail(Code::kInvalidArgument, "{}", value.undefined_hint());
  }
  if (value.is(Kind::kLoop)) return loop_attribute(value, name);
  if (has_method(value, name)) return Value::method(name);
  const Value* found = nullptr;
  if (value.is_group() && name == "grouper") return value.items()[0];
  if (value.is_group() && name == "list") return value.items()[1];
  if (value.is(Kind::kCycler)) found = cycler_attribute(value.as_cycler(), name);
  if (value.is(Kind::kDict)) found = value.entries().find(name);
  if (value.is(Kind::kNamespace)) {
    note_attribute_read(value.as_namespace(), name);
    found = value.as_namespace().attributes.find(name);
  }
  if (found) return *found;
  return Value::undefined(
      fmt::format("'{}' object has no attribute '{}'", value.type_name(), name));
}

Result<Value> Interpreter::index(const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) {
    return fail(Code::kInvalidArgument, "{}", value.undefined_hint());
  }
  if (value.is(Kind::kDict)) {
    if (!key.is(Kind::kString)) JIGE_DO(budget_.steps(value.entries().entries.size()));
    if (const Value* found = value.entries().find(key)) return *found;
  }
  const bool whole = key.is(Kind::kInt) || key.is(Kind::kBool);
  if (whole && value.is_watched() && key.as_int() >= 0) {
    const auto number = static_cast<size_t>(key.as_int());
    if (value.has_item(number)) return value.item(number);
    return no_element(value, key.as_int());
  }
  if (whole && (value.is_sequence() || value.is(Kind::kString))) {
    JIGE_TRY(const int64_t size, length(value));
    const int64_t at = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    if (at >= 0 && at < size) {
      if (value.is_sequence()) return value.items()[static_cast<size_t>(at)];
      const Value place = Value::integer(at), end = Value::integer(at + 1);
      return slice_value(value, {.begin = &place, .end = &end}, budget_);
    }
    return no_element(value, key.as_int());
  }
  if (key.is(Kind::kString)) return member(value, key.text());
  return Value::undefined(fmt::format("'{}' object has no such element", value.type_name()));
}

Result<Value> Interpreter::filter(const Expr& node, const Value* block_text, Scope& scope) {
  Value input;
  if (!node.parts[0]) {
    input = *block_text;
  } else if (block_text && node.parts[0]->kind == ExprKind::kFilter) {
    JIGE_TRY(input, filter(*node.parts[0], block_text, scope));
  } else {
    JIGE_TRY(input, evaluate(*node.parts[0], scope));
  }
  JIGE_TRY(const Arguments given, arguments(node.arguments, scope));
  return apply_filter(node.text, input, given);
}

Result<Value> Interpreter::apply_filter(std::string_view name, const Value& input,
                                        const Arguments& given) {
  const DepthGuard depth(depth_);
  JIGE_DO(depth.check());
  const Filter found = find_filter(name);
  if (!found) return fail(Code::kUnsupported, "the filter \"{}\" is not supported", name);
  return found({*this, input, given, name});
}

Result<bool> Interpreter::apply_test(std::string_view name, const Value& value,
                                     const Arguments& given) {
  JIGE_DO(budget_.steps(1));
  return run_test(*this, name, value, given);
}

Result<Arguments> Interpreter::arguments(const std::vector<Argument>& list, Scope& scope) {
  Arguments given;
  for (const Argument& argument : list) {
    JIGE_TRY(Value value, evaluate(*argument.value, scope));
    if (argument.spread == Argument::Spread::kItems) {
      JIGE_TRY(const Items items, iterate(value, budget_));
      JIGE_DO(budget_.steps(items.size()));
      given.positional.insert(given.positional.end(), items.begin(), items.end());
    } else if (argument.spread == Argument::Spread::kEntries) {
      JIGE_DO(add_named(value, given, budget_));
    } else if (argument.name.empty()) {
      given.positional.push_back(std::move(value));
    } else {
      given.named.emplace_back(argument.name, std::move(value));
    }
  }
  return given;
}

Result<Value> Interpreter::call(const Expr& node, const Value* caller, Scope& scope) {
  const Expr& callee = *node.parts[0];
  if (callee.kind == ExprKind::kMember) {
    JIGE_TRY(const Value object, evaluate(*callee.parts[0], scope));
    JIGE_TRY(const Arguments given, arguments(node.arguments, scope));
    if (has_method(object, callee.text)) {
      return call_method(*this, object, callee.text, given);
    }
    JIGE_TRY(const Value value, member(object, callee.text));
    return call_value(value, given, caller);
  }
  JIGE_TRY(const Value value, evaluate(callee, scope));
  JIGE_TRY(const Arguments given, arguments(node.arguments, scope));
  return call_value(value, given, caller);
}

Result<Value> Interpreter::call_value(const Value& callee, const Arguments& given,
                                      const Value* caller) {
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(callee.as_macro(), given, caller);
    case Kind::kFunction:
      return call_function(*this, callee.name(), given);
    case Kind::kLoop:
      return call_loop(callee.as_loop(), given);
    case Kind::kCycler:
      if (callee.as_cycler().joins) return call_joiner(callee.as_cycler(), given);
      return fail(Code::kInvalidArgument, "cycler cannot be called, only its next() can");
    case Kind::kUndefined:
      return fail(Code::kInvalidArgument, "{}", callee.undefined_hint());
    case Kind::kMethod:
      return fail(Code::kUnsupported, "the method \"{}\" can only be called where it is named",
                  callee.name());
    default:
      return fail(Code::kInvalidArgument, "{} cannot be called", callee.type_name());
  }
}

Result<Value> Interpreter::call_loop(const LoopState& loop, const Arguments& given) {
  if (!loop.recursive) {
    return fail(Code::kInvalidArgument, "only the loop of a {{% for … recursive %}} can be called");
  }
  JIGE_TRY(const auto bound, bind(given, {"iterable"}, "loop"));
  if (!bound[0]) return fail(Code::kInvalidArgument, "loop needs what it is to go through");
  return loop_text(*loop.recursive, *bound[0], loop.depth + 1);
}

Result<Value> Interpreter::call_macro(const MacroInstance& macro, const Arguments& given,
                                      const Value* caller) {
  const DepthGuard depth(depth_);
  JIGE_DO(depth.check());
  Scope& scope = open_scope(macro.scope);
  if (caller) set(scope, caller_name_, *caller);
  JIGE_DO(bind_parameters(macro, given, scope));
  auto text = captured_text(macro.node->body, nullptr, scope);
  close_scope(scope);
  return text;
}

Status Interpreter::bind_parameters(const MacroInstance& macro, const Arguments& given,
                                    Scope& scope) {
  const auto& parameters = macro.node->parameters;
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = names_[parameters[i].name];
    const auto named = std::find_if(given.named.begin(), given.named.end(),
                                    [&](const auto& pair) { return pair.first == name; });
    if (i < given.positional.size()) {
      if (named != given.named.end()) {
        return fail(Code::kInvalidArgument, "macro {} got two values for \"{}\"", macro.name, name);
      }
      set(scope, parameters[i].name, given.positional[i]);
    } else if (named != given.named.end()) {
      set(scope, parameters[i].name, named->second);
    } else {
      missing.push_back(&parameters[i]);
      set(scope, parameters[i].name,
          Value::undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  // A default sees all parameters, itself among those that have no value yet.
  for (const Parameter* parameter : missing) {
    if (!parameter->fallback) continue;
    JIGE_TRY(Value value, evaluate(*parameter->fallback, scope));
    set(scope, parameter->name, std::move(value));
  }
  return bind_extras(macro, given, scope);
}

// Arguments beyond the parameters: varargs and kwargs where the macro reads them, else an error.
Status Interpreter::bind_extras(const MacroInstance& macro, const Arguments& given, Scope& scope) {
  const auto& parameters = macro.node->parameters;
  Items more;
  for (size_t i = parameters.size(); i < given.positional.size(); ++i) {
    more.push_back(given.positional[i]);
  }
  DictData named;
  for (const auto& [name, value] : given.named) {
    const bool known =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const auto& parameter) { return names_[parameter.name] == name; });
    if (known) continue;
    if (name == "caller") {
      set(scope, caller_name_, value);
    } else {
      named.set(Value::string(name), value);
    }
  }
  if (!macro.node->uses_extras) {
    if (more.empty() && named.entries.empty()) return {};
    return fail(Code::kInvalidArgument, "macro {} takes {} arguments, more were given", macro.name,
                parameters.size());
  }
  JIGE_TRY(Value varargs, Value::tuple(std::move(more), budget_));
  JIGE_TRY(Value kwargs, Value::dict(std::move(named), budget_));
  set(scope, varargs_name_, std::move(varargs));
  set(scope, kwargs_name_, std::move(kwargs));
  return {};
}

}  // namespace jige::text::jinja

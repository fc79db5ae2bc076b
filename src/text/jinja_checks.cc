// The tests of templates: value is name(arguments).
#include <optional>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/unicode.h"

namespace jige::text::jinja {
namespace {

Result<const Value*> only(const Arguments& given, std::string_view name) {
  if (given.positional.size() == 1 && given.named.empty()) return &given.positional[0];
  return fail(Code::kInvalidArgument, "the test \"{}\" takes one argument", name);
}

Result<double> remainder_of(const Value& value, const Value& divisor, Interpreter& run) {
  JIGE_TRY(const Value rest, arithmetic("%", value, divisor, run.budget()));
  if (!rest.is_number()) return fail(Code::kInvalidArgument, "a number is needed");
  return rest.as_double();
}

bool is_lower_text(const Value& value) {
  return value.is(Kind::kString) && to_lower(value.text()) == value.text() &&
         to_upper(value.text()) != value.text();
}

bool is_upper_text(const Value& value) {
  return value.is(Kind::kString) && to_upper(value.text()) == value.text() &&
         to_lower(value.text()) != value.text();
}

bool is_iterable(const Value& value) {
  return value.is_sequence() || value.is(Kind::kString) || value.is(Kind::kDict) ||
         value.is(Kind::kUndefined) || value.is(Kind::kLoop);
}

// Tests of the value alone; nullopt when the name is none of them.
std::optional<bool> plain_test(std::string_view name, const Value& value) {
  if (name == "defined") return !value.is(Kind::kUndefined);
  if (name == "undefined") return value.is(Kind::kUndefined);
  if (name == "none") return value.is(Kind::kNone);
  if (name == "boolean") return value.is(Kind::kBool);
  if (name == "true") return value.is(Kind::kBool) && value.as_bool();
  if (name == "false") return value.is(Kind::kBool) && !value.as_bool();
  if (name == "integer") return value.is(Kind::kInt) || value.large_whole();
  if (name == "float") return value.is(Kind::kFloat) && !value.large_whole();
  if (name == "number") return value.is_number();
  if (name == "string") return value.is(Kind::kString);
  if (name == "mapping") return value.is(Kind::kDict);
  if (name == "sequence") {
    return value.is_sequence() || value.is(Kind::kString) || value.is(Kind::kDict) ||
           value.is(Kind::kUndefined);
  }
  if (name == "iterable") return is_iterable(value);
  if (name == "callable") {
    return value.is(Kind::kMacro) || value.is(Kind::kFunction) || value.is(Kind::kMethod) ||
           value.is(Kind::kLoop) || (value.is(Kind::kCycler) && value.as_cycler().joins);
  }
  if (name == "lower") return is_lower_text(value);
  if (name == "upper") return is_upper_text(value);
  if (name == "escaped") return false;
  return std::nullopt;
}

Result<bool> ordered(std::string_view name, const Value& left, const Value& right, Budget& budget) {
  const bool greater = name[0] == 'g' || name[0] == '>';
  const bool or_equal = name == "ge" || name == "le" || name == ">=" || name == "<=";
  JIGE_TRY(const bool strictly, greater ? less(right, left, budget) : less(left, right, budget));
  if (strictly || !or_equal) return strictly;
  return equals(left, right, budget);
}

}  // namespace

Result<bool> run_test(Interpreter& run, std::string_view name, const Value& value,
                      const Arguments& given) {
  if (const auto result = plain_test(name, value)) {
    if (!given.empty()) {
      return fail(Code::kInvalidArgument, "the test \"{}\" takes no arguments", name);
    }
    return *result;
  }
  if (name == "even" || name == "odd") {
    JIGE_TRY(const double rest, remainder_of(value, Value::integer(2), run));
    return rest == (name == "odd" ? 1 : 0);  // a fraction is neither
  }
  if (name == "filter") return value.is(Kind::kString) && find_filter(value.text()) != nullptr;
  const bool equal = name == "eq" || name == "equalto" || name == "==" || name == "sameas";
  if (equal || name == "ne" || name == "!=") {
    JIGE_TRY(const Value* other, only(given, name));
    // The same object in Python: for the values templates compare so, the same kind and value.
    if (name == "sameas" && value.kind() != other->kind()) return false;
    JIGE_TRY(const bool same, equals(value, *other, run.budget()));
    return same == equal;
  }
  if (name == "in") {
    JIGE_TRY(const Value* container, only(given, name));
    return contains(*container, value, run.budget());
  }
  if (name == "divisibleby") {
    JIGE_TRY(const Value* divisor, only(given, name));
    JIGE_TRY(const double rest, remainder_of(value, *divisor, run));
    return rest == 0;
  }
  for (const std::string_view order :
       {"lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">="}) {
    if (name != order) continue;
    JIGE_TRY(const Value* other, only(given, name));
    return ordered(name, value, *other, run.budget());
  }
  return fail(Code::kUnsupported, "the test \"{}\" is not supported", name);
}

}  // namespace jige::text::jinja

#include "text/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja_percent.h"
#include "text/jinja_text.h"

namespace jige::text::jinja {
namespace {

tl::unexpected<Error> overflow() {
  return fail(Code::kInvalidArgument, "an integer is beyond 64 bits");
}

tl::unexpected<Error> unfit(std::string_view op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (side->is(Kind::kUndefined)) {
      return fail(Code::kInvalidArgument, "{}", side->undefined_hint());
    }
  }
  return fail(Code::kInvalidArgument, "\"{}\" does not work on {} and {}", op, left.type_name(),
              right.type_name());
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// By the exact remainder: 1 // 0.1 is 9, although 1 / 0.1 rounds to 10.
double float_floor_divide(double a, double b) {
  const double rest = std::fmod(a, b);
  const double quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return fail(Code::kInvalidArgument, "division by zero");
    return Value::number(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) return overflow();
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) return overflow();
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) return overflow();
  } else if (op == "**") {
    return integer_power(a, b);
  } else {
    if (b == 0) return fail(Code::kInvalidArgument, "division by zero");
    if (op == "/") return Value::number(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {  // the smallest integer has no positive counterpart
      if (op == "%") return Value::integer(0);
      if (__builtin_sub_overflow(int64_t{0}, a, &result)) return overflow();
    } else {
      const int64_t quotient = floor_divide(a, b);
      result = op == "//" ? quotient : a - quotient * b;
    }
  }
  return Value::integer(result);
}

Result<Value> float_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value::number(a + b);
  if (op == "-") return Value::number(a - b);
  if (op == "*") return Value::number(a * b);
  if (op == "**") return Value::number(std::pow(a, b));
  if (b == 0) return fail(Code::kInvalidArgument, "division by zero");
  if (op == "/") return Value::number(a / b);
  if (op == "//") return Value::number(float_floor_divide(a, b));
  return Value::number(float_modulo(a, b));
}

Result<Value> repeat(const Value& value, int64_t count, Budget& budget) {
  const auto times = static_cast<size_t>(std::max<int64_t>(0, count));
  const size_t unit = value.is(Kind::kString) ? value.text().size() : value.items().size();
  if (times > 0 && unit > static_cast<size_t>(Budget::kBytes) / times) {
    return tl::unexpected<Error>(budget.bytes(static_cast<size_t>(Budget::kBytes) + 1).error());
  }
  if (value.is(Kind::kString)) {
    JIGE_DO(budget.bytes(unit * times));
    std::string text;
    text.reserve(unit * times);
    for (size_t i = 0; i < times && unit > 0; ++i) text += value.text();
    return value.is_markup() ? Value::markup(std::move(text)) : Value::string(std::move(text));
  }
  JIGE_DO(budget.bytes(unit * times * sizeof(Value)));
  Items items;
  for (size_t i = 0; i < times && unit > 0; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Kind::kTuple) ? Value::tuple(std::move(items), budget)
                                : Value::list(std::move(items), budget);
}

Result<Value> add_containers(const Value& left, const Value& right, Budget& budget) {
  if (left.is(Kind::kString)) {
    JIGE_DO(budget.bytes(left.text().size() + right.text().size()));
    if (!left.is_markup() && !right.is_markup()) return Value::string(left.text() + right.text());
    std::string sum = left.is_markup() ? left.text() : escape_html(left.text());
    sum += right.is_markup() ? right.text() : escape_html(right.text());
    JIGE_DO(budget.bytes(sum.size()));
    return Value::markup(std::move(sum));
  }
  JIGE_DO(budget.bytes((left.items().size() + right.items().size()) * sizeof(Value)));
  Items items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(Kind::kTuple) ? Value::tuple(std::move(items), budget)
                               : Value::list(std::move(items), budget);
}

bool given(const Value* bound) { return bound && !bound->is(Kind::kNone); }

// A slice bound as Python clamps it into [low, high].
int64_t clamp_bound(int64_t bound, int64_t size, int64_t low, int64_t high) {
  if (bound < 0) bound += size;
  return std::clamp(bound, low, high);
}

// The places that a slice of `size` items takes, in order. REQUIRES: integer bounds.
Result<std::vector<size_t>> slice_places(int64_t size, const SliceBounds& bounds) {
  const int64_t step = given(bounds.step) ? bounds.step->as_int() : 1;
  if (step == 0) return fail(Code::kInvalidArgument, "a slice step must not be 0");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const int64_t begin = given(bounds.begin) ? clamp_bound(bounds.begin->as_int(), size, low, high)
                                            : (step > 0 ? low : high);
  const int64_t end = given(bounds.end) ? clamp_bound(bounds.end->as_int(), size, low, high)
                                        : (step > 0 ? high : low);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : -static_cast<uint64_t>(step);
  const int64_t distance = step > 0 ? end - begin : begin - end;
  std::vector<size_t> places;
  for (uint64_t i = 0; distance > 0 && i < static_cast<uint64_t>(distance); i += stride) {
    const int64_t at = step > 0 ? begin + static_cast<int64_t>(i) : begin - static_cast<int64_t>(i);
    places.push_back(static_cast<size_t>(at));
    if (stride >= static_cast<uint64_t>(distance)) break;
  }
  return places;
}

}  // namespace

Result<Value> arithmetic(std::string_view op, const Value& left, const Value& right,
                         Budget& budget) {
  if (left.is_number() && right.is_number()) {
    if (left.is(Kind::kFloat) || right.is(Kind::kFloat)) {
      return float_arithmetic(op, left.as_double(), right.as_double());
    }
    return integer_arithmetic(op, left.as_int(), right.as_int());
  }
  const auto is_container = [](const Value& value) {
    return value.is(Kind::kString) || value.is_sequence();
  };
  const auto is_whole = [](const Value& value) {
    return value.is(Kind::kInt) || value.is(Kind::kBool);
  };
  if (op == "+" && is_container(left) && left.kind() == right.kind()) {
    return add_containers(left, right, budget);
  }
  if (op == "*" && is_container(left) && is_whole(right)) {
    return repeat(left, right.as_int(), budget);
  }
  if (op == "*" && is_whole(left) && is_container(right)) {
    return repeat(right, left.as_int(), budget);
  }
  if (op == "%" && left.is(Kind::kString)) return format_percent(left, right, budget);
  return unfit(op, left, right);
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::number(-value.as_double());
  if (!value.is_number()) {
    return fail(Code::kInvalidArgument, "\"-\" does not work on {}", value.type_name());
  }
  return integer_arithmetic("-", 0, value.as_int());
}

Result<Value> slice_value(const Value& value, const SliceBounds& bounds, Budget& budget) {
  if (!value.is(Kind::kString) && !value.is_sequence()) {
    return fail(Code::kInvalidArgument, "{} cannot be sliced", value.type_name());
  }
  for (const Value* bound : {bounds.begin, bounds.end, bounds.step}) {
    if (given(bound) && !bound->is(Kind::kInt) && !bound->is(Kind::kBool)) {
      return fail(Code::kInvalidArgument, "a slice bound must be an integer, not {}",
                  bound->type_name());
    }
  }
  const Value* begin = bounds.begin;
  if (value.is_watched() && given(begin) && begin->as_int() >= 0 && !given(bounds.end) &&
      !given(bounds.step)) {
    return value.tail(static_cast<size_t>(begin->as_int()), budget);
  }
  const bool is_text = value.is(Kind::kString);
  std::vector<std::string_view> letters;
  if (is_text) {
    JIGE_DO(budget.steps(value.text().size() / 8));
    letters = characters(value.text());
  }
  const auto size = static_cast<int64_t>(is_text ? letters.size() : value.items().size());
  JIGE_TRY(const std::vector<size_t> places, slice_places(size, bounds));
  if (!is_text) {
    Items chosen;
    for (const size_t place : places) chosen.push_back(value.items()[place]);
    return value.is(Kind::kTuple) ? Value::tuple(std::move(chosen), budget)
                                  : Value::list(std::move(chosen), budget);
  }
  std::string text;
  for (const size_t place : places) text += letters[place];
  JIGE_DO(budget.bytes(text.size()));
  return Value::string(std::move(text));
}

}  // namespace jige::text::jinja

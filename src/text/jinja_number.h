// Numbers as Python's formats write them, without sign, fill and width.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// Widths and precisions beyond this are refused with kExhausted.
inline constexpr int64_t kFormatSizeMax = 1 << 16;

// Any whole number that a template can have.
struct Whole {
  bool negative = false;
  uint64_t size = 0;
};

// Of integers and booleans; nothing of other values.
std::optional<Whole> whole_of(const Value& value);
// Of fractions too, without what stands behind the point. Fails with kInvalidArgument on what is no
// number, not finite, or beyond 64 bits.
Result<Whole> truncated(const Value& value);

// Its digits to base 2, 8, 10 or 16.
std::string digits_of(uint64_t size, int base);

struct FloatForm {
  char kind = 'f';          // e, f or g; r: as repr shows it
  int precision = 6;        // of e, f and g
  bool alternate = false;   // a point always, and the zeros behind it
  bool with_point = false;  // of g: a fraction shows at least one digit behind the point
};

// |value|: digits, and perhaps point and exponent; "inf" and "nan".
std::string float_digits(double value, const FloatForm& form);

// Appends the character of that number. Fails with kInvalidArgument where there is none.
Status append_character(std::string& out, const Whole& code_point);

// ascii(text): what is no ASCII as \x, \u and \U.
std::string escape_non_ascii(std::string_view text);

}  // namespace jige::text::jinja

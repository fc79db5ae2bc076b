// Arithmetic on template values, with Python's meaning.
//
// Threads: pure functions.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja_value.h"

namespace jige::text::jinja {

// left `op` right for + - * / // % **. Fails with kInvalidArgument on operands that do not fit,
// division by zero and integers beyond 64 bits.
Result<Value> arithmetic(std::string_view op, const Value& left, const Value& right,
                         Budget& budget);

// -value.
Result<Value> negate(const Value& value);

// value[begin:end:step] for strings, lists and tuples; a null or none bound is left out.
struct SliceBounds {
  const Value* begin = nullptr;
  const Value* end = nullptr;
  const Value* step = nullptr;
};
Result<Value> slice_value(const Value& value, const SliceBounds& bounds, Budget& budget);

}  // namespace jige::text::jinja

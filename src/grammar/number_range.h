// Numbers between two bounds, as JSON writes them without an exponent: up to kDigitsMax digits
// before the point and behind it (json_rules.h).
//
// Bounds are compared as the decimal fractions that they are written as, not as binary ones.
// Threads: pure functions of the builder.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/grammar.h"

namespace jige::grammar {

struct NumberBound {
  bool is_negative = false;
  std::string whole = "0";  // digits before the point, no zeros in front
  std::string fraction;     // behind it, no zeros at the end
  bool is_exclusive = false;

  // REQUIRES: a number.
  static NumberBound from_json(const Json& number, bool is_exclusive);
};

struct NumberRange {
  std::optional<NumberBound> low;
  std::optional<NumberBound> high;

  // Narrows the range.
  void raise_low(NumberBound bound);
  void lower_high(NumberBound bound);
};

// One of them, then `next`; nothing where there is none.
std::optional<NodeId> number_within(GrammarBuilder& builder, const NumberRange& range, NodeId next);

}  // namespace jige::grammar

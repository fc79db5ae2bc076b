// Whole numbers between two bounds, as JSON writes them: no zeros in front, no "-0".
//
// Threads: pure functions of the builder.
#pragma once

#include <cstdint>

#include "grammar/grammar.h"

namespace jige::grammar {

inline constexpr int64_t kIntegerMax = 999'999'999'999'999'999;  // kDigitsMax of json_rules.h

struct IntegerRange {
  int64_t low = -kIntegerMax;
  int64_t high = kIntegerMax;
};

// One of them, then `next`. REQUIRES: -kIntegerMax <= low <= high <= kIntegerMax.
NodeId integer_within(GrammarBuilder& builder, IntegerRange range, NodeId next);

}  // namespace jige::grammar

// Pieces of grammars that several builders share: repeats, lists of texts.
//
// Threads: pure functions of the builder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace jige::grammar {

inline constexpr int32_t kUnbounded = -1;
inline constexpr int32_t kRepeatMax = 10'000;

struct Counts {
  int32_t min = 0;
  int32_t max = kUnbounded;
};

// `body`, a function from the node that follows to the node to begin with, so many times.
template <typename Body>
NodeId repeat(GrammarBuilder& builder, Counts counts, NodeId next, const Body& body) {
  NodeId tail = next;
  if (counts.max == kUnbounded) {
    tail = builder.reserve_split();
    builder.set_split(tail, {body(tail), next});
  }
  for (int32_t i = counts.min; i < counts.max && !builder.overflowed(); ++i) {
    tail = builder.split({body(tail), next});
  }
  for (int32_t i = 0; i < counts.min && !builder.overflowed(); ++i) tail = body(tail);
  return tail;
}

// One of the texts, then `next`. REQUIRES: at least one.
NodeId one_of(GrammarBuilder& builder, std::vector<std::string> texts, NodeId next);

}  // namespace jige::grammar

// Where the kernels of the delta rule keep what in their scratch, in floats. Rows of keys and of
// strips are padded to multiples of 16 with zeros, which change no sum.
//
// Threads: values. Every function here is inlined: no copy is shared between instruction sets.
#pragma once

#include "kernels/cpu/delta_rule.h"

namespace jige::cpu {

#define JIGE_DELTA_LAYOUT static inline __attribute__((always_inline))

JIGE_DELTA_LAYOUT int64_t delta_padded(int64_t count) { return (count + 15) / 16 * 16; }
JIGE_DELTA_LAYOUT int64_t delta_strips(int64_t value_dim) {
  return (value_dim + kDeltaStripColumns - 1) / kDeltaStripColumns;
}

struct DeltaForwardLayout {
  int64_t keys;     // [tokens of a chunk][padded dk]
  int64_t queries;  // the same
  int64_t decays;   // the same, where every column of a key has one
  int64_t strips;   // [strips][padded dk][16]
  int64_t total;
};
JIGE_DELTA_LAYOUT DeltaForwardLayout delta_forward_layout(int64_t key_dim, int64_t value_dim,
                                                          bool by_key) {
  const int64_t rows = delta_padded(key_dim);
  DeltaForwardLayout layout = {};
  layout.queries = kDeltaForwardTokens * rows;
  layout.decays = 2 * kDeltaForwardTokens * rows;
  layout.strips = (by_key ? 3 : 2) * kDeltaForwardTokens * rows;
  layout.total = layout.strips + delta_strips(value_dim) * rows * kDeltaStripColumns;
  return layout;
}

struct DeltaBackwardLayout {
  int64_t keys;          // [tokens of a chunk][padded dk]
  int64_t queries;       // the same
  int64_t decays;        // the same, where every column of a key has one
  int64_t states;        // [tokens of a chunk + 1][padded dk][16]
  int64_t grad_state;    // [padded dk][16]
  int64_t deltas;        // [tokens of a chunk][16]
  int64_t errors;        // the same
  int64_t factors;       // [T][2] of queries and keys
  int64_t grad_queries;  // [T][padded dk]
  int64_t grad_keys;     // the same
  int64_t grad_decays;   // the same, where every column of a key has one
  int64_t checkpoints;   // [chunks][padded dk][16]
  int64_t total;
};
JIGE_DELTA_LAYOUT DeltaBackwardLayout delta_backward_layout(int64_t key_dim, int64_t row_count,
                                                            bool by_key) {
  const int64_t rows = delta_padded(key_dim);
  const int64_t strip = rows * kDeltaStripColumns;
  const int64_t chunks = (row_count + kDeltaBackwardTokens - 1) / kDeltaBackwardTokens;
  DeltaBackwardLayout layout = {};
  layout.queries = kDeltaBackwardTokens * rows;
  layout.decays = 2 * kDeltaBackwardTokens * rows;
  layout.states = (by_key ? 3 : 2) * kDeltaBackwardTokens * rows;
  layout.grad_state = layout.states + (kDeltaBackwardTokens + 1) * strip;
  layout.deltas = layout.grad_state + strip;
  layout.errors = layout.deltas + kDeltaBackwardTokens * kDeltaStripColumns;
  layout.factors = layout.errors + kDeltaBackwardTokens * kDeltaStripColumns;
  layout.grad_queries = layout.factors + delta_padded(2 * row_count);
  layout.grad_keys = layout.grad_queries + row_count * rows;
  layout.grad_decays = layout.grad_keys + row_count * rows;
  layout.checkpoints = layout.grad_decays + (by_key ? row_count * rows : 0);
  layout.total = layout.checkpoints + chunks * strip;
  return layout;
}

}  // namespace jige::cpu

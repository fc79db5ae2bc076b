// Where the kernels of the selective scan keep what in their scratch, in floats.
//
// Threads: values. Every function here is inlined: no copy is shared between instruction sets.
#pragma once

#include "kernels/cpu/selective_scan.h"

namespace jige::cpu {

#define JIGE_SCAN_LAYOUT static inline __attribute__((always_inline))

// The numbers of a channel's state with what they are padded with.
JIGE_SCAN_LAYOUT int64_t scan_padded(int64_t state_dim) { return (state_dim + 15) / 16 * 16; }

struct ScanForwardLayout {
  int64_t scales;  // [padded N][16]
  int64_t state;   // the same
  int64_t b;       // [tokens of a chunk][padded N]
  int64_t c;       // the same
  int64_t total;
};
JIGE_SCAN_LAYOUT ScanForwardLayout scan_forward_layout(int64_t state_dim) {
  const int64_t rows = scan_padded(state_dim);
  ScanForwardLayout layout = {};
  layout.state = rows * kScanStripColumns;
  layout.b = 2 * rows * kScanStripColumns;
  layout.c = layout.b + kScanForwardTokens * rows;
  layout.total = layout.c + kScanForwardTokens * rows;
  return layout;
}

struct ScanBackwardLayout {
  int64_t scales;       // [padded N][16]
  int64_t b;            // [tokens of a chunk][padded N]
  int64_t c;            // the same
  int64_t states;       // [tokens of a chunk + 1][padded N][16]
  int64_t decays;       // [tokens of a chunk][padded N][16]
  int64_t grad_state;   // [padded N][16]
  int64_t grad_scales;  // the same, of W
  int64_t sums_b;       // [T][padded N], of X
  int64_t sums_c;       // the same
  int64_t checkpoints;  // [chunks][padded N][16]
  int64_t total;
};
JIGE_SCAN_LAYOUT ScanBackwardLayout scan_backward_layout(int64_t state_dim, int64_t row_count) {
  const int64_t rows = scan_padded(state_dim);
  const int64_t strip = rows * kScanStripColumns;
  const int64_t chunks = (row_count + kScanBackwardTokens - 1) / kScanBackwardTokens;
  ScanBackwardLayout layout = {};
  layout.b = strip;
  layout.c = layout.b + kScanBackwardTokens * rows;
  layout.states = layout.c + kScanBackwardTokens * rows;
  layout.decays = layout.states + (kScanBackwardTokens + 1) * strip;
  layout.grad_state = layout.decays + kScanBackwardTokens * strip;
  layout.grad_scales = layout.grad_state + strip;
  layout.sums_b = layout.grad_scales + strip;
  layout.sums_c = layout.sums_b + row_count * rows;
  layout.checkpoints = layout.sums_c + row_count * rows;
  layout.total = layout.checkpoints + chunks * strip;
  return layout;
}

}  // namespace jige::cpu

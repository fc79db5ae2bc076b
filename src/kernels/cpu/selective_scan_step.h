// What forward and backward of the selective scan share: a strip's scales, and a token's step.
// Included by sources compiled once per instruction set.
// Threads: pure functions.
#pragma once

#include "kernels/cpu/selective_scan_layout.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {

using ScanVector = F32x16;
static_assert(ScanVector::kLanes == kScanStripColumns);

// Sums over the state are so many chains.
inline constexpr int64_t kScanChains = 4;

// A strip of channels.
struct ScanStrip {
  int64_t column;
  int lanes;
};
JIGE_INLINE ScanStrip scan_strip(int64_t columns, int64_t strip) {
  const int64_t column = strip * kScanStripColumns;
  const int64_t left = columns - column;
  return {column, static_cast<int>(left < kScanStripColumns ? left : kScanStripColumns)};
}

// A = -exp(log_scale) as [padded N][16], zero where there is no channel or no number.
JIGE_INLINE void load_scales(const SelectiveScanOperands& in, const ScanStrip& strip,
                             float* scales) {
  using V = ScanVector;
  const int64_t rows = scan_padded(in.state_dim);
  for (int64_t i = 0; i < rows * kScanStripColumns; ++i) scales[i] = -__builtin_inff();
  for (int lane = 0; lane < strip.lanes; ++lane) {
    const float* channel = in.log_scale + (strip.column + lane) * in.state_dim;
    for (int64_t n = 0; n < in.state_dim; ++n) scales[n * kScanStripColumns + lane] = channel[n];
  }
  for (int64_t n = 0; n < rows; ++n) {
    float* at = scales + n * kScanStripColumns;
    (V::zero() - exp(V::load(at))).store(at);
  }
}

// A token's row of B or C in f32, with zeros up to the padded size.
JIGE_INLINE void load_state_row(const ConstRows& src, int64_t row, int64_t count, float* dst) {
  using V = ScanVector;
  for_each_vector<V>(count,
                     [&](int64_t i, int lanes) { load_any<V>(src, row, i, lanes).store(dst + i); });
}

// What a token brings to a strip.
struct ScanToken {
  ScanVector x;
  ScanVector argument;  // a + bias
  ScanVector step;      // softplus of it
};
JIGE_INLINE ScanToken load_scan_token(const SelectiveScanOperands& in, const ScanStrip& strip,
                                      int64_t row) {
  using V = ScanVector;
  ScanToken token;
  token.x = load_any<V>(in.x, row, strip.column, strip.lanes);
  token.argument = load_any<V>(in.a, row, strip.column, strip.lanes) +
                   load_lanes<V>(in.bias + strip.column, strip.lanes);
  token.step = softplus(token.argument);
  return token;
}

// One number of the state after a token, and what it has kept of it.
struct ScanNumber {
  ScanVector decay;
  ScanVector after;
};
JIGE_INLINE ScanNumber scan_number(ScanVector before, ScanVector scale, ScanVector step,
                                   ScanVector input, float b) {
  const ScanVector decay = exp(step * scale);
  return {decay, fma(ScanVector::broadcast(b), input, decay * before)};
}

}  // namespace jige::cpu::JIGE_ISA_NS

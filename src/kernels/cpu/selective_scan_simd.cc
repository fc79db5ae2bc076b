#include "kernels/cpu/selective_scan.h"

#include "kernels/cpu/selective_scan_step.h"

namespace jige::cpu::JIGE_ISA_NS {

void scan_backward_input(const SelectiveScanBackwardArgs& args,
                         const SelectiveScanBackwardWork& work) noexcept;
void scan_backward_weight(const SelectiveScanBackwardArgs& args,
                          const SelectiveScanBackwardWork& work) noexcept;
void scan_sum_groups(const SelectiveScanSumArgs& args, int64_t row_begin, int64_t row_end) noexcept;

namespace {

using V = ScanVector;

// Σ h C of a token, whose step the state takes.
JIGE_INLINE V scan_step(float* state, const float* scales, int64_t rows, const ScanToken& token,
                        const float* b, const float* c) {
  V chains[kScanChains] = {V::zero(), V::zero(), V::zero(), V::zero()};
  const V input = token.step * token.x;
  for (int64_t n = 0; n < rows; n += kScanChains) {
    for (int64_t p = 0; p < kScanChains; ++p) {
      float* at = state + (n + p) * kScanStripColumns;
      const V scale = V::load(scales + (n + p) * kScanStripColumns);
      const V after = scan_number(V::load(at), scale, token.step, input, b[n + p]).after;
      after.store(at);
      chains[p] = fma(V::broadcast(c[n + p]), after, chains[p]);
    }
  }
  return (chains[0] + chains[1]) + (chains[2] + chains[3]);
}

// A strip through a chunk's tokens.
JIGE_FLATTEN void run_strip_chunk(const SelectiveScanForwardArgs& args, const ScanStrip& strip,
                                  int64_t row_begin, int64_t count, float* scratch) {
  const SelectiveScanOperands& in = args.in;
  const ScanForwardLayout layout = scan_forward_layout(in.state_dim);
  const int64_t padded = scan_padded(in.state_dim);
  const int64_t rows = (in.state_dim + kScanChains - 1) / kScanChains * kScanChains;
  const V skip = load_lanes<V>(in.skip + strip.column, strip.lanes);
  for (int64_t t = 0; t < count; ++t) {
    const int64_t row = row_begin + t;
    const ScanToken token = load_scan_token(in, strip, row);
    const V sum = scan_step(scratch + layout.state, scratch + layout.scales, rows, token,
                            scratch + layout.b + t * padded, scratch + layout.c + t * padded);
    store_any(fma(skip, token.x, sum), args.dst, row, strip.column, strip.lanes);
  }
}

JIGE_FLATTEN void load_forward_chunk(const SelectiveScanOperands& in, int64_t row_begin,
                                     int64_t count, float* scratch) {
  const ScanForwardLayout layout = scan_forward_layout(in.state_dim);
  const int64_t padded = scan_padded(in.state_dim);
  for (int64_t t = 0; t < count; ++t) {
    load_state_row(in.b, row_begin + t, in.state_dim, scratch + layout.b + t * padded);
    load_state_row(in.c, row_begin + t, in.state_dim, scratch + layout.c + t * padded);
  }
}

// A strip's h between the sequence's states and the scratch.
JIGE_FLATTEN void begin_state(const SelectiveScanOperands& in, const ScanStrip& strip,
                              const float* state, float* dst) {
  for (int64_t n = 0; n < scan_padded(in.state_dim); ++n) {
    const bool kept = state && n < in.state_dim;
    const V row = kept ? load_lanes<V>(state + n * strip.lanes, strip.lanes) : V::zero();
    row.store(dst + n * kScanStripColumns);
  }
}
JIGE_FLATTEN void end_state(const SelectiveScanOperands& in, const ScanStrip& strip,
                            const float* src, float* state) {
  for (int64_t n = 0; n < in.state_dim; ++n) {
    store_lanes(V::load(src + n * kScanStripColumns), state + n * strip.lanes, strip.lanes);
  }
}

void scan_forward(const SelectiveScanForwardArgs& args,
                  const SelectiveScanForwardWork& work) noexcept {
  const SelectiveScanOperands& in = args.in;
  const ScanForwardLayout layout = scan_forward_layout(in.state_dim);
  auto* scratch = static_cast<float*>(work.scratch);
  for (int64_t s = work.strip_begin; s < work.strip_end; ++s) {
    const ScanStrip strip = scan_strip(in.columns, s);
    float* state = work.state ? work.state + strip.column * in.state_dim : nullptr;
    load_scales(in, strip, scratch + layout.scales);
    begin_state(in, strip, work.resumed ? state : nullptr, scratch + layout.state);
    for (int64_t t = 0; t < work.row_count; t += kScanForwardTokens) {
      const int64_t left = work.row_count - t;
      const int64_t count = left < kScanForwardTokens ? left : kScanForwardTokens;
      load_forward_chunk(in, work.row_begin + t, count, scratch);
      run_strip_chunk(args, strip, work.row_begin + t, count, scratch);
    }
    if (state) end_state(in, strip, scratch + layout.state, state);
  }
}

}  // namespace

extern const SelectiveScanKernels kSelectiveScanKernels;
const SelectiveScanKernels kSelectiveScanKernels = {scan_forward, scan_backward_input,
                                                    scan_backward_weight, scan_sum_groups};

}  // namespace jige::cpu::JIGE_ISA_NS

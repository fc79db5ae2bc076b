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
constexpr int64_t kColumns = kScanStripColumns;

// The scratch of a work, and the sequence.
struct ScanBackward {
  const SelectiveScanBackwardArgs& args;
  const SelectiveScanBackwardWork& work;
  ScanBackwardLayout layout;
  float* scratch;
  int64_t rows;  // padded N

  float* scales() const { return scratch + layout.scales; }
  float* b(int64_t t) const { return scratch + layout.b + t * rows; }
  float* c(int64_t t) const { return scratch + layout.c + t * rows; }
  float* state(int64_t t) const { return scratch + layout.states + t * rows * kColumns; }
  float* decay(int64_t t) const { return scratch + layout.decays + t * rows * kColumns; }
  float* grad_state() const { return scratch + layout.grad_state; }
  float* grad_scales() const { return scratch + layout.grad_scales; }
  float* sums_b(int64_t t) const { return scratch + layout.sums_b + t * rows; }
  float* sums_c(int64_t t) const { return scratch + layout.sums_c + t * rows; }
  float* checkpoint(int64_t chunk) const {
    return scratch + layout.checkpoints + chunk * rows * kColumns;
  }
  size_t strip_bytes() const { return static_cast<size_t>(rows * kColumns) * sizeof(float); }
};

ScanBackward scan_backward(const SelectiveScanBackwardArgs& args,
                           const SelectiveScanBackwardWork& work) {
  return {args, work, scan_backward_layout(args.in.state_dim, work.row_count),
          static_cast<float*>(work.scratch), scan_padded(args.in.state_dim)};
}

// A chunk of tokens, from `first` on of the sequence.
struct ScanChunk {
  int64_t first;
  int64_t count;
};

JIGE_FLATTEN ScanChunk load_chunk(const ScanBackward& run, int64_t index) {
  const SelectiveScanOperands& in = run.args.in;
  const int64_t first = index * kScanBackwardTokens;
  const int64_t left = run.work.row_count - first;
  const ScanChunk chunk = {first, left < kScanBackwardTokens ? left : kScanBackwardTokens};
  for (int64_t t = 0; t < chunk.count; ++t) {
    load_state_row(in.b, run.work.row_begin + first + t, in.state_dim, run.b(t));
    load_state_row(in.c, run.work.row_begin + first + t, in.state_dim, run.c(t));
  }
  return chunk;
}

// Runs a chunk forward from state 0. With kKeep state t + 1 is that behind token t, and what tokens
// keep is kept; else state 0 becomes that behind the last token.
template <bool kKeep>
JIGE_FLATTEN void replay(const ScanBackward& run, const ScanStrip& strip, const ScanChunk& chunk) {
  for (int64_t t = 0; t < chunk.count; ++t) {
    const ScanToken token =
        load_scan_token(run.args.in, strip, run.work.row_begin + chunk.first + t);
    const V input = token.step * token.x;
    const float* before = run.state(kKeep ? t : 0);
    float* after = run.state(kKeep ? t + 1 : 0);
    for (int64_t n = 0; n < run.rows; ++n) {
      const int64_t at = n * kColumns;
      const ScanNumber number = scan_number(V::load(before + at), V::load(run.scales() + at),
                                            token.step, input, run.b(t)[n]);
      number.after.store(after + at);
      if (kKeep) number.decay.store(run.decay(t) + at);
    }
  }
}

// What the state's numbers say of a token.
struct ScanSums {
  V of_input;  // Σ dh B
  V of_step;   // Σ g A
};

// Goes a token back: dh becomes that of the token before. Adds to the sums over channels (X) or to
// the gradients of the scales, but for A (W).
template <bool kWeight>
JIGE_INLINE ScanSums step_back(const ScanBackward& run, int64_t t, int64_t index,
                               const ScanToken& token, V grad_dst) {
  const V input = token.step * token.x;
  V of_input[kScanChains] = {V::zero(), V::zero(), V::zero(), V::zero()};
  V of_step[kScanChains] = {V::zero(), V::zero(), V::zero(), V::zero()};
  for (int64_t block = 0; block < run.rows; block += 16) {
    V products_b[16], products_c[16];
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t n = block + r;
      const int64_t at = n * kColumns;
      const V grad = fma(V::broadcast(run.c(t)[n]), grad_dst, V::load(run.grad_state() + at));
      const V decay = V::load(run.decay(t) + at);
      const V kept = grad * (decay * V::load(run.state(t) + at));
      const int64_t p = r % kScanChains;
      if (kWeight) {
        float* sum = run.grad_scales() + at;
        fma(kept, token.step, V::load(sum)).store(sum);
      } else {
        products_b[r] = grad * input;
        products_c[r] = V::load(run.state(t + 1) + at) * grad_dst;
      }
      of_input[p] = fma(V::broadcast(run.b(t)[n]), grad, of_input[p]);
      of_step[p] = fma(kept, V::load(run.scales() + at), of_step[p]);
      (decay * grad).store(run.grad_state() + at);
    }
    if (kWeight) continue;
    float* const b = run.sums_b(index) + block;
    float* const c = run.sums_c(index) + block;
    (V::load(b) + row_sums(products_b)).store(b);
    (V::load(c) + row_sums(products_c)).store(c);
  }
  return {(of_input[0] + of_input[1]) + (of_input[2] + of_input[3]),
          (of_step[0] + of_step[1]) + (of_step[2] + of_step[3])};
}

// The gradients of bias and skip of a strip, of one sequence.
struct ScanVectorGradients {
  V bias = V::zero();
  V skip = V::zero();
};

// Goes through a chunk's tokens from the last to the first.
template <bool kWeight>
JIGE_FLATTEN void scan_back(const ScanBackward& run, const ScanStrip& strip, const ScanChunk& chunk,
                            ScanVectorGradients* vectors) {
  const SelectiveScanBackwardArgs& args = run.args;
  const V skip = load_lanes<V>(args.in.skip + strip.column, strip.lanes);
  for (int64_t t = chunk.count - 1; t >= 0; --t) {
    const int64_t index = chunk.first + t;
    const int64_t row = run.work.row_begin + index;
    const ScanToken token = load_scan_token(args.in, strip, row);
    const V grad_dst = load_any<V>(args.grad_dst, row, strip.column, strip.lanes);
    const ScanSums sums = step_back<kWeight>(run, t, index, token, grad_dst);
    const V grad_step = fma(token.x, sums.of_input, sums.of_step);
    const V grad_a = grad_step * softplus_slope(token.argument);
    if (kWeight) {
      vectors->bias = vectors->bias + grad_a;
      vectors->skip = fma(grad_dst, token.x, vectors->skip);
      continue;
    }
    store_any(fma(skip, grad_dst, token.step * sums.of_input), args.grad_x, row, strip.column,
              strip.lanes);
    store_any(grad_a, args.grad_a, row, strip.column, strip.lanes);
  }
}

template <bool kWeight>
void run_strip(const ScanBackward& run, const ScanStrip& strip, ScanVectorGradients* vectors) {
  const int64_t chunks = (run.work.row_count + kScanBackwardTokens - 1) / kScanBackwardTokens;
  load_scales(run.args.in, strip, run.scales());
  std::memset(run.state(0), 0, run.strip_bytes());
  for (int64_t c = 0; c < chunks; ++c) {
    std::memcpy(run.checkpoint(c), run.state(0), run.strip_bytes());
    if (c + 1 < chunks) replay<false>(run, strip, load_chunk(run, c));
  }
  std::memset(run.grad_state(), 0, run.strip_bytes());
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const ScanChunk chunk = load_chunk(run, c);
    std::memcpy(run.state(0), run.checkpoint(c), run.strip_bytes());
    replay<true>(run, strip, chunk);
    scan_back<kWeight>(run, strip, chunk, vectors);
  }
}

JIGE_INLINE void add_to(float* dst, V value, int lanes) {
  store_lanes(load_lanes<V>(dst, lanes) + value, dst, lanes);
}

// dlog_scale += A Σ g step of a strip.
JIGE_FLATTEN void add_scale_gradients(const ScanBackward& run, const ScanStrip& strip) {
  const int64_t count = run.args.in.state_dim;
  for (int64_t n = 0; n < count; ++n) {
    float lanes[kColumns];
    (V::load(run.grad_scales() + n * kColumns) * V::load(run.scales() + n * kColumns)).store(lanes);
    for (int lane = 0; lane < strip.lanes; ++lane) {
      run.args.grad_log_scale[(strip.column + lane) * count + n] += lanes[lane];
    }
  }
}

JIGE_FLATTEN void store_sums(const ScanBackward& run) {
  const int64_t count = run.args.in.state_dim;
  const int64_t column = run.work.strip_begin / kScanGroupStrips * 2 * count;
  for (int64_t t = 0; t < run.work.row_count; ++t) {
    float* dst = row_of<float>(run.args.sums, run.work.row_begin + t) + column;
    for_each_vector<V>(count, [&](int64_t i, int lanes) {
      store_lanes(V::load(run.sums_b(t) + i), dst + i, lanes);
      store_lanes(V::load(run.sums_c(t) + i), dst + count + i, lanes);
    });
  }
}

}  // namespace

void scan_backward_input(const SelectiveScanBackwardArgs& args,
                         const SelectiveScanBackwardWork& work) noexcept {
  const ScanBackward run = scan_backward(args, work);
  const auto sums_bytes = static_cast<size_t>(2 * work.row_count * run.rows) * sizeof(float);
  std::memset(run.sums_b(0), 0, sums_bytes);  // and those of C, which lie behind
  for (int64_t s = work.strip_begin; s < work.strip_end; ++s) {
    run_strip<false>(run, scan_strip(args.in.columns, s), nullptr);
  }
  store_sums(run);
}

void scan_backward_weight(const SelectiveScanBackwardArgs& args,
                          const SelectiveScanBackwardWork& work) noexcept {
  const ScanBackward run = scan_backward(args, work);
  for (int64_t s = work.strip_begin; s < work.strip_end; ++s) {
    const ScanStrip strip = scan_strip(args.in.columns, s);
    ScanVectorGradients vectors;
    std::memset(run.grad_scales(), 0, run.strip_bytes());
    run_strip<true>(run, strip, &vectors);
    add_scale_gradients(run, strip);
    add_to(args.grad_bias + strip.column, vectors.bias, strip.lanes);
    add_to(args.grad_skip + strip.column, vectors.skip, strip.lanes);
  }
}

JIGE_FLATTEN void scan_sum_groups(const SelectiveScanSumArgs& args, int64_t row_begin,
                                  int64_t row_end) noexcept {
  const int64_t count = args.state_dim;
  const auto sum = [&](int64_t row, int64_t column, int lanes) {
    const float* src = row_of<float>(args.sums, row) + column;
    V total = load_lanes<V>(src, lanes);
    for (int64_t g = 1; g < args.groups; ++g) {
      total = total + load_lanes<V>(src + g * 2 * count, lanes);
    }
    return total;
  };
  for (int64_t row = row_begin; row < row_end; ++row) {
    for_each_vector<V>(count, [&](int64_t i, int lanes) {
      store_any(sum(row, i, lanes), args.grad_b, row, i, lanes);
      store_any(sum(row, count + i, lanes), args.grad_c, row, i, lanes);
    });
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS

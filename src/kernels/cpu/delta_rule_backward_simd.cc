#include "kernels/cpu/delta_rule.h"
#include "kernels/cpu/delta_rule_step.h"

namespace jige::cpu::JIGE_ISA_NS {

void delta_backward(const DeltaRuleBackwardArgs& args, const DeltaRuleBackwardWork& work) noexcept;

namespace {

using V = F32x16;
constexpr int64_t kColumns = kDeltaStripColumns;

// The scratch of a work, and the sequence.
struct DeltaBackward {
  const DeltaRuleBackwardArgs& args;
  const DeltaRuleBackwardWork& work;
  DeltaBackwardLayout layout;
  float* scratch;
  int64_t rows;  // padded key dimension

  float* key(int64_t t) const { return scratch + layout.keys + t * rows; }
  float* decays(int64_t t) const { return scratch + layout.decays + t * rows; }
  float* query(int64_t t) const { return scratch + layout.queries + t * rows; }
  float* state(int64_t t) const { return scratch + layout.states + t * rows * kColumns; }
  float* grad_state() const { return scratch + layout.grad_state; }
  float* delta(int64_t t) const { return scratch + layout.deltas + t * kColumns; }
  float* error(int64_t t) const { return scratch + layout.errors + t * kColumns; }
  float* factors(int64_t t) const { return scratch + layout.factors + 2 * t; }
  float* grad_query(int64_t t) const { return scratch + layout.grad_queries + t * rows; }
  float* grad_key(int64_t t) const { return scratch + layout.grad_keys + t * rows; }
  float* grad_decay(int64_t t) const { return scratch + layout.grad_decays + t * rows; }
  float* checkpoint(int64_t chunk) const {
    return scratch + layout.checkpoints + chunk * rows * kColumns;
  }
  size_t strip_bytes() const { return static_cast<size_t>(rows * kColumns) * sizeof(float); }
};

// A strip of a value head, and a chunk of tokens from `first` on of the sequence.
struct BackwardStrip {
  int64_t head;
  bool first;      // of the head
  int64_t column;  // of v
  int lanes;
};
struct BackwardChunk {
  int64_t first;
  int64_t count;
  DeltaToken tokens[kDeltaBackwardTokens];
};

template <bool kCorrects>
JIGE_FLATTEN void prepare_factors(const DeltaBackward& run) {
  for (int64_t t = 0; t < run.work.row_count; ++t) {
    const DeltaFactors factors =
        delta_factors<kCorrects>(run.args.in, run.work.row_begin + t, run.work.key_head);
    run.factors(t)[0] = factors.query;
    run.factors(t)[1] = factors.key;
  }
}

template <DeltaKind kKind>
JIGE_FLATTEN void load_chunk(const DeltaBackward& run, int64_t head, int64_t index,
                             BackwardChunk* chunk) {
  constexpr bool kByKey = kKind == DeltaKind::kByKey;
  const DeltaRuleOperands& in = run.args.in;
  const int64_t column = run.work.key_head * in.key_dim;
  chunk->first = index * kDeltaBackwardTokens;
  const int64_t left = run.work.row_count - chunk->first;
  chunk->count = left < kDeltaBackwardTokens ? left : kDeltaBackwardTokens;
  for (int64_t t = 0; t < chunk->count; ++t) {
    const int64_t row = run.work.row_begin + chunk->first + t;
    const float* factors = run.factors(chunk->first + t);
    delta_scale_row(run.query(t), in.q, row, column, in.key_dim,
                    factors[0] * delta_query_scale<delta_corrects(kKind)>(in.key_dim));
    delta_scale_row(run.key(t), in.k, row, column, in.key_dim, factors[1]);
    if (kByKey) delta_decays(in, row, head, run.decays(t));
    chunk->tokens[t] = {run.key(t),
                        run.query(t),
                        kByKey ? run.decays(t) : nullptr,
                        kByKey ? 1.0f : delta_decay(in, row, head),
                        row_of<float>(in.rate, row)[head],
                        delta_skip(in, head)};
  }
}

// Fetches some numbers that are read soon: between two uses a whole strip went by, so they are no
// longer in the near caches, and rows lie too far apart for the processor to foresee them.
JIGE_INLINE void fetch(const void* first, int64_t bytes) {
  const auto* at = static_cast<const char*>(first);
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
  _mm_prefetch(at + bytes - 1, _MM_HINT_T0);
}
JIGE_INLINE void fetch_columns(const ConstRows& rows, int64_t row, int64_t column, int64_t count) {
  const int64_t bytes = rows.type == ElementType::kF32 ? 4 : 2;
  fetch(static_cast<const char*>(rows.data) + (row * rows.stride + column) * bytes, count * bytes);
}

// Fetches what a strip reads of a token, if it is one of the sequence.
JIGE_INLINE void fetch_token(const DeltaBackward& run, const BackwardStrip& strip, int64_t index) {
  if (index < 0 || index >= run.work.row_count) return;
  const DeltaRuleOperands& in = run.args.in;
  const int64_t row = run.work.row_begin + index;
  fetch_columns(in.q, row, run.work.key_head * in.key_dim, in.key_dim);
  fetch_columns(in.k, row, run.work.key_head * in.key_dim, in.key_dim);
  fetch_columns(in.v, row, strip.column, strip.lanes);
  fetch_columns(run.args.grad_dst, row, strip.column, strip.lanes);
}

// Runs a chunk forward from state 0. With kKeep state t + 1 is that behind token t, and its δ and
// v - m are kept; else state 0 becomes that behind the last token.
template <DeltaKind kKind, bool kKeep>
JIGE_FLATTEN void replay(const DeltaBackward& run, const BackwardStrip& strip,
                         const BackwardChunk& chunk) {
  for (int64_t t = 0; t < chunk.count; ++t) {
    const int64_t row = run.work.row_begin + chunk.first + t;
    // Of the chunk that comes next.
    fetch_token(run, strip, chunk.first + t + (kKeep ? -1 : 1) * kDeltaBackwardTokens);
    const V values[1] = {load_any<V>(run.args.in.v, row, strip.column, strip.lanes)};
    const DeltaStripStep step[1] = {{run.state(kKeep ? t : 0), run.state(kKeep ? t + 1 : 0)}};
    const DeltaResults<1> results = delta_step<kKind>(step, run.rows, chunk.tokens[t], values);
    if (!kKeep) continue;
    results.deltas[0].store(run.delta(t));
    results.errors[0].store(run.error(t));
  }
}

// Adds the sums of sixteen rows of products to sixteen numbers.
JIGE_INLINE void add_row_sums(const V* products, float* sums) {
  (V::load(sums) + row_sums(products)).store(sums);
}

// dS += q^ doᵀ and dq^ += S do of a token; gives dδ = dSᵀ k^.
JIGE_INLINE V grad_of_delta(const DeltaBackward& run, const DeltaToken& token, int64_t t,
                            V grad_dst, float* grad_query) {
  const float* state = run.state(t + 1);
  float* grad_state = run.grad_state();
  V chains[kDeltaChains] = {V::zero(), V::zero(), V::zero(), V::zero()};
  for (int64_t i = 0; i < run.rows; i += 16) {
    V products[16];
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t at = (i + r) * kColumns;
      const V grad = fma(V::broadcast(token.query[i + r]), grad_dst, V::load(grad_state + at));
      grad.store(grad_state + at);
      V& chain = chains[r % kDeltaChains];
      chain = fma(V::broadcast(token.key[i + r]), grad, chain);
      products[r] = V::load(state + at) * grad_dst;
    }
    add_row_sums(products, grad_query + i);
  }
  return (chains[0] + chains[1]) + (chains[2] + chains[3]);
}

// dk^ += dS δ + S~ dm, and dS becomes that of the token before; gives Σ dS~ ∘ S~, or adds the sums
// of its rows to those of the key's columns.
template <DeltaKind kKind>
JIGE_INLINE float grad_of_decay(const DeltaBackward& run, const DeltaToken& token, int64_t t,
                                V grad_memory, int64_t index) {
  constexpr bool kCorrects = delta_corrects(kKind);
  constexpr bool kByKey = kKind == DeltaKind::kByKey;
  float* const grad_key = run.grad_key(index);
  const float* state = run.state(t);
  float* grad_state = run.grad_state();
  const V delta = V::load(run.delta(t));
  const V decay = V::broadcast(token.decay);
  V chains[kDeltaChains] = {V::zero(), V::zero(), V::zero(), V::zero()};
  for (int64_t i = 0; i < run.rows; i += 16) {
    V products[16], of_decays[16];
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t at = (i + r) * kColumns;
      const V fades = kByKey ? V::broadcast(token.decays[i + r]) : decay;
      const V faded = fades * V::load(state + at);
      const V grad = V::load(grad_state + at);
      products[r] = kCorrects ? fma(faded, grad_memory, grad * delta) : grad * delta;
      const V grad_faded =
          kCorrects ? fma(V::broadcast(token.key[i + r]), grad_memory, grad) : grad;
      if (kByKey) {
        of_decays[r] = grad_faded * faded;
      } else {
        V& chain = chains[r % kDeltaChains];
        chain = fma(grad_faded, faded, chain);
      }
      (fades * grad_faded).store(grad_state + at);
    }
    add_row_sums(products, grad_key + i);
    if (kByKey) add_row_sums(of_decays, run.grad_decay(index) + i);
  }
  return horizontal_sum((chains[0] + chains[1]) + (chains[2] + chains[3]));
}

// A number of a head: what its strips give, in ascending order.
JIGE_INLINE void add_of_strip(const Rows& rows, int64_t row, const BackwardStrip& strip,
                              float value) {
  float& sum = row_of<float>(rows, row)[strip.head];
  sum = strip.first ? value : sum + value;
}

// Goes through a chunk's tokens from the last to the first.
template <DeltaKind kKind>
JIGE_FLATTEN void scan_back(const DeltaBackward& run, const BackwardStrip& strip,
                            const BackwardChunk& chunk) {
  constexpr bool kCorrects = delta_corrects(kKind);
  for (int64_t t = chunk.count - 1; t >= 0; --t) {
    const int64_t index = chunk.first + t;
    const int64_t row = run.work.row_begin + index;
    const DeltaToken& token = chunk.tokens[t];
    if (index > 0) {
      const int64_t bytes = run.rows * static_cast<int64_t>(sizeof(float));
      fetch(run.grad_query(index - 1), bytes);
      fetch(run.grad_key(index - 1), bytes);
    }
    const V grad_dst = load_any<V>(run.args.grad_dst, row, strip.column, strip.lanes);
    const V grad_delta = grad_of_delta(run, token, t, grad_dst, run.grad_query(index));
    const V grad_value = V::broadcast(token.rate) * grad_delta;
    store_any(kCorrects ? grad_value : fma(V::broadcast(token.skip), grad_dst, grad_value),
              run.args.grad_v, row, strip.column, strip.lanes);
    const V error = V::load(run.error(t));
    add_of_strip(run.args.grad_rate, row, strip, horizontal_sum(grad_delta * error));
    const float grad_decay = grad_of_decay<kKind>(run, token, t, -grad_value, index);
    if (kKind != DeltaKind::kByKey) {
      add_of_strip(run.args.grad_log_decay, row, strip, grad_decay);
    }
    if (!kCorrects && run.args.in.skip) {
      add_of_strip(run.args.slopes_skip, row, strip, horizontal_sum(grad_dst * error));
    }
  }
}

template <DeltaKind kKind>
void run_strip(const DeltaBackward& run, const BackwardStrip& strip) {
  const int64_t chunks = (run.work.row_count + kDeltaBackwardTokens - 1) / kDeltaBackwardTokens;
  BackwardChunk chunk;
  std::memset(run.state(0), 0, run.strip_bytes());
  for (int64_t c = 0; c < chunks; ++c) {
    std::memcpy(run.checkpoint(c), run.state(0), run.strip_bytes());
    if (c + 1 == chunks) break;
    load_chunk<kKind>(run, strip.head, c, &chunk);
    replay<kKind, false>(run, strip, chunk);
  }
  std::memset(run.grad_state(), 0, run.strip_bytes());
  for (int64_t c = chunks - 1; c >= 0; --c) {
    load_chunk<kKind>(run, strip.head, c, &chunk);
    std::memcpy(run.state(0), run.checkpoint(c), run.strip_bytes());
    replay<kKind, true>(run, strip, chunk);
    scan_back<kKind>(run, strip, chunk);
  }
}

// With u = f x the unit vector of x and du its gradient: dx = f (du - u (u · du)).
JIGE_INLINE void grad_of_normalised(const Rows& dst, const ConstRows& src, int64_t row,
                                    int64_t column, int64_t count, float factor, float scale,
                                    const float* grad) {
  const V unit_factor = V::broadcast(factor);
  const V grad_factor = V::broadcast(scale);
  V sum = V::zero();
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V unit = load_any<V>(src, row, column + i, lanes) * unit_factor;
    sum = fma(unit, V::load(grad + i) * grad_factor, sum);
  });
  const V along = V::broadcast(-horizontal_sum(sum));
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V unit = load_any<V>(src, row, column + i, lanes) * unit_factor;
    const V across = fma(unit, along, V::load(grad + i) * grad_factor);
    store_any(across * unit_factor, dst, row, column + i, lanes);
  });
}

// Of queries and keys that stayed as they were, and of decays.
JIGE_INLINE void store_gradient(const Rows& dst, int64_t row, int64_t column, int64_t count,
                                const float* grad) {
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_any(V::load(grad + i), dst, row, column + i, lanes);
  });
}

template <bool kCorrects>
JIGE_FLATTEN void store_key_gradients(const DeltaBackward& run) {
  const DeltaRuleOperands& in = run.args.in;
  const int64_t column = run.work.key_head * in.key_dim;
  for (int64_t t = 0; t < run.work.row_count; ++t) {
    const int64_t row = run.work.row_begin + t;
    if (!kCorrects) {
      store_gradient(run.args.grad_q, row, column, in.key_dim, run.grad_query(t));
      store_gradient(run.args.grad_k, row, column, in.key_dim, run.grad_key(t));
      continue;
    }
    const float* factors = run.factors(t);
    grad_of_normalised(run.args.grad_q, in.q, row, column, in.key_dim, factors[0],
                       delta_query_scale<kCorrects>(in.key_dim), run.grad_query(t));
    grad_of_normalised(run.args.grad_k, in.k, row, column, in.key_dim, factors[1], 1.0f,
                       run.grad_key(t));
  }
}

template <DeltaKind kKind>
void run_backward(const DeltaRuleBackwardArgs& args, const DeltaRuleBackwardWork& work) {
  constexpr bool kCorrects = delta_corrects(kKind);
  const DeltaRuleOperands& in = args.in;
  const DeltaBackward run = {args, work,
                             delta_backward_layout(in.key_dim, work.row_count, in.decays_by_key),
                             static_cast<float*>(work.scratch), delta_padded(in.key_dim)};
  prepare_factors<kCorrects>(run);
  constexpr int64_t sums = kKind == DeltaKind::kByKey ? 3 : 2;
  const auto sums_bytes = static_cast<size_t>(sums * work.row_count * run.rows) * sizeof(float);
  std::memset(run.grad_query(0), 0, sums_bytes);  // and those of keys and decays, which lie behind
  for (int64_t h = 0; h < in.heads_per_key; ++h) {
    const int64_t head = work.key_head * in.heads_per_key + h;
    for (int64_t s = 0; s < delta_strips(in.value_dim); ++s) {
      run_strip<kKind>(run, {.head = head,
                             .first = s == 0,
                             .column = head * in.value_dim + s * kColumns,
                             .lanes = delta_strip_lanes(in.value_dim, s)});
    }
  }
  store_key_gradients<kCorrects>(run);
  for (int64_t t = 0; kKind == DeltaKind::kByKey && t < work.row_count; ++t) {
    store_gradient(args.grad_log_decay, work.row_begin + t, work.key_head * in.key_dim, in.key_dim,
                   run.grad_decay(t));
  }
}

}  // namespace

void delta_backward(const DeltaRuleBackwardArgs& args, const DeltaRuleBackwardWork& work) noexcept {
  with_delta_kind(args.in, [&](auto tag) { run_backward<decltype(tag)::kind>(args, work); });
}

}  // namespace jige::cpu::JIGE_ISA_NS

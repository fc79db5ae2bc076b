#include "kernels/cpu/delta_rule.h"

#include "kernels/cpu/delta_rule_step.h"

namespace jige::cpu::JIGE_ISA_NS {

void delta_backward(const DeltaRuleBackwardArgs& args, const DeltaRuleBackwardWork& work) noexcept;

namespace {

using V = F32x16;

// Strips that fill the registers.
#if defined(JIGE_ISA_avx512)
constexpr int kStripsAtOnce = 2;
#else
constexpr int kStripsAtOnce = 1;
#endif

// The tokens of a chunk, ready for all strips.
struct DeltaChunk {
  int64_t row_begin;
  int64_t count;
  DeltaToken tokens[kDeltaForwardTokens];
};

template <DeltaKind kKind>
JIGE_FLATTEN void prepare_chunk(const DeltaRuleOperands& in, int64_t head, float* scratch,
                                DeltaChunk* chunk) {
  constexpr bool kCorrects = delta_corrects(kKind);
  constexpr bool kByKey = kKind == DeltaKind::kByKey;
  const DeltaForwardLayout layout =
      delta_forward_layout(in.key_dim, in.value_dim, in.decays_by_key);
  float* const keys = scratch + layout.keys;
  float* const queries = scratch + layout.queries;
  const int64_t rows = delta_padded(in.key_dim);
  const int64_t key_head = head / in.heads_per_key;
  const int64_t column = key_head * in.key_dim;
  for (int64_t t = 0; t < chunk->count; ++t) {
    const int64_t row = chunk->row_begin + t;
    const DeltaFactors factors = delta_factors<kCorrects>(in, row, key_head);
    delta_scale_row(keys + t * rows, in.k, row, column, in.key_dim, factors.key);
    delta_scale_row(queries + t * rows, in.q, row, column, in.key_dim,
                    factors.query * delta_query_scale<kCorrects>(in.key_dim));
    float* const decays = scratch + layout.decays + t * rows;
    if (kByKey) delta_decays(in, row, head, decays);
    chunk->tokens[t] = {keys + t * rows,
                        queries + t * rows,
                        kByKey ? decays : nullptr,
                        kByKey ? 1.0f : delta_decay(in, row, head),
                        row_of<float>(in.rate, row)[head],
                        delta_skip(in, head)};
  }
}

// Strips [strip, strip + kStrips) of a head through the tokens of a chunk.
template <DeltaKind kKind, int kStrips>
JIGE_FLATTEN void run_strips(const DeltaRuleForwardArgs& args, int64_t head, int64_t strip,
                             float* const* states, const DeltaChunk& chunk) {
  const int64_t rows = (args.in.key_dim + kDeltaChains - 1) / kDeltaChains * kDeltaChains;
  DeltaStripStep steps[kStrips];
  int lanes[kStrips];
  int64_t columns[kStrips];
  for (int s = 0; s < kStrips; ++s) {
    steps[s] = {states[s], states[s]};
    lanes[s] = delta_strip_lanes(args.in.value_dim, strip + s);
    columns[s] = head * args.in.value_dim + (strip + s) * kDeltaStripColumns;
  }
  for (int64_t t = 0; t < chunk.count; ++t) {
    const int64_t row = chunk.row_begin + t;
    V values[kStrips];
    for (int s = 0; s < kStrips; ++s) {
      values[s] = load_any<V>(args.in.v, row, columns[s], lanes[s]);
    }
    const DeltaResults<kStrips> results = delta_step<kKind>(steps, rows, chunk.tokens[t], values);
    for (int s = 0; s < kStrips; ++s) {
      store_any(results.dst[s], args.dst, row, columns[s], lanes[s]);
    }
  }
}

// Where the strips of a work lie while its tokens run: in the state itself where a strip there is
// as the kernel wants it, else in the scratch.
class StripPlaces {
 public:
  StripPlaces(const DeltaRuleOperands& in, const DeltaRuleForwardWork& work, float* scratch)
      : in_(in), work_(work), scratch_(scratch) {}

  float* place(int64_t strip) const {
    if (in_state(strip)) return state_of(strip);
    return scratch_ + (strip - work_.strip_begin) * delta_padded(in_.key_dim) * kDeltaStripColumns;
  }

  void begin(int64_t strip) const {
    if (!work_.resumed) {
      const int64_t rows = in_state(strip) ? in_.key_dim : delta_padded(in_.key_dim);
      const int64_t bytes = rows * kDeltaStripColumns * static_cast<int64_t>(sizeof(float));
      std::memset(place(strip), 0, static_cast<size_t>(bytes));
      return;
    }
    if (in_state(strip)) return;
    const int lanes = delta_strip_lanes(in_.value_dim, strip);
    for (int64_t i = 0; i < delta_padded(in_.key_dim); ++i) {
      const V row = i < in_.key_dim ? load_lanes<V>(state_of(strip) + i * lanes, lanes) : V::zero();
      row.store(place(strip) + i * kDeltaStripColumns);
    }
  }

  void end(int64_t strip) const {
    if (!work_.state || in_state(strip)) return;
    const int lanes = delta_strip_lanes(in_.value_dim, strip);
    for (int64_t i = 0; i < in_.key_dim; ++i) {
      store_lanes(V::load(place(strip) + i * kDeltaStripColumns), state_of(strip) + i * lanes,
                  lanes);
    }
  }

 private:
  bool in_state(int64_t strip) const {
    return work_.state && in_.key_dim % kDeltaChains == 0 &&
           delta_strip_lanes(in_.value_dim, strip) == kDeltaStripColumns;
  }
  float* state_of(int64_t strip) const {
    return work_.state + strip * in_.key_dim * kDeltaStripColumns;
  }

  const DeltaRuleOperands& in_;
  const DeltaRuleForwardWork& work_;
  float* scratch_;
};

template <DeltaKind kKind>
void run_forward(const DeltaRuleForwardArgs& args, const DeltaRuleForwardWork& work) {
  const DeltaForwardLayout layout =
      delta_forward_layout(args.in.key_dim, args.in.value_dim, args.in.decays_by_key);
  auto* scratch = static_cast<float*>(work.scratch);
  const StripPlaces places(args.in, work, scratch + layout.strips);
  for (int64_t s = work.strip_begin; s < work.strip_end; ++s) places.begin(s);
  DeltaChunk chunk;
  for (int64_t t = 0; t < work.row_count; t += kDeltaForwardTokens) {
    const int64_t left = work.row_count - t;
    chunk.row_begin = work.row_begin + t;
    chunk.count = left < kDeltaForwardTokens ? left : kDeltaForwardTokens;
    prepare_chunk<kKind>(args.in, work.head, scratch, &chunk);
    int64_t s = work.strip_begin;
    for (; s + kStripsAtOnce <= work.strip_end; s += kStripsAtOnce) {
      float* states[kStripsAtOnce];
      for (int i = 0; i < kStripsAtOnce; ++i) states[i] = places.place(s + i);
      run_strips<kKind, kStripsAtOnce>(args, work.head, s, states, chunk);
    }
    for (; s < work.strip_end; ++s) {
      float* state = places.place(s);
      run_strips<kKind, 1>(args, work.head, s, &state, chunk);
    }
  }
  for (int64_t s = work.strip_begin; s < work.strip_end; ++s) places.end(s);
}

void delta_forward(const DeltaRuleForwardArgs& args, const DeltaRuleForwardWork& work) noexcept {
  with_delta_kind(args.in, [&](auto tag) { run_forward<decltype(tag)::kind>(args, work); });
}

}  // namespace

extern const DeltaRuleKernels kDeltaRuleKernels;
const DeltaRuleKernels kDeltaRuleKernels = {delta_forward, delta_backward};

}  // namespace jige::cpu::JIGE_ISA_NS

// What forward and backward of the delta rule share: normalised queries and keys, and a token's
// step of a strip. Included by sources compiled once per instruction set.
// Threads: pure functions.
#pragma once

#include "kernels/cpu/delta_rule_layout.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {

using DeltaVector = F32x16;
static_assert(DeltaVector::kLanes == kDeltaStripColumns);

// Sums over the key dimension are so many chains; strips have whole groups of rows.
inline constexpr int64_t kDeltaChains = 4;

// 1 / sqrt(Σ x² + 1e-6)
JIGE_INLINE float delta_inverse_norm(const ConstRows& rows, int64_t row, int64_t column,
                                     int64_t count) {
  using V = DeltaVector;
  V sum = V::zero();
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V x = load_any<V>(rows, row, column + i, lanes);
    sum = fma(x, x, sum);
  });
  return 1.0f / sqrt(horizontal_sum(sum) + 1e-6f);
}

// The factors that make a token's query and key unit vectors; 1 where they stay as they are.
struct DeltaFactors {
  float query, key;
};
template <bool kCorrects>
JIGE_INLINE DeltaFactors delta_factors(const DeltaRuleOperands& in, int64_t row, int64_t key_head) {
  if (!kCorrects) return {1.0f, 1.0f};
  const int64_t column = key_head * in.key_dim;
  return {delta_inverse_norm(in.q, row, column, in.key_dim),
          delta_inverse_norm(in.k, row, column, in.key_dim)};
}

// dst = factor · x, with zeros up to a multiple of 16.
JIGE_INLINE void delta_scale_row(float* dst, const ConstRows& rows, int64_t row, int64_t column,
                                 int64_t count, float factor) {
  using V = DeltaVector;
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    (load_any<V>(rows, row, column + i, lanes) * V::broadcast(factor)).store(dst + i);
  });
}

// What the query is multiplied with beside its factor.
template <bool kCorrects>
JIGE_INLINE float delta_query_scale(int64_t key_dim) {
  return kCorrects ? 1.0f / sqrt(static_cast<float>(key_dim)) : 1.0f;
}

JIGE_INLINE float delta_skip(const DeltaRuleOperands& in, int64_t head) {
  return in.skip ? in.skip[head] : 0.0f;
}

// How a state fades and learns.
enum class DeltaKind { kPlain, kCorrecting, kByKey };
constexpr bool delta_corrects(DeltaKind kind) { return kind != DeltaKind::kPlain; }

template <DeltaKind kKind>
struct DeltaTag {
  static constexpr DeltaKind kind = kKind;
};
// Calls body(DeltaTag<kind>{}) for what the operands ask.
template <typename Body>
JIGE_INLINE void with_delta_kind(const DeltaRuleOperands& in, Body&& body) {
  if (in.decays_by_key) {
    body(DeltaTag<DeltaKind::kByKey>{});
  } else if (in.corrects) {
    body(DeltaTag<DeltaKind::kCorrecting>{});
  } else {
    body(DeltaTag<DeltaKind::kPlain>{});
  }
}

// exp of those of a key's columns, with ones up to a multiple of 16.
JIGE_INLINE void delta_decays(const DeltaRuleOperands& in, int64_t row, int64_t head, float* dst) {
  using V = DeltaVector;
  const float* src = row_of<float>(in.log_decay, row) + head * in.key_dim;
  for_each_vector<V>(
      in.key_dim, [&](int64_t i, int lanes) { exp(load_lanes<V>(src + i, lanes)).store(dst + i); });
}

// exp of one number.
JIGE_INLINE float delta_decay(const DeltaRuleOperands& in, int64_t row, int64_t head) {
  const float log_decay = row_of<float>(in.log_decay, row)[head];
  float lanes[16];
  exp(DeltaVector::broadcast(log_decay)).store(lanes);
  return lanes[0];
}

// A token as the steps of its strips see it.
struct DeltaToken {
  const float* key;     // k^
  const float* query;   // q^
  const float* decays;  // exp(log_decay) of the key's columns, or null:
  float decay;          // of all of them
  float rate;
  float skip;
};

// A strip before and after a token's step; it may be one and the same memory.
struct DeltaStripStep {
  const float* before;
  float* after;
};

template <int kStrips>
struct DeltaResults {
  DeltaVector dst[kStrips];     // Sᵀ q^ + skip · v
  DeltaVector errors[kStrips];  // v - m, m zero where nothing is corrected
  DeltaVector deltas[kStrips];
};

// Several strips at once, so that there are enough chains to keep the arithmetic units busy.
// REQUIRES: rows is a multiple of kDeltaChains.
template <DeltaKind kKind, int kStrips>
JIGE_INLINE DeltaResults<kStrips> delta_step(const DeltaStripStep (&strips)[kStrips], int64_t rows,
                                             const DeltaToken& token,
                                             const DeltaVector (&values)[kStrips]) {
  using V = DeltaVector;
  constexpr int64_t kColumns = kDeltaStripColumns;
  constexpr bool kCorrects = delta_corrects(kKind);
  constexpr bool kByKey = kKind == DeltaKind::kByKey;
  V chains[kStrips][kDeltaChains];
  const auto clear = [&] {
    for (auto& strip : chains) {
      for (V& chain : strip) chain = V::zero();
    }
  };
  const auto sum_of = [&](int s) {
    return (chains[s][0] + chains[s][1]) + (chains[s][2] + chains[s][3]);
  };
  DeltaResults<kStrips> results;

  if (kCorrects) {
    clear();
    for (int64_t i = 0; i < rows; i += kDeltaChains) {
      for (int64_t p = 0; p < kDeltaChains; ++p) {
        const float fades = kByKey ? token.decays[i + p] : 1.0f;
        const V key = V::broadcast(kByKey ? token.key[i + p] * fades : token.key[i + p]);
        for (int s = 0; s < kStrips; ++s) {
          chains[s][p] = fma(key, V::load(strips[s].before + (i + p) * kColumns), chains[s][p]);
        }
      }
    }
  }
  const V decay = V::broadcast(token.decay);
  for (int s = 0; s < kStrips; ++s) {
    const V memory = kByKey ? sum_of(s) : decay * sum_of(s);
    results.errors[s] = kCorrects ? values[s] - memory : values[s];
    results.deltas[s] = V::broadcast(token.rate) * results.errors[s];
  }

  clear();
  for (int64_t i = 0; i < rows; i += kDeltaChains) {
    for (int64_t p = 0; p < kDeltaChains; ++p) {
      const V key = V::broadcast(token.key[i + p]);
      const V query = V::broadcast(token.query[i + p]);
      const V fades = kByKey ? V::broadcast(token.decays[i + p]) : decay;
      for (int s = 0; s < kStrips; ++s) {
        const int64_t at = (i + p) * kColumns;
        const V state = fma(key, results.deltas[s], fades * V::load(strips[s].before + at));
        state.store(strips[s].after + at);
        chains[s][p] = fma(query, state, chains[s][p]);
      }
    }
  }
  for (int s = 0; s < kStrips; ++s) {
    results.dst[s] = kCorrects ? sum_of(s) : fma(V::broadcast(token.skip), values[s], sum_of(s));
  }
  return results;
}

// The columns of strip `strip`.
JIGE_INLINE int delta_strip_lanes(int64_t value_dim, int64_t strip) {
  const int64_t left = value_dim - strip * kDeltaStripColumns;
  return static_cast<int>(left < kDeltaStripColumns ? left : kDeltaStripColumns);
}

}  // namespace jige::cpu::JIGE_ISA_NS

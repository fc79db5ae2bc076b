// What the tests of the delta rule share: cases, operands, and the definition in double precision.
//
// Included by tests only. Threads: values.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "ops/delta_rule.h"
#include "ops/double_rows.h"
#include "ops/testing.h"

namespace jige::ops::delta_test {

using test::add_scaled;
using test::Matrix;
using test::Values;

struct Case {
  std::vector<int32_t> lengths;
  DeltaRuleShape shape;
  DType dtype = DType::kF32;

  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t key_columns() const { return shape.key_heads * shape.key_dim; }
  int64_t value_columns() const { return shape.value_heads * shape.value_dim; }
  int64_t state_columns() const { return value_columns() * shape.key_dim; }
  std::vector<SequenceSpan> spans() const {
    std::vector<SequenceSpan> result;
    int32_t row = 0;
    for (const int32_t length : lengths) {
      result.push_back({.row_begin = row, .row_count = length});
      row += length;
    }
    return result;
  }
  std::string name() const {
    return fmt::format("{} key heads of {}, {} value heads of {}, {}{}{}", shape.key_heads,
                       shape.key_dim, shape.value_heads, shape.value_dim, dtype_info(dtype).name,
                       shape.corrects ? "" : ", without a correction",
                       shape.decays_by_key ? ", with decays by key" : "");
  }
};

// The same with a decay for every column of a key, and a value head for every key head.
inline Case by_key(Case one) {
  one.shape.key_heads = one.shape.value_heads;
  one.shape.decays_by_key = true;
  return one;
}

// Every case of the delta rule, and the same with decays by key and without its correction.
inline std::vector<Case> with_and_without_correction(std::vector<Case> cases) {
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    cases.push_back(by_key(cases[i]));
    cases.push_back(cases[i]);
    cases.back().shape.corrects = false;
  }
  return cases;
}

struct Operands {
  Matrix dst, q, k, v, log_decay, rate, skip;

  explicit Operands(const Case& c, uint64_t seed = 31)
      : dst(c.dtype, c.rows(), c.value_columns()),
        q(c.dtype, c.rows(), c.key_columns()),
        k(c.dtype, c.rows(), c.key_columns()),
        v(c.dtype, c.rows(), c.value_columns()),
        log_decay(DType::kF32, c.rows(), c.shape.decay_columns()),
        rate(DType::kF32, c.rows(), c.shape.value_heads),
        skip(DType::kF32, 1, c.shape.value_heads, 0) {
    Rng rng(seed);
    // What no norm is over is about as long as if there were one.
    const double spread =
        c.shape.corrects ? 1 : 1 / std::sqrt(static_cast<double>(c.shape.key_dim));
    q.fill_normal(rng, spread);
    k.fill_normal(rng, spread);
    v.fill_normal(rng);
    skip.fill_normal(rng);
    log_decay.fill_by(
        [&](int64_t, int64_t) { return -0.2 * std::fabs(static_cast<double>(rough_normal(rng))); });
    rate.fill_by([&](int64_t, int64_t) {
      return 1 / (1 + std::exp(-static_cast<double>(rough_normal(rng))));
    });
  }
  // In training: without states.
  DeltaRuleForward args(const Case& c) {
    return {.dst = dst.view(),
            .q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .log_decay = log_decay.view(),
            .rate = rate.view(),
            .skip = c.shape.corrects ? TensorView() : skip.vector(),
            .states = {},
            .sequences = c.spans(),
            .shape = c.shape};
  }
};

// The operands in double precision, and what they give.
struct Reference {
  Values q, k, v, log_decay, rate, skip;
  Values dst = {};
  Values states = {};  // of each sequence and head, [dk][dv]

  static Reference of(const Operands& in) {
    return {in.q.values(),         in.k.values(),    in.v.values(),
            in.log_decay.values(), in.rate.values(), in.skip.values()};
  }
};

// A head's query or key: of unit length and times the scale, or as it is.
inline Values key_row(const Case& c, const Values& rows, int64_t first, double scale) {
  const auto begin = rows.begin() + first;
  Values result(begin, begin + c.shape.key_dim);
  if (!c.shape.corrects) return result;
  double squares = 1e-6;
  for (const double x : result) squares += x * x;
  for (double& x : result) x *= scale / std::sqrt(squares);
  return result;
}

// A head of a sequence; S is [dk][dv].
inline void run_head(const Case& c, const SequenceSpan& span, int64_t head, Reference& ref) {
  const auto dk = static_cast<size_t>(c.shape.key_dim);
  const auto dv = static_cast<size_t>(c.shape.value_dim);
  const int64_t columns = c.shape.value_dim;
  const int64_t key_head = head / (c.shape.value_heads / c.shape.key_heads);
  Values state(dk * dv);
  Values memory(dv), delta(dv);
  for (int64_t row = span.row_begin; row < span.row_begin + span.row_count; ++row) {
    const int64_t key_first = row * c.key_columns() + key_head * c.shape.key_dim;
    const Values q =
        key_row(c, ref.q, key_first, 1 / std::sqrt(static_cast<double>(c.shape.key_dim)));
    const Values k = key_row(c, ref.k, key_first, 1);
    const auto gate = static_cast<size_t>(row * c.shape.value_heads + head);
    const auto value_first =
        static_cast<size_t>(row * c.value_columns() + head * c.shape.value_dim);
    std::ranges::fill(memory, 0.0);
    for (size_t i = 0; i < dk; ++i) {
      const double decay = std::exp(ref.log_decay[c.shape.decays_by_key ? gate * dk + i : gate]);
      for (size_t j = 0; j < dv; ++j) state[i * dv + j] *= decay;
      add_scaled(memory.data(), &state[i * dv], k[i], columns);
    }
    double* const result = &ref.dst[value_first];
    for (size_t j = 0; j < dv; ++j) {
      const double value = ref.v[value_first + j];
      delta[j] = ref.rate[gate] * (c.shape.corrects ? value - memory[j] : value);
      result[j] = c.shape.corrects ? 0 : ref.skip[static_cast<size_t>(head)] * value;
    }
    for (size_t i = 0; i < dk; ++i) {
      add_scaled(&state[i * dv], delta.data(), k[i], columns);
      add_scaled(result, &state[i * dv], q[i], columns);
    }
  }
  ref.states.insert(ref.states.end(), state.begin(), state.end());
}

inline void run_reference(const Case& c, Reference& ref) {
  ref.dst.assign(ref.v.size(), 0.0);
  ref.states.clear();
  for (const SequenceSpan& span : c.spans()) {
    for (int64_t head = 0; head < c.shape.value_heads; ++head) run_head(c, span, head, ref);
  }
}

struct Gradients {
  Matrix q, k, v, log_decay, rate, slopes_skip;

  explicit Gradients(const Case& c)
      : q(c.dtype, c.rows(), c.key_columns()),
        k(c.dtype, c.rows(), c.key_columns()),
        v(c.dtype, c.rows(), c.value_columns()),
        log_decay(DType::kF32, c.rows(), c.shape.decay_columns()),
        rate(DType::kF32, c.rows(), c.shape.value_heads),
        slopes_skip(DType::kF32, c.rows(), c.shape.value_heads) {}
  // For these sequences.
  DeltaRuleBackward args(DeltaRuleForward forward, Matrix& grad_dst) {
    forward.dst = {};
    return {.grad_q = q.view(),
            .grad_k = k.view(),
            .grad_v = v.view(),
            .grad_log_decay = log_decay.view(),
            .grad_rate = rate.view(),
            .slopes_skip = forward.skip ? slopes_skip.view() : TensorView(),
            .grad_dst = grad_dst.view(),
            .forward = std::move(forward)};
  }
  bool operator==(const Gradients& other) const = default;
};

inline Gradients run_backward(Stream& stream, const Case& c, Operands& in, Matrix& grad_dst) {
  Gradients grads(c);
  delta_rule_backward(stream, grads.args(in.args(c), grad_dst));
  return grads;
}

}  // namespace jige::ops::delta_test

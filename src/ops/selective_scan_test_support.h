// What the tests of the selective scan share: cases, operands, and the definition in double
// precision.
//
// Included by tests only. Threads: values.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/selective_scan.h"
#include "ops/testing.h"

namespace jige::ops::scan_test {

using test::Matrix;
using test::Values;

struct Case {
  std::vector<int32_t> lengths;
  int64_t columns;
  int64_t state_dim;
  DType dtype = DType::kF32;

  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
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
    return fmt::format("{} channels of {}, {}", columns, state_dim, dtype_info(dtype).name);
  }
};

struct Operands {
  Matrix dst, x, a, b, c, log_scale, bias, skip;

  explicit Operands(const Case& one, uint64_t seed = 41)
      : dst(one.dtype, one.rows(), one.columns),
        x(one.dtype, one.rows(), one.columns),
        a(one.dtype, one.rows(), one.columns),
        b(one.dtype, one.rows(), one.state_dim),
        c(one.dtype, one.rows(), one.state_dim),
        log_scale(DType::kF32, 1, one.columns * one.state_dim, 0),
        bias(DType::kF32, 1, one.columns, 0),
        skip(DType::kF32, 1, one.columns, 0) {
    Rng rng(seed);
    const double spread = 1 / std::sqrt(static_cast<double>(one.state_dim));
    x.fill_normal(rng);
    a.fill_normal(rng);
    b.fill_normal(rng, spread);
    c.fill_normal(rng, spread);
    log_scale.fill_normal(rng, 1, -1);
    bias.fill_normal(rng, 0.5, -1);
    skip.fill_normal(rng);
  }
  // In training: without states.
  SelectiveScan args(const Case& one) {
    return {.dst = dst.view(),
            .x = x.view(),
            .a = a.view(),
            .b = b.view(),
            .c = c.view(),
            .log_scale = log_scale.vector(),
            .bias = bias.vector(),
            .skip = skip.vector(),
            .states = {},
            .sequences = one.spans()};
  }
};

// The operands in double precision, and what they give.
struct Reference {
  Values x, a, b, c, log_scale, bias, skip;
  Values dst = {};
  Values states = {};  // of each sequence and channel, [N]

  static Reference of(const Operands& in) {
    return {in.x.values(),         in.a.values(),    in.b.values(),   in.c.values(),
            in.log_scale.values(), in.bias.values(), in.skip.values()};
  }
};

inline void run_channel(const Case& one, const SequenceSpan& span, size_t channel, Reference& ref) {
  const auto columns = static_cast<size_t>(one.columns);
  const auto count = static_cast<size_t>(one.state_dim);
  Values state(count);
  for (int32_t t = 0; t < span.row_count; ++t) {
    const auto row = static_cast<size_t>(span.row_begin + t);
    const double x = ref.x[row * columns + channel];
    const double step = std::log1p(std::exp(ref.a[row * columns + channel] + ref.bias[channel]));
    double sum = ref.skip[channel] * x;
    for (size_t n = 0; n < count; ++n) {
      const double scale = -std::exp(ref.log_scale[channel * count + n]);
      state[n] = std::exp(scale * step) * state[n] + step * x * ref.b[row * count + n];
      sum += state[n] * ref.c[row * count + n];
    }
    ref.dst[row * columns + channel] = sum;
  }
  ref.states.insert(ref.states.end(), state.begin(), state.end());
}

inline void run_reference(const Case& one, Reference& ref) {
  ref.dst.assign(ref.x.size(), 0.0);
  ref.states.clear();
  for (const SequenceSpan& span : one.spans()) {
    for (int64_t channel = 0; channel < one.columns; ++channel) {
      run_channel(one, span, static_cast<size_t>(channel), ref);
    }
  }
}

struct Gradients {
  Matrix x, a, b, c, sums, log_scale, bias, skip;

  explicit Gradients(const Case& one)
      : x(one.dtype, one.rows(), one.columns),
        a(one.dtype, one.rows(), one.columns),
        b(one.dtype, one.rows(), one.state_dim),
        c(one.dtype, one.rows(), one.state_dim),
        sums(DType::kF32, one.rows(), selective_scan_sum_columns(one.columns, one.state_dim)),
        log_scale(DType::kF32, 1, one.columns * one.state_dim, 0),
        bias(DType::kF32, 1, one.columns, 0),
        skip(DType::kF32, 1, one.columns, 0) {
    for (Matrix* parameter : {&log_scale, &bias, &skip}) parameter->fill(0);
  }
  // For these sequences.
  void run(Stream& stream, SelectiveScan forward, Matrix& grad_dst) {
    forward.dst = {};
    selective_scan_backward_input(stream, {.grad_x = x.view(),
                                           .grad_a = a.view(),
                                           .grad_b = b.view(),
                                           .grad_c = c.view(),
                                           .sums = sums.view(),
                                           .grad_dst = grad_dst.view(),
                                           .forward = forward});
    selective_scan_backward_weight(stream, {.grad_log_scale = log_scale.vector(),
                                            .grad_bias = bias.vector(),
                                            .grad_skip = skip.vector(),
                                            .grad_dst = grad_dst.view(),
                                            .forward = std::move(forward)});
  }
  bool operator==(const Gradients& other) const = default;
};

inline Matrix gradient_of(const Case& one, uint64_t seed) {
  Rng rng(seed);
  return Matrix(one.dtype, one.rows(), one.columns).fill_normal(rng);
}

}  // namespace jige::ops::scan_test

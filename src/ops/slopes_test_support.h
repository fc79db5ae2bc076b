// Gradients of recurrent kernels beside finite differences of their definitions in double
// precision.
//
// Included by tests only. Threads: functions of their arguments.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "ops/double_rows.h"
#include "ops/testing.h"

namespace jige::ops::test {

// Of every stride-th element of an input: how Σ dst · grad_dst rises with it. `moved` has the input
// and dst, which run(moved) makes anew.
template <typename Reference, typename Run>
Values slopes_of(Reference moved, Values Reference::*input, size_t stride, const Values& grad_dst,
                 const Run& run) {
  constexpr double kStep = 1e-5;
  Values slopes;
  for (size_t i = 0; i < (moved.*input).size(); i += stride) {
    const double value = (moved.*input)[i];
    const auto loss = [&](double other) {
      (moved.*input)[i] = other;
      run(moved);
      return dot(moved.dst, grad_dst);
    };
    slopes.push_back((loss(value + kStep) - loss(value - kStep)) / (2 * kStep));
    (moved.*input)[i] = value;
  }
  return slopes;
}

// That gradients are such slopes, but for `near` and their rounding.
inline void expect_slopes(const Values& slopes, size_t stride, const Matrix& actual, double near,
                          const std::string& where) {
  const Values have = actual.values();
  const double rounding = rounding_of(actual.dtype());
  size_t i = 0;
  for (const double slope : slopes) {
    ASSERT_NEAR(have.at(i), slope, near + (2e-5 + rounding) * std::fabs(slope))
        << where << ", element " << i;
    i += stride;
  }
  ASSERT_GE(i, have.size());
  ASSERT_TRUE(actual.gap_intact()) << where;
}

}  // namespace jige::ops::test

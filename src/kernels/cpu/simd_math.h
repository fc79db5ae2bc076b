// exp, log, tanh, sigmoid and erf on the vectors of simd.h: one polynomial each, made of IEEE
// operations, so AVX2 and AVX-512 give the same bits.
//
// Each is a template on F32 or F32x16. Accuracy against the exact value, in units of the last place
// of the result, over all floats (vector_math_test.cc checks a sample of them):
//   exp      1.0   0 below -103.98, subnormals kept, infinity above 88.73
//   log      1.0   log(0) = -inf, NaN below zero
//   tanh     2.0
//   sigmoid  2.5   where the result is normal; 0 below -88.38
//   erf      1.5
// NaN gives NaN. The polynomials are minimax fits, in relative error unless said otherwise.
// Threads: pure functions.
#pragma once

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {

// Horner's rule: c[0] + x (c[1] + x (c[2] + …)).
template <typename V, int kCount>
JIGE_INLINE V polynomial(V x, const float (&coefficients)[kCount]) {
  V sum = V::broadcast(coefficients[kCount - 1]);
  for (int i = kCount - 2; i >= 0; --i) sum = fma(sum, x, V::broadcast(coefficients[i]));
  return sum;
}

// e^(x - n ln 2) for the whole number n next to x / ln 2.
template <typename V>
JIGE_INLINE V exp_remainder(V x, V n) {
  static constexpr float kSeries[] = {1.0f,
                                      1.0f,
                                      0.499999940395f,
                                      0.166665166616f,
                                      0.0416681058705f,
                                      0.00836914032698f,
                                      0.00138367142063f};
  // ln 2 in two parts; the first has so few bits that its product with n is exact.
  const V r = fma(n, V::broadcast(-1.42860682031e-6f), fma(n, V::broadcast(-0x1.62e4p-1f), x));
  return polynomial(r, kSeries);
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2.
template <typename V>
JIGE_INLINE V exp(V x) {
  // The bounds stand first: max and min return their second operand when one is NaN.
  const V bounded = min(V::broadcast(89.5f), max(V::broadcast(-104.5f), x));
  const V shifted = fma(bounded, V::broadcast(1.44269504088896f), V::broadcast(kRoundShift));
  return scale_by_power(exp_remainder(bounded, shifted - V::broadcast(kRoundShift)), shifted);
}

// The same for x <= 80, cheaper, with the value at -86.6 (2.5e-38) for all that is below: for the
// weights of a softmax, of which one is 1.
template <typename V>
JIGE_INLINE V exp_weight(V x) {
  const V bias = V::broadcast(kRoundShift + 127.0f);
  const V bounded = max(V::broadcast(-86.6f), x);
  const V shifted = fma(bounded, V::broadcast(1.44269504088896f), bias);
  return exp_remainder(bounded, shifted - bias) * normal_power(shifted);
}

// log x = e ln 2 + log(1 + f) with x = (1 + f) 2^e, 1 + f in [sqrt(1/2), sqrt(2)).
template <typename V>
JIGE_INLINE V log(V x) {
  // (log(1 + f) - f + f²/2) / f³
  static constexpr float kSeries[] = {0.333333313465f,  -0.250008225441f, 0.200012341142f,
                                      -0.166233032942f, 0.142015486956f,  -0.131605371833f,
                                      0.127633303404f,  -0.0763576477766f};
  const V zero = V::zero();
  const V infinity = V::broadcast(__builtin_inff());
  const auto subnormal = x < V::broadcast(0x1p-126f);
  V mantissa, exponent;
  split_exponent(select(subnormal, x * V::broadcast(0x1p23f), x), &mantissa, &exponent);
  exponent = exponent - select(subnormal, V::broadcast(23.0f), zero);
  const V f = mantissa - V::broadcast(1.0f);
  const V f2 = f * f;
  const V tail = fma(f * f2, polynomial(f, kSeries),
                     fma(f2, V::broadcast(-0.5f), exponent * V::broadcast(1.42860682031e-6f)));
  V result = fma(exponent, V::broadcast(0x1.62e4p-1f), f + tail);
  result = select(x == infinity, infinity, result);
  result = select(x == zero, -infinity, result);
  return select(zero <= x, result, V::broadcast(__builtin_nanf("")));
}

// tanh x = x + x³ P(x²) near zero, else 1 - 2 / (e^2x + 1).
template <typename V>
JIGE_INLINE V tanh(V x) {
  static constexpr float kSeries[] = {-0.333332836628f, 0.133314833045f, -0.0537427738309f,
                                      0.0206480622292f, -0.00571406353265f};
  const V one = V::broadcast(1.0f);
  const V magnitude = abs(x);
  const V square = x * x;
  const V near = fma(x * square, polynomial(square, kSeries), x);
  const V far = one - V::broadcast(2.0f) / (exp(magnitude + magnitude) + one);
  return select(magnitude < V::broadcast(0.625f), near, copy_sign(far, x));
}

// cap · tanh(x / cap), by the reciprocal of the cap.
template <typename V>
JIGE_INLINE V soft_cap(V x, float cap, float reciprocal) {
  return V::broadcast(cap) * tanh(x * V::broadcast(reciprocal));
}

// 1 / (1 + e^-x). The exponential may stop at 2.5e-38, which one hides, and is infinite from where
// the result is below the normal range.
template <typename V>
JIGE_INLINE V sigmoid(V x) {
  const V one = V::broadcast(1.0f);
  const V bias = V::broadcast(kRoundShift + 127.0f);
  // The bounds stand first, as in exp.
  const V bounded = min(V::broadcast(88.7f), max(V::broadcast(-86.6f), -x));
  const V shifted = fma(bounded, V::broadcast(1.44269504088896f), bias);
  return one / (one + exp_remainder(bounded, shifted - bias) * normal_power(shifted));
}

// erf x = x + x P(x²) near zero, else 1 - e^-Q(x), Q fitted to -log erfc in absolute error of erf.
template <typename V>
JIGE_INLINE V erf(V x) {
  static constexpr float kNear[] = {0.128379166126f,   -0.376126289368f,  0.112836241722f,
                                    -0.0268555879593f, 0.00519194779918f, -0.000804383773357f,
                                    7.96963649918e-5f};
  static constexpr float kFar[] = {-0.000165006087627f, 1.12946808338f,    0.633442163467f,
                                   0.108174704015f,     -0.0250509828329f, 0.00414499174803f,
                                   -0.000429071806138f, 2.06278218684e-5f};
  const V magnitude = abs(x);
  const V near = fma(x, polynomial(x * x, kNear), x);
  const V bounded = min(V::broadcast(4.0f), magnitude);  // erf(4) rounds to 1
  const V far = V::broadcast(1.0f) - exp(-polynomial(bounded, kFar));
  return select(magnitude < V::broadcast(0.89f), near, copy_sign(far, x));
}

inline constexpr float kSoftplusLinearFrom = 20.0f;  // above it softplus(x) is taken for x

// log(1 + e^x). log(1 + e) of the rounded sum 1 + e is set right by what was added and what was
// meant to be: e / ((1 + e) - 1). Where nothing was added, it is e.
template <typename V>
JIGE_INLINE V softplus(V x) {
  const V one = V::broadcast(1.0f);
  const V e = exp(min(V::broadcast(kSoftplusLinearFrom), x));
  const V sum = one + e;
  const V added = sum - one;
  const V value = select(added == V::zero(), e, log(sum) * (e / added));
  return select(V::broadcast(kSoftplusLinearFrom) < x, x, value);
}

template <typename V>
JIGE_INLINE V softplus_slope(V x) {
  return select(V::broadcast(kSoftplusLinearFrom) < x, V::broadcast(1.0f), sigmoid(x));
}

}  // namespace jige::cpu::JIGE_ISA_NS

#include "kernels/cpu/xielu.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

constexpr float kSeriesFrom = -0.25f;  // above it e^x - 1 - x is taken from its series

struct CurveFactors {
  V above, below, beta, eps;
};

JIGE_INLINE float softplus_of(float alpha) { return first_lane(softplus(F32::broadcast(alpha))); }

JIGE_INLINE CurveFactors factors_of(const XieluCurve& curve) {
  return {V::broadcast(softplus_of(*curve.alpha_p)),
          V::broadcast(*curve.beta + softplus_of(*curve.alpha_n)), V::broadcast(*curve.beta),
          V::broadcast(*curve.eps)};
}

// e^x - 1 - x, for x up to 0 and little more.
JIGE_INLINE V beyond_linear(V x) {
  static constexpr float kSeries[] = {0.5f,       1.0f / 6,   1.0f / 24,
                                      1.0f / 120, 1.0f / 720, 1.0f / 5040};
  const V plain = exp(x) - V::broadcast(1.0f) - x;
  return select(x < V::broadcast(kSeriesFrom), plain, x * x * polynomial(x, kSeries));
}

// What n is multiplied with: e^m - 1 - x.
JIGE_INLINE V below_part(V x, V eps) {
  const V m = min(eps, x);
  return beyond_linear(m) + (m - x);
}

template <typename Dst, typename Src>
JIGE_FLATTEN void xielu_row(const CurveFactors& f, Dst* dst, const Src* src, int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    const V x = load_lanes<V>(src + i, lanes);
    const V curved = select(x <= V::zero(), f.below * below_part(x, f.eps), f.above * x * x);
    store_lanes(fma(f.beta, x, curved), dst + i, lanes);
  });
}

template <typename GradSrc, typename GradDst, typename Src>
JIGE_FLATTEN void xielu_backward_row(const CurveFactors& f, GradSrc* grad_src,
                                     const GradDst* grad_dst, const Src* src, V& above, V& below,
                                     int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    const V x = load_lanes<V>(src + i, lanes);
    const V grad = load_lanes<V>(grad_dst + i, lanes);
    const auto negative = x <= V::zero();
    const V power = beyond_linear(x) + x;
    const V slope = select(f.eps < x, V::broadcast(-1.0f), power);
    const V curved = select(negative, f.below * slope, V::broadcast(2.0f) * f.above * x);
    above = above + select(negative, V::zero(), grad * x * x);
    below = below + select(negative, grad * below_part(x, f.eps), V::zero());
    store_lanes(grad * (curved + f.beta), grad_src + i, lanes);
  });
}

void xielu_forward(const XieluForwardArgs& args, int64_t begin, int64_t end) noexcept {
  const CurveFactors factors = factors_of(args.curve);
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.src.type, [&](auto src_tag) {
      for (int64_t t = begin; t < end; ++t) {
        xielu_row(factors, row_of<typename decltype(dst_tag)::Type>(args.dst, t),
                  row_of<typename decltype(src_tag)::Type>(args.src, t), args.width);
      }
    });
  });
}

void xielu_backward(const XieluBackwardArgs& args, int64_t begin, int64_t end) noexcept {
  const CurveFactors factors = factors_of(args.curve);
  const float slope_p = first_lane(softplus_slope(F32::broadcast(*args.curve.alpha_p)));
  const float slope_n = first_lane(softplus_slope(F32::broadcast(*args.curve.alpha_n)));
  with_element_type(args.grad_src.type, [&](auto grad_src_tag) {
    with_element_type(args.grad_dst.type, [&](auto grad_dst_tag) {
      with_element_type(args.src.type, [&](auto src_tag) {
        for (int64_t t = begin; t < end; ++t) {
          V above = V::zero(), below = V::zero();
          xielu_backward_row(
              factors, row_of<typename decltype(grad_src_tag)::Type>(args.grad_src, t),
              row_of<typename decltype(grad_dst_tag)::Type>(args.grad_dst, t),
              row_of<typename decltype(src_tag)::Type>(args.src, t), above, below, args.width);
          float* slopes = row_of<float>(args.slopes, t);
          slopes[0] = slope_p * horizontal_sum(above);
          slopes[1] = slope_n * horizontal_sum(below);
        }
      });
    });
  });
}

}  // namespace

extern const XieluKernels kXieluKernels;
const XieluKernels kXieluKernels = {xielu_forward, xielu_backward};

}  // namespace jige::cpu::JIGE_ISA_NS

#include "kernels/cpu/row_spread.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

JIGE_INLINE V kept_lanes(V value, int lanes) {
  return lanes == V::kLanes ? value : select(V::first_lanes(lanes), value, V::zero());
}

// Σ (x - center)² over a row.
JIGE_INLINE float squares_of(const ConstRows& rows, int64_t t, int64_t width, float center) {
  V sum = V::zero();
  const V at = V::broadcast(center);
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    const V x = kept_lanes(load_any<V>(rows, t, i, lanes) - at, lanes);
    sum = fma(x, x, sum);
  });
  return horizontal_sum(sum);
}

struct Sizes {
  float target, src;  // a, b
  bool floored;
};

JIGE_INLINE Sizes sizes_of(const ConstRows& src, const ConstRows& target, int64_t t, int64_t width,
                           float floor) {
  const auto columns = static_cast<float>(width);
  const float square = squares_of(src, t, width, 0.0f) / columns;
  const bool floored = !(square > floor);
  return {sqrt(squares_of(target, t, width, 0.0f) / columns), sqrt(floored ? floor : square),
          floored};
}

JIGE_FLATTEN void match(const RowMatchArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    const Sizes sizes = sizes_of(args.src, args.target, t, args.width, args.floor);
    const V factor = V::broadcast(sizes.target / sizes.src);
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      store_any(load_any<V>(args.src, t, i, lanes) * factor, args.dst, t, i, lanes);
    });
  }
}

JIGE_FLATTEN void match_backward(const RowMatchBackwardArgs& args, int64_t begin,
                                 int64_t end) noexcept {
  const auto columns = static_cast<float>(args.width);
  for (int64_t t = begin; t < end; ++t) {
    const Sizes sizes = sizes_of(args.src, args.target, t, args.width, args.floor);
    V products = V::zero();
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      products = fma(load_any<V>(args.grad_dst, t, i, lanes), load_any<V>(args.src, t, i, lanes),
                     products);
    });
    const float product = horizontal_sum(products) / columns;
    const V factor = V::broadcast(sizes.target / sizes.src);
    const V along = V::broadcast(sizes.floored ? 0.0f : product / (sizes.src * sizes.src));
    const V by_target =
        V::broadcast(sizes.target > 0.0f ? product / (sizes.target * sizes.src) : 0.0f);
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V grad = load_any<V>(args.grad_dst, t, i, lanes);
      const V x = load_any<V>(args.src, t, i, lanes);
      const V target = load_any<V>(args.target, t, i, lanes);
      const ConstRows old = {args.grad_target.data, args.grad_target.type, args.grad_target.stride};
      const V grad_target = fma(target, by_target, load_any<V>(old, t, i, lanes));
      store_any(grad_target, args.grad_target, t, i, lanes);
      store_any(fma(-x, along, grad) * factor, args.grad_src, t, i, lanes);
    });
  }
}

struct Spread {
  float mean, deviation;
};

JIGE_INLINE Spread spread_of(const ConstRows& rows, int64_t t, int64_t width) {
  V sum = V::zero();
  for_each_vector<V>(width,
                     [&](int64_t i, int lanes) { sum = sum + load_any<V>(rows, t, i, lanes); });
  const auto columns = static_cast<float>(width);
  const float mean = horizontal_sum(sum) / columns;
  return {mean, sqrt(squares_of(rows, t, width, mean) / columns)};
}

JIGE_FLATTEN void cut(const RowCutArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    const Spread spread = spread_of(args.src, t, args.width);
    const V bound = V::broadcast(spread.mean + spread.deviation * args.deviations);
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V above = load_any<V>(args.src, t, i, lanes) - bound;
      store_any(max(above, V::zero()), args.dst, t, i, lanes);
    });
  }
}

JIGE_FLATTEN void cut_backward(const RowCutBackwardArgs& args, int64_t begin,
                               int64_t end) noexcept {
  const auto columns = static_cast<float>(args.width);
  for (int64_t t = begin; t < end; ++t) {
    const Spread spread = spread_of(args.src, t, args.width);
    const V bound = V::broadcast(spread.mean + spread.deviation * args.deviations);
    V sums = V::zero();
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V grad = load_any<V>(args.grad_dst, t, i, lanes);
      sums = sums + select(bound < load_any<V>(args.src, t, i, lanes), grad, V::zero());
    });
    const float sum = horizontal_sum(sums) / columns;
    const V mean = V::broadcast(spread.mean);
    const V all = V::broadcast(sum);
    const V along =
        V::broadcast(spread.deviation > 0.0f ? sum * args.deviations / spread.deviation : 0.0f);
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V x = load_any<V>(args.src, t, i, lanes);
      const V grad = select(bound < x, load_any<V>(args.grad_dst, t, i, lanes), V::zero());
      store_any(grad - fma(along, x - mean, all), args.grad_src, t, i, lanes);
    });
  }
}

}  // namespace

extern const RowSpreadKernels kRowSpreadKernels;
const RowSpreadKernels kRowSpreadKernels = {match, match_backward, cut, cut_backward};

}  // namespace jige::cpu::JIGE_ISA_NS

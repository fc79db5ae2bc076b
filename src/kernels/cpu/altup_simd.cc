#include "kernels/cpu/altup.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

constexpr int64_t kStreams = kAltUpStreamsMax;

JIGE_FLATTEN void predict(const AltUpPredictArgs& args, int64_t begin, int64_t end) noexcept {
  const int64_t count = args.streams;
  for (int64_t t = begin; t < end; ++t) {
    const float* const src = row_of<float>(args.src, t);
    const float* const map = row_of<float>(args.map, t);
    float* const active = row_of<float>(args.active, t);
    float* const others = row_of<float>(args.others, t);
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      V x[kStreams];
      for (int64_t j = 0; j < count; ++j) x[j] = load_lanes<V>(src + j * args.width + i, lanes);
      for (int64_t k = 0; k < count; ++k) {
        V sum = x[k];
        for (int64_t j = 0; j < count; ++j) {
          sum = fma(V::broadcast(map[k * count + j]), x[j], sum);
        }
        store_lanes(sum, (k == 0 ? active : others + (k - 1) * args.width) + i, lanes);
      }
    });
  }
}

JIGE_FLATTEN void predict_backward(const AltUpPredictBackwardArgs& args, int64_t begin,
                                   int64_t end) noexcept {
  const int64_t count = args.streams;
  for (int64_t t = begin; t < end; ++t) {
    const float* const src = row_of<float>(args.src, t);
    const float* const map = row_of<float>(args.map, t);
    float* const grad = row_of<float>(args.grad, t);
    V sums[kStreams * kStreams];
    for (V& sum : sums) sum = V::zero();
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      V x[kStreams], g[kStreams];
      for (int64_t j = 0; j < count; ++j) {
        x[j] = load_lanes<V>(src + j * args.width + i, lanes);
        g[j] = load_lanes<V>(grad + j * args.width + i, lanes);
      }
      for (int64_t j = 0; j < count; ++j) {
        V sum = g[j];
        for (int64_t k = 0; k < count; ++k) {
          sum = fma(V::broadcast(map[k * count + j]), g[k], sum);
          sums[k * count + j] = fma(g[k], x[j], sums[k * count + j]);
        }
        store_lanes(sum, grad + j * args.width + i, lanes);
      }
    });
    float* const grad_map = row_of<float>(args.grad_map, t);
    for (int64_t k = 0; k < count * count; ++k) grad_map[k] = horizontal_sum(sums[k]);
  }
}

JIGE_FLATTEN void correct(const AltUpCorrectArgs& args, int64_t begin, int64_t end) noexcept {
  const V one = V::broadcast(1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float* const active = row_of<float>(args.active, t);
    const float* const result = row_of<float>(args.result, t);
    const float* const gains = row_of<float>(args.gains, t);
    float* const dst = row_of<float>(args.dst, t);
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V before = load_lanes<V>(active + i, lanes);
      const V news = load_lanes<V>(result + i, lanes) - before;
      for (int64_t k = 0; k < args.streams; ++k) {
        float* const at = dst + k * args.width + i;
        const V predicted = k == 0 ? before : load_lanes<V>(at, lanes);
        store_lanes(fma(one + V::broadcast(gains[k]), news, predicted), at, lanes);
      }
    });
  }
}

JIGE_FLATTEN void correct_backward(const AltUpCorrectBackwardArgs& args, int64_t begin,
                                   int64_t end) noexcept {
  const V one = V::broadcast(1.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float* const active = row_of<float>(args.active, t);
    const float* const result = row_of<float>(args.result, t);
    const float* const gains = row_of<float>(args.gains, t);
    float* const grad = row_of<float>(args.grad, t);
    float* const grad_result = row_of<float>(args.grad_result, t);
    V sums[kStreams];
    for (V& sum : sums) sum = V::zero();
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V news = load_lanes<V>(result + i, lanes) - load_lanes<V>(active + i, lanes);
      V of_result = V::zero();
      for (int64_t k = 0; k < args.streams; ++k) {
        const V g = load_lanes<V>(grad + k * args.width + i, lanes);
        of_result = fma(one + V::broadcast(gains[k]), g, of_result);
        sums[k] = fma(g, news, sums[k]);
      }
      store_lanes(of_result, grad_result + i, lanes);
      store_lanes(load_lanes<V>(grad + i, lanes) - of_result, grad + i, lanes);
    });
    float* const grad_gains = row_of<float>(args.grad_gains, t);
    for (int64_t k = 0; k < args.streams; ++k) grad_gains[k] = horizontal_sum(sums[k]);
  }
}

JIGE_FLATTEN void scale_columns(const ScaleColumnsArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V factors = load_lanes<V>(args.factors + i, lanes);
      store_any(load_any<V>(args.src, t, i, lanes) * factors, args.dst, t, i, lanes);
    });
  }
}

}  // namespace

extern const AltUpKernels kAltUpKernels;
const AltUpKernels kAltUpKernels = {predict, predict_backward, correct, correct_backward,
                                    scale_columns};

}  // namespace jige::cpu::JIGE_ISA_NS

#include "kernels/cpu/adamw.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32;

JIGE_FLATTEN void step(const AdamWArrays& arrays, const AdamWFactors& factors, int64_t begin,
                       int64_t end) noexcept {
  const V grad_scale = V::broadcast(factors.grad_scale);
  const V beta1 = V::broadcast(factors.beta1);
  const V one_minus_beta1 = V::broadcast(factors.one_minus_beta1);
  const V beta2 = V::broadcast(factors.beta2);
  const V one_minus_beta2 = V::broadcast(factors.one_minus_beta2);
  const V root_correction = V::broadcast(factors.root_correction);
  const V epsilon = V::broadcast(factors.epsilon);
  const V decay = V::broadcast(factors.decay);
  const V minus_step_size = V::broadcast(-factors.step_size);
  float* weight = arrays.weight + begin;
  float* moment1 = arrays.moment1 + begin;
  float* moment2 = arrays.moment2 + begin;
  const float* grad = arrays.grad + begin;
  for_each_vector<V>(end - begin, [&](int64_t i, int lanes) {
    fetch_ahead(grad + i);
    fetch_ahead(moment1 + i);
    fetch_ahead(moment2 + i);
    fetch_ahead(weight + i);
    const V g = load_lanes<V>(grad + i, lanes) * grad_scale;
    const V m = fma(one_minus_beta1, g, beta1 * load_lanes<V>(moment1 + i, lanes));
    const V v = fma(one_minus_beta2 * g, g, beta2 * load_lanes<V>(moment2 + i, lanes));
    const V quotient = m / fma(sqrt(v), root_correction, epsilon);
    const V w = fma(minus_step_size, quotient, load_lanes<V>(weight + i, lanes) * decay);
    store_lanes(m, moment1 + i, lanes);
    store_lanes(v, moment2 + i, lanes);
    store_lanes(w, weight + i, lanes);
  });
}

// Eight doubles; on AVX2 the compiler makes two registers of it.
using Double8 = double __attribute__((vector_size(64)));
using Float8 = float __attribute__((vector_size(32), aligned(4), may_alias));

double sum_of_squares(const float* values, int64_t count) noexcept {
  Double8 low = {};  // lanes 0 … 7
  Double8 high = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    fetch_ahead(values + i);
    const Double8 first =
        __builtin_convertvector(*reinterpret_cast<const Float8*>(values + i), Double8);
    const Double8 second =
        __builtin_convertvector(*reinterpret_cast<const Float8*>(values + i + 8), Double8);
    low += first * first;  // a square of an f32 is exact in double
    high += second * second;
  }
  double lanes[16];
  for (int j = 0; j < 8; ++j) {
    lanes[j] = low[j];
    lanes[j + 8] = high[j];
  }
  for (int j = 0; i + j < count; ++j) {
    const double value = static_cast<double>(values[i + j]);
    lanes[j] += value * value;
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace

extern const AdamWKernels kAdamWKernels;
const AdamWKernels kAdamWKernels = {step, sum_of_squares};

}  // namespace jige::cpu::JIGE_ISA_NS

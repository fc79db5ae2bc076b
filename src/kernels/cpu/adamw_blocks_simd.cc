#include "kernels/cpu/adamw_blocks.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

constexpr float kCode1Max = 127;
constexpr float kCode2Max = 255;
constexpr float kCode2Shift = 128;  // codes of the second moment begin at 1, as bytes at -127
constexpr float kRootMax = 0x1p63f;
constexpr float kScaleMin = 0x1p-100f;

// The factors in every lane.
struct Factors {
  V grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction, epsilon, decay,
      minus_step_size;

  explicit JIGE_INLINE Factors(const AdamWFactors& factors)
      : grad_scale(V::broadcast(factors.grad_scale)),
        beta1(V::broadcast(factors.beta1)),
        one_minus_beta1(V::broadcast(factors.one_minus_beta1)),
        beta2(V::broadcast(factors.beta2)),
        one_minus_beta2(V::broadcast(factors.one_minus_beta2)),
        root_correction(V::broadcast(factors.root_correction)),
        epsilon(V::broadcast(factors.epsilon)),
        decay(V::broadcast(factors.decay)),
        minus_step_size(V::broadcast(-factors.step_size)) {}
};

// A block's new moments; 0 behind the end.
struct NewMoments {
  alignas(64) float first[kMomentBlock] = {};
  alignas(64) float root[kMomentBlock] = {};
  V first_max = V::zero();
  V root_max = V::zero();
};

JIGE_INLINE void update(const Factors& f, float* weight, const float* grad,
                        const MomentBlock& moment1, const MomentBlock& moment2, int64_t count,
                        NewMoments& moments) {
  const V scale1 = V::broadcast(moment1.scale);
  const V scale2 = V::broadcast(moment2.scale);
  const V shift = V::broadcast(kCode2Shift);
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    fetch_ahead(grad + i);
    fetch_ahead(weight + i);
    const V code1 = V::load(moment1.codes + i);
    const V code2 = V::load(moment2.codes + i) + shift;
    const V square1 = code1 * code1;
    const V square2 = code2 * code2;
    const V root = square2 * square2 * scale2;
    const V g = load_lanes<V>(grad + i, lanes) * f.grad_scale;
    const V m = fma(f.one_minus_beta1, g, f.beta1 * (square1 * copy_sign(square1, code1) * scale1));
    const V v = fma(f.one_minus_beta2 * g, g, f.beta2 * (root * root));
    const V new_root = min(sqrt(v), V::broadcast(kRootMax));
    const V quotient = m / fma(new_root, f.root_correction, f.epsilon);
    const V w = fma(f.minus_step_size, quotient, load_lanes<V>(weight + i, lanes) * f.decay);
    store_lanes(w, weight + i, lanes);
    store_lanes(m, moments.first + i, lanes);
    store_lanes(new_root, moments.root + i, lanes);
    const V here_m = lanes == V::kLanes ? m : V::load(moments.first + i);
    const V here_root = lanes == V::kLanes ? new_root : V::load(moments.root + i);
    moments.first_max = max(moments.first_max, abs(here_m));
    moments.root_max = max(moments.root_max, here_root);
  });
}

JIGE_INLINE float scale_of(V largest, float code_max) {
  const float scale = horizontal_max(largest) * (1 / (code_max * code_max * code_max * code_max));
  return scale >= kScaleMin ? scale : 0.0f;
}

JIGE_INLINE V inverse_of(float scale) { return V::broadcast(scale > 0 ? 1 / scale : 0.0f); }

JIGE_INLINE void store_codes(V values, int8_t* dst) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), values.narrow_to_bytes());
}

JIGE_INLINE void encode(const NewMoments& moments, MomentBlock& moment1, MomentBlock& moment2) {
  moment1.scale = scale_of(moments.first_max, kCode1Max);
  moment2.scale = scale_of(moments.root_max, kCode2Max);
  const V inverse1 = inverse_of(moment1.scale);
  const V inverse2 = inverse_of(moment2.scale);
  for (int64_t i = 0; i < kMomentBlock; i += V::kLanes) {
    const V m = V::load(moments.first + i);
    const V code1 = min(sqrt(sqrt(abs(m) * inverse1)), V::broadcast(kCode1Max));
    store_codes(copy_sign(code1, m), moment1.codes + i);
    const V code2 = min(sqrt(sqrt(V::load(moments.root + i) * inverse2)), V::broadcast(kCode2Max));
    store_codes(max(code2, V::broadcast(1)) - V::broadcast(kCode2Shift), moment2.codes + i);
  }
}

JIGE_FLATTEN void step_blocks(const AdamWBlockArrays& arrays, const AdamWFactors& factors,
                              int64_t begin, int64_t end) noexcept {
  const Factors f(factors);
  for (int64_t i = begin; i < end; i += kMomentBlock) {
    MomentBlock& moment1 = arrays.moment1[i / kMomentBlock];
    MomentBlock& moment2 = arrays.moment2[i / kMomentBlock];
    for (int64_t line = 0; line < kMomentBlock; line += 64) {
      fetch_ahead(moment1.codes + line);
      fetch_ahead(moment2.codes + line);
    }
    NewMoments moments;
    const int64_t count = end - i < kMomentBlock ? end - i : kMomentBlock;
    update(f, arrays.weight + i, arrays.grad + i, moment1, moment2, count, moments);
    encode(moments, moment1, moment2);
  }
}

}  // namespace

extern const AdamWBlockKernels kAdamWBlockKernels;
const AdamWBlockKernels kAdamWBlockKernels = {step_blocks};

}  // namespace jige::cpu::JIGE_ISA_NS

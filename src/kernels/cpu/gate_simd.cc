#include "kernels/cpu/gate.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// What a gate multiplies with, and the slope of that.
struct GateFactor {
  V value, slope;
};

struct SigmoidFactor {
  static JIGE_INLINE GateFactor of(V gate) {
    const V s = sigmoid(gate);
    return {s, s * (V::broadcast(1.0f) - s)};
  }
};

struct SiluFactor {
  static JIGE_INLINE GateFactor of(V gate) {
    const V one = V::broadcast(1.0f);
    const V s = sigmoid(gate);
    return {gate * s, s * fma(gate, one - s, one)};
  }
};

struct PlainFactor {
  static JIGE_INLINE GateFactor of(V gate) { return {gate, V::broadcast(1.0f)}; }
};

template <typename Factor>
JIGE_FLATTEN void gate_forward(const GateForwardArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const V factor = Factor::of(load_any<V>(args.gate, t, i, lanes)).value;
      store_any(load_any<V>(args.src, t, i, lanes) * factor, args.dst, t, i, lanes);
    });
  }
}

template <typename Factor>
JIGE_FLATTEN void gate_backward(const GateBackwardArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
      const GateFactor factor = Factor::of(load_any<V>(args.gate, t, i, lanes));
      const V src = load_any<V>(args.src, t, i, lanes);
      const V grad = load_any<V>(args.grad_dst, t, i, lanes);
      store_any(grad * factor.value, args.grad_src, t, i, lanes);
      store_any(grad * src * factor.slope, args.grad_gate, t, i, lanes);
    });
  }
}

template <typename Factor>
constexpr GateKernel kGateKernel = {gate_forward<Factor>, gate_backward<Factor>};

}  // namespace

extern const GateKernels kGateKernels;
const GateKernels kGateKernels = {kGateKernel<SigmoidFactor>, kGateKernel<SiluFactor>,
                                  kGateKernel<PlainFactor>};

}  // namespace jige::cpu::JIGE_ISA_NS

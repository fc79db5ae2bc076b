#include "kernels/cpu/delta_gates.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// What the gates of some heads come of.
struct DecayParts {
  V argument;  // a + bias
  V scale;     // -exp(log_scale)
};
JIGE_INLINE DecayParts decay_parts(const DeltaGateInputs& in, int64_t t, int64_t h, int lanes) {
  return {load_any<V>(in.a, t, h, lanes) + load_lanes<V>(in.bias + h, lanes),
          -exp(load_lanes<V>(in.log_scale + h, lanes))};
}

JIGE_FLATTEN void gates_forward(const DeltaGateForwardArgs& args, int64_t begin,
                                int64_t end) noexcept {
  const V rate_scale = V::broadcast(args.in.rate_scale);
  for (int64_t t = begin; t < end; ++t) {
    for_each_vector<V>(args.in.heads, [&](int64_t h, int lanes) {
      const DecayParts decay = decay_parts(args.in, t, h, lanes);
      const V step = softplus(decay.argument);
      const V rate =
          args.in.has_b ? rate_scale * sigmoid(load_any<V>(args.in.b, t, h, lanes)) : step;
      store_lanes(decay.scale * step, row_of<float>(args.log_decay, t) + h, lanes);
      store_lanes(rate, row_of<float>(args.rate, t) + h, lanes);
    });
  }
}

JIGE_FLATTEN void gates_backward(const DeltaGateBackwardArgs& args, int64_t begin,
                                 int64_t end) noexcept {
  const V rate_scale = V::broadcast(args.in.rate_scale);
  for (int64_t t = begin; t < end; ++t) {
    for_each_vector<V>(args.in.heads, [&](int64_t h, int lanes) {
      const DecayParts decay = decay_parts(args.in, t, h, lanes);
      const V grad_decay = load_lanes<V>(row_of<float>(args.grad_log_decay, t) + h, lanes);
      const V grad_rate = load_lanes<V>(row_of<float>(args.grad_rate, t) + h, lanes);
      const V slope = softplus_slope(decay.argument);
      const V scaled = grad_decay * decay.scale;
      const V grad_a = (args.in.has_b ? scaled : scaled + grad_rate) * slope;
      store_any(grad_a, args.grad_a, t, h, lanes);
      if (args.in.has_b) {
        const V b = load_any<V>(args.in.b, t, h, lanes);
        store_any(grad_rate * rate_scale * (sigmoid(b) * sigmoid(-b)), args.grad_b, t, h, lanes);
      }
      store_lanes(scaled * softplus(decay.argument), row_of<float>(args.slopes_scale, t) + h,
                  lanes);
      store_lanes(grad_a, row_of<float>(args.slopes_bias, t) + h, lanes);
    });
  }
}

}  // namespace

extern const DeltaGateKernels kDeltaGateKernels;
const DeltaGateKernels kDeltaGateKernels = {gates_forward, gates_backward};

}  // namespace jige::cpu::JIGE_ISA_NS

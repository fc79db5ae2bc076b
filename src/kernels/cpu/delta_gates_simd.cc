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

// -exp of one number.
JIGE_INLINE V head_scale(const DeltaGateInputs& in, int64_t h) {
  return -exp(V::broadcast(in.log_scale[h]));
}

// The decays of a row, column by column.
JIGE_INLINE void decays_by_key(const DeltaGateForwardArgs& args, int64_t t) {
  const DeltaGateInputs& in = args.in;
  for (int64_t h = 0; h < in.heads; ++h) {
    const V scale = head_scale(in, h);
    for_each_vector<V>(in.key_dim, [&](int64_t i, int lanes) {
      const int64_t at = h * in.key_dim + i;
      const V argument = load_any<V>(in.a, t, at, lanes) + load_lanes<V>(in.bias + at, lanes);
      store_lanes(scale * softplus(argument), row_of<float>(args.log_decay, t) + at, lanes);
    });
  }
}

JIGE_INLINE void decay_gradients_by_key(const DeltaGateBackwardArgs& args, int64_t t) {
  const DeltaGateInputs& in = args.in;
  for (int64_t h = 0; h < in.heads; ++h) {
    const V scale = head_scale(in, h);
    V sum = V::zero();
    for_each_vector<V>(in.key_dim, [&](int64_t i, int lanes) {
      const int64_t at = h * in.key_dim + i;
      const V argument = load_any<V>(in.a, t, at, lanes) + load_lanes<V>(in.bias + at, lanes);
      const V scaled = load_lanes<V>(row_of<float>(args.grad_log_decay, t) + at, lanes) * scale;
      const V grad_a = scaled * softplus_slope(argument);
      store_any(grad_a, args.grad_a, t, at, lanes);
      store_lanes(grad_a, row_of<float>(args.slopes_bias, t) + at, lanes);
      sum = fma(scaled, softplus(argument), sum);
    });
    row_of<float>(args.slopes_scale, t)[h] = horizontal_sum(sum);
  }
}

// The gradient at b of some heads.
JIGE_INLINE void rate_gradient(const DeltaGateBackwardArgs& args, int64_t t, int64_t h, int lanes) {
  const V grad_rate = load_lanes<V>(row_of<float>(args.grad_rate, t) + h, lanes);
  const V b = load_any<V>(args.in.b, t, h, lanes);
  store_any(grad_rate * V::broadcast(args.in.rate_scale) * (sigmoid(b) * sigmoid(-b)), args.grad_b,
            t, h, lanes);
}

JIGE_FLATTEN void gates_forward(const DeltaGateForwardArgs& args, int64_t begin,
                                int64_t end) noexcept {
  const V rate_scale = V::broadcast(args.in.rate_scale);
  for (int64_t t = begin; t < end; ++t) {
    if (args.in.key_dim > 1) {
      decays_by_key(args, t);
      for_each_vector<V>(args.in.heads, [&](int64_t h, int lanes) {
        const V rate = rate_scale * sigmoid(load_any<V>(args.in.b, t, h, lanes));
        store_lanes(rate, row_of<float>(args.rate, t) + h, lanes);
      });
      continue;
    }
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
  for (int64_t t = begin; t < end; ++t) {
    if (args.in.key_dim > 1) {
      decay_gradients_by_key(args, t);
      for_each_vector<V>(args.in.heads,
                         [&](int64_t h, int lanes) { rate_gradient(args, t, h, lanes); });
      continue;
    }
    for_each_vector<V>(args.in.heads, [&](int64_t h, int lanes) {
      const DecayParts decay = decay_parts(args.in, t, h, lanes);
      const V grad_decay = load_lanes<V>(row_of<float>(args.grad_log_decay, t) + h, lanes);
      const V grad_rate = load_lanes<V>(row_of<float>(args.grad_rate, t) + h, lanes);
      const V slope = softplus_slope(decay.argument);
      const V scaled = grad_decay * decay.scale;
      const V grad_a = (args.in.has_b ? scaled : scaled + grad_rate) * slope;
      store_any(grad_a, args.grad_a, t, h, lanes);
      if (args.in.has_b) rate_gradient(args, t, h, lanes);
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

#include "kernels/cpu/activation.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// GELU in the tanh form.
struct GeluTanh {
  static constexpr float kLinear = 1.59576912160573f;   // 2 √(2/π)
  static constexpr float kCubic = 0.0713548162726009f;  // 2 √(2/π) · 0.044715

  static JIGE_INLINE V value(V x) {
    const V slope = fma(x * x, V::broadcast(kCubic), V::broadcast(kLinear));
    return x * sigmoid(x * slope);
  }
  static JIGE_INLINE V derivative(V x) {
    const V square = x * x;
    const V linear = V::broadcast(kLinear);
    const V s = sigmoid(x * fma(square, V::broadcast(kCubic), linear));
    const V slope = fma(square, V::broadcast(3 * kCubic), linear);
    return fma(x * slope, s * (V::broadcast(1.0f) - s), s);
  }
};

// GELU in the exact form.
struct GeluErf {
  static JIGE_INLINE V phi(V x) {
    const V half = V::broadcast(0.5f);
    return fma(half, erf(x * V::broadcast(0.707106781186548f)), half);
  }
  static JIGE_INLINE V value(V x) { return x * phi(x); }
  static JIGE_INLINE V derivative(V x) {
    const V density = V::broadcast(0.398942280401433f) * exp(x * x * V::broadcast(-0.5f));
    return fma(x, density, phi(x));
  }
};

// The gates: what a gate makes of `up`, and the gradients of both.
struct GatedGrad {
  V value, gate, up;
};

struct SiluGate {
  static JIGE_INLINE V value(V gate, V up) { return gate * sigmoid(gate) * up; }
  static JIGE_INLINE GatedGrad backward(V gate, V up, V grad) {
    const V one = V::broadcast(1.0f);
    const V s = sigmoid(gate);
    const V grad_s = grad * s;
    return {gate * s * up, grad_s * up * fma(gate, one - s, one), grad_s * gate};
  }
};

template <typename Form>
struct GeluGate {
  static JIGE_INLINE V value(V gate, V up) { return Form::value(gate) * up; }
  static JIGE_INLINE GatedGrad backward(V gate, V up, V grad) {
    const V activated = Form::value(gate);
    return {activated * up, grad * up * Form::derivative(gate), grad * activated};
  }
};

template <typename Gate, typename Dst, typename Src>
JIGE_FLATTEN void gated_forward_row(Dst* dst, const Src* gate_up, int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    const V gate = load_lanes<V>(gate_up + i, lanes);
    store_lanes(Gate::value(gate, load_lanes<V>(gate_up + width + i, lanes)), dst + i, lanes);
  });
}

template <typename Gate, typename GradSrc, typename GradDst, typename Src>
JIGE_FLATTEN void gated_backward_row(GradSrc* grad_gate_up, const GradDst* grad_dst,
                                     const Src* gate_up, Src* activated, int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    const V gate = load_lanes<V>(gate_up + i, lanes);
    const V up = load_lanes<V>(gate_up + width + i, lanes);
    const GatedGrad grads = Gate::backward(gate, up, load_lanes<V>(grad_dst + i, lanes));
    if (activated) store_lanes(grads.value, activated + i, lanes);
    store_lanes(grads.gate, grad_gate_up + i, lanes);
    store_lanes(grads.up, grad_gate_up + width + i, lanes);
  });
}

struct Relu {
  static JIGE_INLINE V value(V x) { return select(x <= V::zero(), V::zero(), x); }
  static JIGE_INLINE V derivative(V x) {
    return select(x <= V::zero(), V::zero(), V::broadcast(1.0f));
  }
};

struct ReluSquared {
  static JIGE_INLINE V value(V x) {
    const V positive = Relu::value(x);
    return positive * positive;
  }
  static JIGE_INLINE V derivative(V x) { return V::broadcast(2.0f) * Relu::value(x); }
};

struct Silu {
  static JIGE_INLINE V value(V x) { return x * sigmoid(x); }
  static JIGE_INLINE V derivative(V x) {
    const V one = V::broadcast(1.0f);
    const V s = sigmoid(x);
    return s * fma(x, one - s, one);
  }
};

template <typename Form, typename Dst, typename Src>
JIGE_FLATTEN void plain_forward_row(Dst* dst, const Src* src, int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    store_lanes(Form::value(load_lanes<V>(src + i, lanes)), dst + i, lanes);
  });
}

template <typename Form, typename GradSrc, typename GradDst, typename Src>
JIGE_FLATTEN void plain_backward_row(GradSrc* grad_src, const GradDst* grad_dst, const Src* src,
                                     int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    const V grad = load_lanes<V>(grad_dst + i, lanes);
    store_lanes(grad * Form::derivative(load_lanes<V>(src + i, lanes)), grad_src + i, lanes);
  });
}

template <typename Gate>
void gated_forward(const GatedForwardArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.gate_up.type, [&](auto src_tag) {
      for (int64_t t = begin; t < end; ++t) {
        gated_forward_row<Gate>(row_of<typename decltype(dst_tag)::Type>(args.dst, t),
                                row_of<typename decltype(src_tag)::Type>(args.gate_up, t),
                                args.width);
      }
    });
  });
}

template <typename Gate>
void gated_backward(const GatedBackwardArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.grad_gate_up.type, [&](auto grad_src_tag) {
    with_element_type(args.grad_dst.type, [&](auto grad_dst_tag) {
      with_element_type(args.gate_up.type, [&](auto src_tag) {
        for (int64_t t = begin; t < end; ++t) {
          gated_backward_row<Gate>(
              row_of<typename decltype(grad_src_tag)::Type>(args.grad_gate_up, t),
              row_of<typename decltype(grad_dst_tag)::Type>(args.grad_dst, t),
              row_of<typename decltype(src_tag)::Type>(args.gate_up, t),
              args.activated.data ? row_of<typename decltype(src_tag)::Type>(args.activated, t)
                                  : nullptr,
              args.width);
        }
      });
    });
  });
}

template <typename Form>
void plain_forward(const PlainForwardArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.src.type, [&](auto src_tag) {
      for (int64_t t = begin; t < end; ++t) {
        plain_forward_row<Form>(row_of<typename decltype(dst_tag)::Type>(args.dst, t),
                                row_of<typename decltype(src_tag)::Type>(args.src, t), args.width);
      }
    });
  });
}

template <typename Form>
void plain_backward(const PlainBackwardArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.grad_src.type, [&](auto grad_src_tag) {
    with_element_type(args.grad_dst.type, [&](auto grad_dst_tag) {
      with_element_type(args.src.type, [&](auto src_tag) {
        for (int64_t t = begin; t < end; ++t) {
          plain_backward_row<Form>(row_of<typename decltype(grad_src_tag)::Type>(args.grad_src, t),
                                   row_of<typename decltype(grad_dst_tag)::Type>(args.grad_dst, t),
                                   row_of<typename decltype(src_tag)::Type>(args.src, t),
                                   args.width);
        }
      });
    });
  });
}

}  // namespace

extern const ActivationKernels kActivationKernels;
const ActivationKernels kActivationKernels = {
    .swiglu = {gated_forward<SiluGate>, gated_backward<SiluGate>},
    .geglu = {gated_forward<GeluGate<GeluTanh>>, gated_backward<GeluGate<GeluTanh>>},
    .geglu_erf = {gated_forward<GeluGate<GeluErf>>, gated_backward<GeluGate<GeluErf>>},
    .gelu_tanh = {plain_forward<GeluTanh>, plain_backward<GeluTanh>},
    .gelu_erf = {plain_forward<GeluErf>, plain_backward<GeluErf>},
    .relu = {plain_forward<Relu>, plain_backward<Relu>},
    .relu_squared = {plain_forward<ReluSquared>, plain_backward<ReluSquared>},
    .silu = {plain_forward<Silu>, plain_backward<Silu>},
};

}  // namespace jige::cpu::JIGE_ISA_NS

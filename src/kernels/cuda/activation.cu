#include "kernels/cuda/activation.h"

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

// GELU in the exact form.
struct GeluErf {
  static __device__ Point at(float x) {
    const float phi = fmaf(0.5f, erff(x * 0.707106781186548f), 0.5f);
    const float density = 0.398942280401433f * expf(x * x * -0.5f);
    return {x * phi, fmaf(x, density, phi)};
  }
};

struct Relu {
  static __device__ Point at(float x) { return {x <= 0.0f ? 0.0f : x, x <= 0.0f ? 0.0f : 1.0f}; }
};

struct ReluSquared {
  static __device__ Point at(float x) {
    const float positive = x <= 0.0f ? 0.0f : x;
    return {positive * positive, 2.0f * positive};
  }
};

template <typename Form>
struct PlainForward {
  Rows dst;
  ConstRows src;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float x[W];
    load_packed<W>(src, row, column).unpack(src.type, x);
    for (int i = 0; i < W; ++i) x[i] = Form::at(x[i]).value;
    store_vector(dst, row, column, x);
  }
};

template <typename Form>
struct PlainBackward {
  Rows grad_src;
  ConstRows grad_dst, src;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto packed_grad = load_packed<W>(grad_dst, row, column);
    const auto packed_src = load_packed<W>(src, row, column);
    float grad[W], x[W];
    packed_grad.unpack(grad_dst.type, grad);
    packed_src.unpack(src.type, x);
    for (int i = 0; i < W; ++i) grad[i] *= Form::at(x[i]).slope;
    store_vector(grad_src, row, column, grad);
  }
};

template <typename Form>
struct GatedForward {
  Rows dst;
  ConstRows gate, up;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto packed_gate = load_packed<W>(gate, row, column);
    const auto packed_up = load_packed<W>(up, row, column);
    float x[W], y[W];
    packed_gate.unpack(gate.type, x);
    packed_up.unpack(up.type, y);
    for (int i = 0; i < W; ++i) x[i] = Form::at(x[i]).value * y[i];
    store_vector(dst, row, column, x);
  }
};

template <typename Form>
struct GatedBackward {
  Rows grad_gate, grad_up;
  ConstRows grad_dst, gate, up;
  Rows activated;  // or null data

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto packed_gate = load_packed<W>(gate, row, column);
    const auto packed_up = load_packed<W>(up, row, column);
    const auto packed_grad = load_packed<W>(grad_dst, row, column);
    float x[W], y[W], grad[W], value[W];
    packed_gate.unpack(gate.type, x);
    packed_up.unpack(up.type, y);
    packed_grad.unpack(grad_dst.type, grad);
    for (int i = 0; i < W; ++i) {
      const Point point = Form::at(x[i]);
      value[i] = point.value * y[i];
      x[i] = grad[i] * y[i] * point.slope;
      y[i] = grad[i] * point.value;
    }
    if (activated.data) store_vector(activated, row, column, value);
    store_vector(grad_gate, row, column, x);
    store_vector(grad_up, row, column, y);
  }
};

template <typename Form>
void plain_forward(const LaunchStream& stream, const cpu::PlainForwardArgs& args, int64_t rows) {
  const Extent extent = merged_extent(rows, args.width, args.dst, args.src);
  launch_elementwise(stream, extent, aligned(extent.rows, args.dst, args.src),
                     PlainForward<Form>{args.dst, args.src});
}

template <typename Form>
void plain_backward(const LaunchStream& stream, const cpu::PlainBackwardArgs& args, int64_t rows) {
  const Extent extent = merged_extent(rows, args.width, args.grad_src, args.grad_dst, args.src);
  launch_elementwise(stream, extent, aligned(extent.rows, args.grad_src, args.grad_dst, args.src),
                     PlainBackward<Form>{args.grad_src, args.grad_dst, args.src});
}

template <typename Form>
void gated_forward(const LaunchStream& stream, const cpu::GatedForwardArgs& args, int64_t rows) {
  const ConstRows up = from_column(args.gate_up, args.width);
  launch_elementwise(stream, {rows, args.width}, aligned(rows, args.dst, args.gate_up, up),
                     GatedForward<Form>{args.dst, args.gate_up, up});
}

template <typename Form>
void gated_backward(const LaunchStream& stream, const cpu::GatedBackwardArgs& args, int64_t rows) {
  const GatedBackward<Form> op = {
      args.grad_gate_up, from_column(args.grad_gate_up, args.width), args.grad_dst,
      args.gate_up,      from_column(args.gate_up, args.width),      args.activated};
  const bool vectors =
      aligned(rows, op.grad_gate, op.grad_up, op.grad_dst, op.gate, op.up, op.activated);
  launch_elementwise(stream, {rows, args.width}, vectors, op);
}

template <typename Form>
constexpr PlainActivation kPlain = {plain_forward<Form>, plain_backward<Form>};
template <typename Form>
constexpr GatedActivation kGated = {gated_forward<Form>, gated_backward<Form>};

}  // namespace

const ActivationKernels& activation_kernels() {
  static constexpr ActivationKernels kKernels = {
      .swiglu = kGated<Silu>,
      .geglu = kGated<GeluTanh>,
      .geglu_erf = kGated<GeluErf>,
      .gelu_tanh = kPlain<GeluTanh>,
      .gelu_erf = kPlain<GeluErf>,
      .relu = kPlain<Relu>,
      .relu_squared = kPlain<ReluSquared>,
      .silu = kPlain<Silu>,
  };
  return kKernels;
}

}  // namespace jige::cuda

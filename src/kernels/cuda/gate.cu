#include "kernels/cuda/gate.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

// What a gate multiplies with, and the slope of that.
struct Factor {
  float value, slope;
};

struct SigmoidFactor {
  static __device__ Factor at(float gate) {
    const float s = sigmoid(gate);
    return {s, s * (1.0f - s)};
  }
};

struct SiluFactor {
  static __device__ Factor at(float gate) {
    const float s = sigmoid(gate);
    return {gate * s, s * fmaf(gate, 1.0f - s, 1.0f)};
  }
};

struct PlainFactor {
  static __device__ Factor at(float gate) { return {gate, 1.0f}; }
};

template <typename Form>
struct GateForward {
  Rows dst;
  ConstRows src, gate;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto packed_src = load_packed<W>(src, row, column);
    const auto packed_gate = load_packed<W>(gate, row, column);
    float x[W], by[W];
    packed_src.unpack(src.type, x);
    packed_gate.unpack(gate.type, by);
    for (int i = 0; i < W; ++i) x[i] *= Form::at(by[i]).value;
    store_vector(dst, row, column, x);
  }
};

template <typename Form>
struct GateBackward {
  Rows grad_src, grad_gate;
  ConstRows grad_dst, src, gate;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const auto packed_grad = load_packed<W>(grad_dst, row, column);
    const auto packed_src = load_packed<W>(src, row, column);
    const auto packed_gate = load_packed<W>(gate, row, column);
    float grad[W], x[W], by[W];
    packed_grad.unpack(grad_dst.type, grad);
    packed_src.unpack(src.type, x);
    packed_gate.unpack(gate.type, by);
    for (int i = 0; i < W; ++i) {
      const Factor factor = Form::at(by[i]);
      x[i] = grad[i] * x[i] * factor.slope;
      grad[i] *= factor.value;
    }
    store_vector(grad_src, row, column, grad);
    store_vector(grad_gate, row, column, x);
  }
};

template <typename Form>
void gate_forward(const LaunchStream& stream, const cpu::GateForwardArgs& args, int64_t rows) {
  const Extent extent = merged_extent(rows, args.width, args.dst, args.src, args.gate);
  launch_elementwise(stream, extent, aligned(extent.rows, args.dst, args.src, args.gate),
                     GateForward<Form>{args.dst, args.src, args.gate});
}

template <typename Form>
void gate_backward(const LaunchStream& stream, const cpu::GateBackwardArgs& args, int64_t rows) {
  const Extent extent = merged_extent(rows, args.width, args.grad_src, args.grad_gate,
                                      args.grad_dst, args.src, args.gate);
  const bool vectors =
      aligned(extent.rows, args.grad_src, args.grad_gate, args.grad_dst, args.src, args.gate);
  launch_elementwise(
      stream, extent, vectors,
      GateBackward<Form>{args.grad_src, args.grad_gate, args.grad_dst, args.src, args.gate});
}

template <typename Form>
constexpr GateKernel kGate = {gate_forward<Form>, gate_backward<Form>};

}  // namespace

const GateKernels& gate_kernels() {
  static constexpr GateKernels kKernels = {kGate<SigmoidFactor>, kGate<SiluFactor>,
                                           kGate<PlainFactor>};
  return kKernels;
}

}  // namespace jige::cuda

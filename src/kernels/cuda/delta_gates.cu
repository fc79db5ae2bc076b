#include "kernels/cuda/delta_gates.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

// Of softplus, which makes steps of sums.
__device__ float step_slope(float x) { return x > kSoftplusLinearFrom ? 1.0f : sigmoid(x); }

__device__ float element(const ConstRows& rows, int64_t row, int64_t column) {
  return load_element(rows.data, rows.type, row * rows.stride + column);
}
__device__ void store_at(const Rows& rows, int64_t row, int64_t column, float value) {
  store_element(rows.data, rows.type, row * rows.stride + column, value);
}

struct GatesForward {
  cpu::DeltaGateForwardArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t head) const {
    const cpu::DeltaGateInputs& in = args.in;
    const float step = softplus(element(in.a, row, head) + in.bias[head]);
    const float rate = in.has_b ? in.rate_scale * sigmoid(element(in.b, row, head)) : step;
    store_at(args.log_decay, row, head, -expf(in.log_scale[head]) * step);
    store_at(args.rate, row, head, rate);
  }
};

struct GatesBackward {
  cpu::DeltaGateBackwardArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t head) const {
    const cpu::DeltaGateInputs& in = args.in;
    const float argument = element(in.a, row, head) + in.bias[head];
    const float grad_rate = element(args.grad_rate, row, head);
    const float scaled = element(args.grad_log_decay, row, head) * -expf(in.log_scale[head]);
    const float grad_a = (in.has_b ? scaled : scaled + grad_rate) * step_slope(argument);
    store_at(args.grad_a, row, head, grad_a);
    if (in.has_b) {
      const float b = element(in.b, row, head);
      store_at(args.grad_b, row, head, grad_rate * in.rate_scale * (sigmoid(b) * sigmoid(-b)));
    }
    store_at(args.slopes_scale, row, head, scaled * softplus(argument));
    store_at(args.slopes_bias, row, head, grad_a);
  }
};

}  // namespace

void delta_gates_forward(const LaunchStream& stream, const cpu::DeltaGateForwardArgs& args,
                         int64_t rows) {
  launch_elementwise<1>(stream, {rows, args.in.heads}, false, GatesForward{args});
}

void delta_gates_backward(const LaunchStream& stream, const cpu::DeltaGateBackwardArgs& args,
                          int64_t rows) {
  launch_elementwise<1>(stream, {rows, args.in.heads}, false, GatesBackward{args});
}

}  // namespace jige::cuda

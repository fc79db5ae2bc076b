#include "kernels/cuda/xielu.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr float kSeriesFrom = -0.25f;  // above it e^x - 1 - x is taken from its series
constexpr int kXieluThreads = 256;

// Of softplus, which makes factors of the parameters.
__device__ float alpha_slope(float x) {
  return x > kSoftplusLinearFrom ? 1.0f : 1.0f / (1.0f + expf(-x));
}

struct XieluFactors {
  float above, below, beta, eps;
};
__device__ XieluFactors factors_of(const cpu::XieluCurve& curve) {
  return {softplus(*curve.alpha_p), *curve.beta + softplus(*curve.alpha_n), *curve.beta,
          *curve.eps};
}

// e^x - 1 - x, for x up to 0 and little more.
__device__ float beyond_linear(float x) {
  if (x < kSeriesFrom) return expf(x) - 1.0f - x;
  float series = 1.0f / 5040;
  series = fmaf(series, x, 1.0f / 720);
  series = fmaf(series, x, 1.0f / 120);
  series = fmaf(series, x, 1.0f / 24);
  series = fmaf(series, x, 1.0f / 6);
  series = fmaf(series, x, 0.5f);
  return x * x * series;
}

// What n is multiplied with: e^m - 1 - x.
__device__ float below_part(float x, float eps) {
  const float m = x < eps ? x : eps;
  return beyond_linear(m) + (m - x);
}

struct XieluForward {
  cpu::XieluCurve curve;
  Rows dst;
  ConstRows src;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const XieluFactors f = factors_of(curve);
    float x[W];
    load_packed<W>(src, row, column).unpack(src.type, x);
    for (int i = 0; i < W; ++i) {
      const float curved = x[i] <= 0.0f ? f.below * below_part(x[i], f.eps) : f.above * x[i] * x[i];
      x[i] = fmaf(f.beta, x[i], curved);
    }
    store_vector(dst, row, column, x);
  }
};

// A block has a row.
template <int W>
__global__ void __launch_bounds__(kXieluThreads)
    xielu_backward_kernel(cpu::XieluBackwardArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const XieluFactors f = factors_of(args.curve);
  float above = 0.0f, below = 0.0f;
  for (int64_t i = int64_t{threadIdx.x} * W; i < args.width; i += kXieluThreads * W) {
    const auto packed_grad = load_packed<W>(args.grad_dst, row, i);
    const auto packed_src = load_packed<W>(args.src, row, i);
    float grad[W], x[W];
    packed_grad.unpack(args.grad_dst.type, grad);
    packed_src.unpack(args.src.type, x);
    for (int k = 0; k < W; ++k) {
      float curved = 2.0f * f.above * x[k];
      if (x[k] <= 0.0f) {
        const float power = f.eps < x[k] ? -1.0f : beyond_linear(x[k]) + x[k];
        curved = f.below * power;
        below = fmaf(grad[k], below_part(x[k], f.eps), below);
      } else {
        above = fmaf(grad[k] * x[k], x[k], above);
      }
      grad[k] *= curved + f.beta;
    }
    store_vector(args.grad_src, row, i, grad);
  }
  above = block_sum(above, shared);
  below = block_sum(below, shared);
  if (threadIdx.x != 0) return;
  float* const to = static_cast<float*>(args.slopes.data) + row * args.slopes.stride;
  to[0] = alpha_slope(*args.curve.alpha_p) * above;
  to[1] = alpha_slope(*args.curve.alpha_n) * below;
}

}  // namespace

void xielu_forward(const LaunchStream& stream, const cpu::XieluForwardArgs& args, int64_t rows) {
  const Extent extent = merged_extent(rows, args.width, args.dst, args.src);
  launch_elementwise(stream, extent, aligned(extent.rows, args.dst, args.src),
                     XieluForward{args.curve, args.dst, args.src});
}

void xielu_backward(const LaunchStream& stream, const cpu::XieluBackwardArgs& args, int64_t rows) {
  const bool vectors =
      args.width % kVector == 0 && aligned(rows, args.grad_src, args.grad_dst, args.src);
  launch(stream, {static_cast<unsigned>(rows), kXieluThreads},
         vectors ? xielu_backward_kernel<kVector> : xielu_backward_kernel<1>, args);
}

}  // namespace jige::cuda

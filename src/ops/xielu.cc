#include "ops/xielu.h"

#include "base/cpu.h"
#include "kernels/cpu/xielu.h"
#include "kernels/cuda/xielu.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

cpu::XieluCurve curve_of(const Xielu& curve) {
  check_vector("alpha_p", curve.alpha_p, DType::kF32, 1);
  check_vector("alpha_n", curve.alpha_n, DType::kF32, 1);
  check_vector("beta", curve.beta, DType::kF32, 1);
  check_vector("eps", curve.eps, DType::kF32, 1);
  return {.alpha_p = curve.alpha_p.as<float>(),
          .alpha_n = curve.alpha_n.as<float>(),
          .beta = curve.beta.as<float>(),
          .eps = curve.eps.as<float>()};
}

template <typename Args>
void submit_xielu(Stream& stream, const Args& args, int64_t rows,
                  void (*cpu::XieluKernels::*kernel_member)(const Args&, int64_t, int64_t) noexcept,
                  void (*cuda_kernel)(const cuda::LaunchStream&, const Args&, int64_t)) {
  if (on_cuda(stream)) return cuda_kernel(launch_stream(stream), args, rows);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, kernel_member, &device = cpu_stream.cpu()] {
    const auto run = cpu::xielu_kernels(active_isa()).*kernel_member;
    for_row_ranges(device, rows, args.width,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

}  // namespace

void xielu_forward(Stream& stream, const Xielu& curve, const TensorView& dst,
                   const TensorView& src) {
  check_float("dst", dst, src.rows(), src.columns());
  check_float("src", src, src.rows(), src.columns());
  submit_xielu(stream,
               cpu::XieluForwardArgs{.curve = curve_of(curve),
                                     .dst = rows_of(dst),
                                     .src = const_rows_of(src),
                                     .width = src.columns()},
               src.rows(), &cpu::XieluKernels::forward, cuda::xielu_forward);
}

void xielu_backward(Stream& stream, const Xielu& curve, const TensorView& grad_src,
                    const TensorView& grad_dst, const TensorView& src, const TensorView& slopes) {
  check_float("grad_src", grad_src, src.rows(), src.columns());
  check_float("grad_dst", grad_dst, src.rows(), src.columns());
  check_float("src", src, src.rows(), src.columns());
  check_typed("slopes", slopes, DType::kF32, src.rows(), 2);
  submit_xielu(stream,
               cpu::XieluBackwardArgs{.curve = curve_of(curve),
                                      .grad_src = rows_of(grad_src),
                                      .grad_dst = const_rows_of(grad_dst),
                                      .src = const_rows_of(src),
                                      .slopes = rows_of(slopes),
                                      .width = src.columns()},
               src.rows(), &cpu::XieluKernels::backward, cuda::xielu_backward);
}

}  // namespace jige::ops

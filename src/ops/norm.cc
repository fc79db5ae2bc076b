#include "ops/norm.h"

#include "base/cpu.h"
#include "kernels/cpu/norm.h"
#include "kernels/cuda/norm.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

struct NormShape {
  int64_t rows;
  int64_t groups;
  int64_t width;
};

NormShape check_source(const TensorView& src, const char* weight_name, const TensorView& weight,
                       int64_t plain_width) {
  const int64_t width = weight ? weight.count() : plain_width;
  if (weight) check_vector(weight_name, weight, DType::kF32, width);
  JIGE_CHECK(width >= 1 && src.columns() % width == 0, "{} columns are no groups of {}",
             src.columns(), width);
  check_float("src", src, src.rows(), src.columns());
  return {src.rows(), src.columns() / width, width};
}

cpu::Statistics check_statistics(const char* name, const TensorView& view, const NormShape& shape) {
  check_typed(name, view, DType::kF32, shape.rows, shape.groups);
  return {static_cast<float*>(view.data), view.row_stride};
}

cpu::Statistics optional_statistics(const char* name, const TensorView& view,
                                    const NormShape& shape) {
  if (!view) return {nullptr, 0};
  return check_statistics(name, view, shape);
}

const cpu::NormKernels& norm_kernels() { return cpu::norm_kernels(active_isa()); }

void forward(Stream& stream, const NormForward& args, bool layer) {
  const NormShape shape = check_source(args.src, "weight", args.weight, args.width);
  check_float("dst", args.dst, shape.rows, args.src.columns());
  cpu::NormForwardArgs kernel_args = {};
  kernel_args.dst = rows_of(args.dst);
  kernel_args.src = const_rows_of(args.src);
  kernel_args.weight = args.weight ? args.weight.as<float>() : nullptr;
  kernel_args.rstd = optional_statistics("rstd", args.rstd, shape);
  kernel_args.group_count = shape.groups;
  kernel_args.width = shape.width;
  kernel_args.eps = static_cast<float>(args.eps);
  kernel_args.weight_adds_one = args.weight_adds_one;
  if (layer) {
    kernel_args.mean = optional_statistics("mean", args.mean, shape);
    if (args.bias) {
      check_vector("bias", args.bias, DType::kF32, shape.width);
      kernel_args.bias = args.bias.as<float>();
    }
  }
  if (on_cuda(stream)) {
    return cuda::norm_forward(launch_stream(stream), kernel_args, shape.rows, layer);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, shape, layer, &device = cpu_stream.cpu()] {
    const auto kernel = layer ? norm_kernels().layer_forward : norm_kernels().rms_forward;
    for_row_ranges(device, shape.rows, shape.groups * shape.width,
                   [&](int64_t begin, int64_t end) { kernel(kernel_args, begin, end); });
  });
}

void backward_input(Stream& stream, const NormBackwardInput& args, bool layer) {
  const NormShape shape = check_source(args.src, "weight", args.weight, args.width);
  check_float("grad_src", args.grad_src, shape.rows, args.src.columns());
  check_float("grad_dst", args.grad_dst, shape.rows, args.src.columns());
  cpu::NormBackwardInputArgs kernel_args = {};
  kernel_args.grad_src = rows_of(args.grad_src);
  kernel_args.grad_dst = const_rows_of(args.grad_dst);
  kernel_args.src = const_rows_of(args.src);
  kernel_args.weight = args.weight ? args.weight.as<float>() : nullptr;
  kernel_args.rstd = check_statistics("rstd", args.rstd, shape);
  if (layer) kernel_args.mean = check_statistics("mean", args.mean, shape);
  kernel_args.group_count = shape.groups;
  kernel_args.width = shape.width;
  kernel_args.accumulate = args.accumulate;
  kernel_args.weight_adds_one = args.weight_adds_one;
  if (on_cuda(stream)) {
    return cuda::norm_backward_input(launch_stream(stream), kernel_args, shape.rows, layer);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, shape, layer, &device = cpu_stream.cpu()] {
    const auto kernel =
        layer ? norm_kernels().layer_backward_input : norm_kernels().rms_backward_input;
    for_row_ranges(device, shape.rows, shape.groups * shape.width,
                   [&](int64_t begin, int64_t end) { kernel(kernel_args, begin, end); });
  });
}

void backward_weight(Stream& stream, const NormBackwardWeight& args, bool layer) {
  const NormShape shape = check_source(args.src, "grad_weight", args.grad_weight, 0);
  check_float("grad_dst", args.grad_dst, shape.rows, args.src.columns());
  cpu::NormBackwardWeightArgs kernel_args = {};
  kernel_args.grad_weight = args.grad_weight.as<float>();
  kernel_args.grad_dst = const_rows_of(args.grad_dst);
  kernel_args.src = const_rows_of(args.src);
  kernel_args.rstd = check_statistics("rstd", args.rstd, shape);
  kernel_args.row_count = shape.rows;
  kernel_args.group_count = shape.groups;
  kernel_args.width = shape.width;
  if (layer) {
    kernel_args.mean = check_statistics("mean", args.mean, shape);
    if (args.grad_bias) {
      check_vector("grad_bias", args.grad_bias, DType::kF32, shape.width);
      kernel_args.grad_bias = args.grad_bias.as<float>();
    }
  }
  if (on_cuda(stream)) {
    const cuda::LaunchStream on = launch_stream(stream);
    const int64_t bytes = cuda::norm_backward_weight_scratch(on, kernel_args, layer);
    return cuda::norm_backward_weight(on, kernel_args, layer, as_cuda(stream).scratch(bytes));
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, shape, layer, &device = cpu_stream.cpu()] {
    const auto kernel =
        layer ? norm_kernels().layer_backward_weight : norm_kernels().rms_backward_weight;
    for_column_ranges(device, shape.width, shape.rows * shape.groups,
                      [&](int64_t begin, int64_t end) { kernel(kernel_args, begin, end); });
  });
}

}  // namespace

void rms_norm_forward(Stream& stream, const NormForward& args) { forward(stream, args, false); }
void layer_norm_forward(Stream& stream, const NormForward& args) { forward(stream, args, true); }

void rms_norm_backward_input(Stream& stream, const NormBackwardInput& args) {
  backward_input(stream, args, false);
}
void layer_norm_backward_input(Stream& stream, const NormBackwardInput& args) {
  backward_input(stream, args, true);
}

void rms_norm_backward_weight(Stream& stream, const NormBackwardWeight& args) {
  backward_weight(stream, args, false);
}
void layer_norm_backward_weight(Stream& stream, const NormBackwardWeight& args) {
  backward_weight(stream, args, true);
}

}  // namespace jige::ops

#include "ops/gate.h"

#include "base/cpu.h"
#include "kernels/cpu/gate.h"
#include "kernels/cuda/gate.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// Of the table of the CPU or of that of GPUs.
template <typename Kernels>
const auto& gate_kernel(const Kernels& kernels, GateKind kind) {
  switch (kind) {
    case GateKind::kSigmoid:
      return kernels.sigmoid;
    case GateKind::kSilu:
      return kernels.silu;
    case GateKind::kPlain:
      break;
  }
  return kernels.plain;
}

}  // namespace

void gate_forward(Stream& stream, const TensorView& dst, const TensorView& src,
                  const TensorView& gate, GateKind kind) {
  const int64_t rows = src.rows();
  const int64_t width = src.columns();
  check_float("dst", dst, rows, width);
  check_float("src", src, rows, width);
  check_float("gate", gate, rows, width);
  const cpu::GateForwardArgs args = {
      .dst = rows_of(dst), .src = const_rows_of(src), .gate = const_rows_of(gate), .width = width};
  if (on_cuda(stream)) {
    return gate_kernel(cuda::gate_kernels(), kind).forward(launch_stream(stream), args, rows);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, kind, &device = cpu_stream.cpu()] {
    const auto run = gate_kernel(cpu::gate_kernels(active_isa()), kind).forward;
    for_row_ranges(device, rows, 2 * args.width,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

void gate_backward(Stream& stream, const TensorView& grad_src, const TensorView& grad_gate,
                   const TensorView& grad_dst, const TensorView& src, const TensorView& gate,
                   GateKind kind) {
  const int64_t rows = src.rows();
  const int64_t width = src.columns();
  check_float("grad_src", grad_src, rows, width);
  check_float("grad_gate", grad_gate, rows, width);
  check_float("grad_dst", grad_dst, rows, width);
  check_float("src", src, rows, width);
  check_float("gate", gate, rows, width);
  const cpu::GateBackwardArgs args = {.grad_src = rows_of(grad_src),
                                      .grad_gate = rows_of(grad_gate),
                                      .grad_dst = const_rows_of(grad_dst),
                                      .src = const_rows_of(src),
                                      .gate = const_rows_of(gate),
                                      .width = width};
  if (on_cuda(stream)) {
    return gate_kernel(cuda::gate_kernels(), kind).backward(launch_stream(stream), args, rows);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, kind, &device = cpu_stream.cpu()] {
    const auto run = gate_kernel(cpu::gate_kernels(active_isa()), kind).backward;
    for_row_ranges(device, rows, 2 * args.width,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

}  // namespace jige::ops

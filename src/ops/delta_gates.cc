#include "ops/delta_gates.h"

#include "base/cpu.h"
#include "kernels/cpu/delta_gates.h"
#include "kernels/cuda/delta_gates.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

cpu::DeltaGateInputs delta_gate_inputs(const DeltaGates& args) {
  const int64_t rows = args.a.rows();
  const int64_t heads = args.log_scale.count();
  const int64_t key_dim = args.a.columns() / heads;
  check_float("a", args.a, rows, heads * key_dim);
  JIGE_CHECK(key_dim == 1 || args.b, "decays by key without rates of their own");
  if (args.b) check_float("b", args.b, rows, heads);
  check_vector("log_scale", args.log_scale, DType::kF32, heads);
  check_vector("bias", args.bias, DType::kF32, heads * key_dim);
  return {.a = const_rows_of(args.a),
          .b = args.b ? const_rows_of(args.b) : cpu::ConstRows{},
          .has_b = bool(args.b),
          .log_scale = args.log_scale.as<float>(),
          .bias = args.bias.as<float>(),
          .rate_scale = args.rate_scale,
          .heads = heads,
          .key_dim = key_dim};
}

template <typename Args>
void submit_delta_gates(Stream& stream, const Args& args, int64_t rows,
                        void (*cpu::DeltaGateKernels::*kernel_member)(const Args&, int64_t,
                                                                      int64_t) noexcept) {
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, kernel_member, &device = cpu_stream.cpu()] {
    const auto run = cpu::delta_gate_kernels(active_isa()).*kernel_member;
    for_row_ranges(device, rows, 8 * args.in.heads * args.in.key_dim,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

}  // namespace

void delta_gates_forward(Stream& stream, const DeltaGates& args) {
  const cpu::DeltaGateInputs in = delta_gate_inputs(args);
  const int64_t rows = args.a.rows();
  check_typed("log_decay", args.log_decay, DType::kF32, rows, in.heads * in.key_dim);
  check_typed("rate", args.rate, DType::kF32, rows, in.heads);
  const cpu::DeltaGateForwardArgs kernel_args = {
      .in = in, .log_decay = rows_of(args.log_decay), .rate = rows_of(args.rate)};
  if (on_cuda(stream)) return cuda::delta_gates_forward(launch_stream(stream), kernel_args, rows);
  submit_delta_gates(stream, kernel_args, rows, &cpu::DeltaGateKernels::forward);
}

void delta_gates_backward(Stream& stream, const DeltaGatesBackward& args) {
  const cpu::DeltaGateInputs in = delta_gate_inputs(args.forward);
  const int64_t rows = args.forward.a.rows();
  check_typed("grad_a", args.grad_a, args.forward.a.dtype, rows, in.heads * in.key_dim);
  if (in.has_b) check_typed("grad_b", args.grad_b, args.forward.a.dtype, rows, in.heads);
  check_typed("slopes_scale", args.slopes_scale, DType::kF32, rows, in.heads);
  check_typed("slopes_bias", args.slopes_bias, DType::kF32, rows, in.heads * in.key_dim);
  check_typed("grad_log_decay", args.grad_log_decay, DType::kF32, rows, in.heads * in.key_dim);
  check_typed("grad_rate", args.grad_rate, DType::kF32, rows, in.heads);
  const cpu::DeltaGateBackwardArgs kernel_args = {
      .in = in,
      .grad_a = rows_of(args.grad_a),
      .grad_b = in.has_b ? rows_of(args.grad_b) : cpu::Rows{},
      .slopes_scale = rows_of(args.slopes_scale),
      .slopes_bias = rows_of(args.slopes_bias),
      .grad_log_decay = const_rows_of(args.grad_log_decay),
      .grad_rate = const_rows_of(args.grad_rate)};
  if (on_cuda(stream)) return cuda::delta_gates_backward(launch_stream(stream), kernel_args, rows);
  submit_delta_gates(stream, kernel_args, rows, &cpu::DeltaGateKernels::backward);
}

}  // namespace jige::ops

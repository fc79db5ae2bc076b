#include "ops/causal_conv.h"

#include "base/cpu.h"
#include "kernels/cpu/causal_conv.h"
#include "kernels/cuda/causal_conv.h"
#include "ops/kernel_rows.h"
#include "ops/recurrent_spans.h"

namespace jige::ops {
namespace {

static_assert(kCausalConvKernelMax == cpu::kCausalConvTapsMax);

using ConvSpans = std::vector<cpu::CausalConvSpan>;

// The sequences that have rows, as kernels see them. `slots`: of the states, 0 where there are
// none. A kernel of one keeps nothing: its states are empty, and there or not.
ConvSpans conv_spans(const std::vector<SequenceSpan>& sequences, int64_t rows, int64_t slots,
                     const CausalConvShape& shape) {
  const bool keeps = shape.kernel > 1;
  ConvSpans spans;
  for (const SequenceSpan& sequence : sequences) {
    JIGE_CHECK(sequence.row_begin >= 0 && sequence.row_count >= 0 &&
                   sequence.row_begin + int64_t{sequence.row_count} <= rows,
               "a sequence of rows from {}, {} of them, of {}", sequence.row_begin,
               sequence.row_count, rows);
    const bool has_state = sequence.state >= 0 && sequence.state < slots;
    JIGE_CHECK(!keeps || (slots > 0 ? has_state : sequence.context_count == 0),
               "state {} of {}, after {} tokens", sequence.state, slots, sequence.context_count);
    if (keeps) check_spare(sequence, slots);
    if (sequence.row_count == 0) continue;
    spans.push_back({.row_begin = sequence.row_begin,
                     .row_count = sequence.row_count,
                     .state = sequence.state,
                     .resumed = keeps && sequence.context_count > 0,
                     .spare = keeps ? sequence.spare : kNoSpareState,
                     .spare_rows = sequence.spare_rows});
  }
  return spans;
}

// Operands without the spans.
cpu::CausalConvOperands conv_operands(const TensorView& src, const CausalConvShape& shape) {
  JIGE_CHECK(shape.kernel >= 1 && shape.kernel <= kCausalConvKernelMax, "a kernel of {}",
             shape.kernel);
  check_float("src", src, src.rows(), src.columns());
  cpu::CausalConvOperands in = {};
  in.src = const_rows_of(src);
  in.columns = src.columns();
  in.taps = shape.kernel;
  in.silu = shape.silu;
  return in;
}

void set_weight(const TensorView& weight, const TensorView& bias, cpu::CausalConvOperands* in) {
  check_typed("weight", weight, DType::kF32, in->columns, in->taps);
  in->weight = weight.as<float>();
  in->weight_stride = weight.row_stride;
  if (!bias) return;
  check_vector("bias", bias, DType::kF32, in->columns);
  in->bias = bias.as<float>();
}

// Runs a kernel over the columns of all spans.
template <typename Args>
void submit_conv(Stream& stream, const Args& args, ConvSpans spans, int64_t rows,
                 void (*cpu::CausalConvKernels::*kernel_member)(const Args&, int64_t,
                                                                int64_t) noexcept) {
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit(
      [args, spans = std::move(spans), rows, kernel_member, &device = cpu_stream.cpu()] {
        const auto run = cpu::causal_conv_kernels(active_isa()).*kernel_member;
        Args kernel_args = args;
        kernel_args.in.spans = spans.data();
        kernel_args.in.span_count = static_cast<int64_t>(spans.size());
        for_column_ranges(device, args.in.columns, rows * args.in.taps,
                          [&](int64_t begin, int64_t end) { run(kernel_args, begin, end); });
      });
}

}  // namespace

void causal_conv_forward(Stream& stream, const CausalConvForward& args) {
  const int64_t rows = args.src.rows();
  cpu::CausalConvForwardArgs kernel_args = {};
  kernel_args.in = conv_operands(args.src, args.shape);
  set_weight(args.weight, args.bias, &kernel_args.in);
  check_float("dst", args.dst, rows, args.src.columns());
  kernel_args.dst = rows_of(args.dst);
  int64_t slots = 0;
  if (args.states) {
    slots = args.states.rows();
    check_typed("states", args.states, args.src.dtype, slots,
                (args.shape.kernel - 1) * args.src.columns());
    kernel_args.states = rows_of(args.states);
  }
  ConvSpans spans = conv_spans(args.sequences, rows, slots, args.shape);
  if (on_cuda(stream)) {
    return cuda::causal_conv_forward(launch_stream(stream), kernel_args,
                                     send_recurrent_spans(stream, args.sequences));
  }
  submit_conv(stream, kernel_args, std::move(spans), rows, &cpu::CausalConvKernels::forward);
}

void causal_conv_backward_input(Stream& stream, const CausalConvBackward& args) {
  const int64_t rows = args.src.rows();
  const int64_t columns = args.src.columns();
  cpu::CausalConvBackwardArgs kernel_args = {};
  kernel_args.in = conv_operands(args.src, args.shape);
  set_weight(args.weight, args.bias, &kernel_args.in);
  check_float("grad_src", args.grad_src, rows, columns);
  check_float("grad_products", args.grad_products, rows, columns);
  check_float("grad_dst", args.grad_dst, rows, columns);
  kernel_args.grad_src = rows_of(args.grad_src);
  kernel_args.grad_products = rows_of(args.grad_products);
  kernel_args.grad_dst = const_rows_of(args.grad_dst);
  ConvSpans spans = conv_spans(args.sequences, rows, 0, args.shape);
  if (on_cuda(stream)) {
    return cuda::causal_conv_backward_input(launch_stream(stream), kernel_args,
                                            send_recurrent_spans(stream, args.sequences));
  }
  submit_conv(stream, kernel_args, std::move(spans), rows, &cpu::CausalConvKernels::backward_input);
}

void causal_conv_backward_weight(Stream& stream, const CausalConvWeightGradients& args) {
  const int64_t rows = args.src.rows();
  const int64_t columns = args.src.columns();
  cpu::CausalConvWeightArgs kernel_args = {};
  kernel_args.in = conv_operands(args.src, args.shape);
  check_typed("grad_weight", args.grad_weight, DType::kF32, columns, args.shape.kernel);
  check_float("grad_products", args.grad_products, rows, columns);
  kernel_args.grad_weight = args.grad_weight.as<float>();
  kernel_args.grad_weight_stride = args.grad_weight.row_stride;
  kernel_args.grad_products = const_rows_of(args.grad_products);
  if (args.grad_bias) {
    check_vector("grad_bias", args.grad_bias, DType::kF32, columns);
    kernel_args.grad_bias = args.grad_bias.as<float>();
  }
  ConvSpans spans = conv_spans(args.sequences, rows, 0, args.shape);
  if (on_cuda(stream)) {
    const cuda::LaunchStream on = launch_stream(stream);
    const cuda::RecurrentSpans sent = send_recurrent_spans(stream, args.sequences);
    void* const scratch =
        as_cuda(stream).scratch(cuda::causal_conv_backward_weight_scratch(on, kernel_args, sent));
    return cuda::causal_conv_backward_weight(on, kernel_args, sent, scratch);
  }
  submit_conv(stream, kernel_args, std::move(spans), rows,
              &cpu::CausalConvKernels::backward_weight);
}

}  // namespace jige::ops

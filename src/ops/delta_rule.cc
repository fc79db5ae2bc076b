#include "ops/delta_rule.h"

#include <algorithm>

#include "base/cpu.h"
#include "kernels/cpu/delta_rule.h"
#include "kernels/cuda/delta_rule.h"
#include "ops/kernel_rows.h"
#include "ops/recurrent_spans.h"

namespace jige::ops {
namespace {

void check_delta_shape(const DeltaRuleShape& shape) {
  JIGE_CHECK(
      shape.key_heads >= 1 && shape.value_heads >= 1 && shape.value_heads % shape.key_heads == 0,
      "{} value heads of {} key heads", shape.value_heads, shape.key_heads);
  JIGE_CHECK(shape.key_dim >= 1 && shape.key_dim <= kDeltaRuleDimMax && shape.value_dim >= 1 &&
                 shape.value_dim <= kDeltaRuleDimMax,
             "keys of {} and values of {}", shape.key_dim, shape.value_dim);
  JIGE_CHECK(!shape.decays_by_key || (shape.corrects && shape.key_heads == shape.value_heads),
             "decays by key of {} value heads of {} key heads", shape.value_heads, shape.key_heads);
}

cpu::DeltaRuleOperands delta_operands(const DeltaRuleForward& args) {
  const DeltaRuleShape& shape = args.shape;
  check_delta_shape(shape);
  const int64_t rows = args.q.rows();
  check_float("q", args.q, rows, shape.key_heads * shape.key_dim);
  check_float("k", args.k, rows, shape.key_heads * shape.key_dim);
  check_float("v", args.v, rows, shape.value_heads * shape.value_dim);
  check_typed("log_decay", args.log_decay, DType::kF32, rows, shape.decay_columns());
  check_typed("rate", args.rate, DType::kF32, rows, shape.value_heads);
  if (args.skip) {
    JIGE_CHECK(!shape.corrects, "a skip beside a correction");
    check_vector("skip", args.skip, DType::kF32, shape.value_heads);
  }
  return {.q = const_rows_of(args.q),
          .k = const_rows_of(args.k),
          .v = const_rows_of(args.v),
          .log_decay = const_rows_of(args.log_decay),
          .rate = const_rows_of(args.rate),
          .skip = args.skip ? args.skip.as<float>() : nullptr,
          .corrects = shape.corrects,
          .decays_by_key = shape.decays_by_key,
          .heads_per_key = shape.value_heads / shape.key_heads,
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim};
}

// `slots`: rows of the states, 0 where there are none, and so nothing before the sequences.
void check_delta_sequences(const std::vector<SequenceSpan>& sequences, int64_t rows,
                           int64_t slots) {
  for (const SequenceSpan& sequence : sequences) {
    JIGE_CHECK(sequence.row_begin >= 0 && sequence.row_count >= 0 &&
                   sequence.row_begin + int64_t{sequence.row_count} <= rows,
               "a sequence of rows from {}, {} of them, of {}", sequence.row_begin,
               sequence.row_count, rows);
    JIGE_CHECK(
        slots > 0 ? sequence.state >= 0 && sequence.state < slots : sequence.context_count == 0,
        "state {} of {}, after {} tokens", sequence.state, slots, sequence.context_count);
    check_spare(sequence, slots);
  }
}

// Strips of a head that are one work: all of them, unless threads would wait.
int64_t strips_per_work(int64_t heads, int64_t strips, int threads) {
  constexpr int64_t kWorksPerThread = 4;
  const int64_t wanted = (kWorksPerThread * threads + heads - 1) / std::max<int64_t>(heads, 1);
  const int64_t parts = std::clamp<int64_t>(wanted, 1, strips);
  // An even number, since kernels may run through two strips at once.
  const int64_t even = (strips + parts - 1) / parts;
  return even + even % 2;
}

void run_delta_forward(CpuDevice& device, const DeltaRuleForward& args,
                       const cpu::DeltaRuleForwardArgs& kernel_args) {
  const DeltaRuleShape& shape = args.shape;
  const auto run = cpu::delta_rule_kernels(active_isa()).forward;
  const int64_t sequences = static_cast<int64_t>(args.sequences.size());
  const int64_t strips = (shape.value_dim + cpu::kDeltaStripColumns - 1) / cpu::kDeltaStripColumns;
  const int64_t step = strips_per_work(sequences * shape.value_heads, strips, device.team().size());
  const int64_t parts = (strips + step - 1) / step;
  const int64_t works_per_sequence = shape.value_heads * parts;
  const int64_t scratch_bytes =
      cpu::delta_rule_forward_scratch_bytes(shape.key_dim, shape.value_dim, shape.decays_by_key);
  const auto head_state = [&](int32_t slot, int64_t head) -> float* {
    if (!args.states) return nullptr;
    return args.states.as<float>() + slot * args.states.row_stride +
           head * shape.key_dim * shape.value_dim;
  };
  const auto run_one = [&](int64_t index, int worker) {
    const SequenceSpan& sequence = args.sequences[static_cast<size_t>(index / works_per_sequence)];
    const int64_t head = index % works_per_sequence / parts;
    const int64_t strip = index % parts * step;
    const int64_t strip_end = std::min(strip + step, strips);
    const auto run_rows = [&](const SequenceSpan& part) {
      if (part.row_count == 0) return;
      run(kernel_args, {.row_begin = part.row_begin,
                        .row_count = part.row_count,
                        .head = head,
                        .strip_begin = strip,
                        .strip_end = strip_end,
                        .state = head_state(part.state, head),
                        .resumed = part.context_count > 0,
                        .scratch = device.scratch(worker, scratch_bytes)});
    };
    if (!sequence.has_spare()) return run_rows(sequence);
    run_rows(up_to_spare(sequence));
    // Strips lie one behind the other.
    const int64_t columns = cpu::kDeltaStripColumns;
    const int64_t begin = strip * columns * shape.key_dim;
    const int64_t end = std::min(strip_end * columns, shape.value_dim) * shape.key_dim;
    std::copy_n(head_state(sequence.state, head) + begin, end - begin,
                head_state(sequence.spare, head) + begin);
    run_rows(behind_spare(sequence));
  };
  device.team().parallel_for(sequences * works_per_sequence, 1,
                             [&](int64_t begin, int64_t end, int worker) {
                               for (int64_t i = begin; i < end; ++i) run_one(i, worker);
                             });
}

void run_delta_backward(CpuDevice& device, const std::vector<SequenceSpan>& sequences,
                        const DeltaRuleShape& shape,
                        const cpu::DeltaRuleBackwardArgs& kernel_args) {
  const auto run = cpu::delta_rule_kernels(active_isa()).backward;
  const auto run_one = [&](int64_t index, int worker) {
    const SequenceSpan& sequence = sequences[static_cast<size_t>(index / shape.key_heads)];
    if (sequence.row_count == 0) return;
    const int64_t scratch_bytes = cpu::delta_rule_backward_scratch_bytes(
        shape.key_dim, sequence.row_count, shape.decays_by_key);
    run(kernel_args, {.row_begin = sequence.row_begin,
                      .row_count = sequence.row_count,
                      .key_head = index % shape.key_heads,
                      .scratch = device.scratch(worker, scratch_bytes)});
  };
  device.team().parallel_for(static_cast<int64_t>(sequences.size()) * shape.key_heads, 1,
                             [&](int64_t begin, int64_t end, int worker) {
                               for (int64_t i = begin; i < end; ++i) run_one(i, worker);
                             });
}

}  // namespace

void delta_rule_forward(Stream& stream, const DeltaRuleForward& args) {
  const DeltaRuleShape& shape = args.shape;
  const cpu::DeltaRuleOperands in = delta_operands(args);
  const int64_t rows = args.q.rows();
  check_float("dst", args.dst, rows, shape.value_heads * shape.value_dim);
  int64_t slots = 0;
  if (args.states) {
    slots = args.states.rows();
    check_typed("states", args.states, DType::kF32, slots,
                shape.value_heads * shape.key_dim * shape.value_dim);
  }
  check_delta_sequences(args.sequences, rows, slots);
  if (on_cuda(stream)) {
    return cuda::delta_rule_forward(launch_stream(stream),
                                    {.in = in,
                                     .dst = rows_of(args.dst),
                                     .spans = send_recurrent_spans(stream, args.sequences),
                                     .head_count = shape.value_heads,
                                     .states = args.states ? args.states.as<float>() : nullptr,
                                     .state_stride = args.states ? args.states.row_stride : 0});
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, in, &device = cpu_stream.cpu()] {
    run_delta_forward(device, args, {.in = in, .dst = rows_of(args.dst)});
  });
}

void delta_rule_backward(Stream& stream, const DeltaRuleBackward& args) {
  const DeltaRuleShape& shape = args.forward.shape;
  const cpu::DeltaRuleOperands in = delta_operands(args.forward);
  const int64_t rows = args.forward.q.rows();
  const int64_t key_columns = shape.key_heads * shape.key_dim;
  const int64_t value_columns = shape.value_heads * shape.value_dim;
  check_float("grad_q", args.grad_q, rows, key_columns);
  check_float("grad_k", args.grad_k, rows, key_columns);
  check_float("grad_v", args.grad_v, rows, value_columns);
  check_float("grad_dst", args.grad_dst, rows, value_columns);
  check_typed("grad_log_decay", args.grad_log_decay, DType::kF32, rows, shape.decay_columns());
  check_typed("grad_rate", args.grad_rate, DType::kF32, rows, shape.value_heads);
  if (args.forward.skip) {
    check_typed("slopes_skip", args.slopes_skip, DType::kF32, rows, shape.value_heads);
  }
  check_delta_sequences(args.forward.sequences, rows, 0);
  const cpu::DeltaRuleBackwardArgs kernel_args = {
      .in = in,
      .grad_q = rows_of(args.grad_q),
      .grad_k = rows_of(args.grad_k),
      .grad_v = rows_of(args.grad_v),
      .grad_log_decay = rows_of(args.grad_log_decay),
      .grad_rate = rows_of(args.grad_rate),
      .slopes_skip = args.forward.skip ? rows_of(args.slopes_skip) : cpu::Rows{},
      .grad_dst = const_rows_of(args.grad_dst)};
  if (on_cuda(stream)) {
    const cuda::DeltaBackward backward = {
        .rule = kernel_args,
        .spans = send_recurrent_spans(stream, args.forward.sequences),
        .rows = rows,
        .key_heads = shape.key_heads};
    return cuda::delta_rule_backward(
        launch_stream(stream), backward,
        as_cuda(stream).scratch(cuda::delta_rule_backward_scratch(backward)));
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit(
      [kernel_args, shape, sequences = args.forward.sequences, &device = cpu_stream.cpu()] {
        run_delta_backward(device, sequences, shape, kernel_args);
      });
}

int64_t delta_rule_scratch_bytes(const DeltaRuleShape& shape, int64_t length_max) {
  return std::max(
      cpu::delta_rule_forward_scratch_bytes(shape.key_dim, shape.value_dim, shape.decays_by_key),
      cpu::delta_rule_backward_scratch_bytes(shape.key_dim, length_max, shape.decays_by_key));
}

}  // namespace jige::ops

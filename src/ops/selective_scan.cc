#include "ops/selective_scan.h"

#include <algorithm>

#include "base/cpu.h"
#include "kernels/cpu/selective_scan.h"
#include "ops/kernel_rows.h"
#include "ops/recurrent_spans.h"

namespace jige::ops {
namespace {

int64_t scan_strips(int64_t columns) {
  return (columns + cpu::kScanStripColumns - 1) / cpu::kScanStripColumns;
}

int64_t scan_groups(int64_t columns) {
  return (scan_strips(columns) + cpu::kScanGroupStrips - 1) / cpu::kScanGroupStrips;
}

cpu::SelectiveScanOperands scan_operands(const SelectiveScan& args) {
  const int64_t rows = args.x.rows();
  const int64_t columns = args.x.columns();
  const int64_t state_dim = args.b.columns();
  JIGE_CHECK(state_dim >= 1 && state_dim <= kScanStateMax, "states of {} numbers", state_dim);
  check_float("x", args.x, rows, columns);
  check_float("a", args.a, rows, columns);
  check_float("b", args.b, rows, state_dim);
  check_float("c", args.c, rows, state_dim);
  check_vector("log_scale", args.log_scale, DType::kF32, columns * state_dim);
  check_vector("bias", args.bias, DType::kF32, columns);
  check_vector("skip", args.skip, DType::kF32, columns);
  return {.x = const_rows_of(args.x),
          .a = const_rows_of(args.a),
          .b = const_rows_of(args.b),
          .c = const_rows_of(args.c),
          .log_scale = args.log_scale.as<float>(),
          .bias = args.bias.as<float>(),
          .skip = args.skip.as<float>(),
          .columns = columns,
          .state_dim = state_dim};
}

// `slots`: rows of the states, 0 where there are none, and so nothing before the sequences.
void check_scan_sequences(const std::vector<SequenceSpan>& sequences, int64_t rows, int64_t slots) {
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

void run_scan_forward(CpuDevice& device, const SelectiveScan& args,
                      const cpu::SelectiveScanForwardArgs& kernel_args) {
  const cpu::SelectiveScanOperands& in = kernel_args.in;
  const auto run = cpu::selective_scan_kernels(active_isa()).forward;
  const int64_t strips = scan_strips(in.columns);
  const int64_t scratch_bytes = cpu::selective_scan_forward_scratch_bytes(in.state_dim);
  const auto state_of = [&](int32_t slot) {
    return args.states ? args.states.as<float>() + slot * args.states.row_stride : nullptr;
  };
  for (const SequenceSpan& sequence : args.sequences) {
    device.team().parallel_for(strips, 1, [&](int64_t begin, int64_t end, int worker) {
      const auto run_rows = [&](const SequenceSpan& part) {
        if (part.row_count == 0) return;
        run(kernel_args, {.row_begin = part.row_begin,
                          .row_count = part.row_count,
                          .strip_begin = begin,
                          .strip_end = end,
                          .state = state_of(part.state),
                          .resumed = part.context_count > 0,
                          .scratch = device.scratch(worker, scratch_bytes)});
      };
      if (!sequence.has_spare()) return run_rows(sequence);
      run_rows(up_to_spare(sequence));
      // Strips lie one behind the other.
      const int64_t first = begin * cpu::kScanStripColumns * in.state_dim;
      const int64_t last = std::min(end * cpu::kScanStripColumns, in.columns) * in.state_dim;
      std::copy_n(state_of(sequence.state) + first, last - first, state_of(sequence.spare) + first);
      run_rows(behind_spare(sequence));
    });
  }
}

// X: groups of strips of all sequences, in any order.
void run_scan_backward_input(CpuDevice& device, const std::vector<SequenceSpan>& sequences,
                             const cpu::SelectiveScanBackwardArgs& kernel_args) {
  const cpu::SelectiveScanOperands& in = kernel_args.in;
  const auto run = cpu::selective_scan_kernels(active_isa()).backward_input;
  const int64_t groups = scan_groups(in.columns);
  const auto run_one = [&](int64_t index, int worker) {
    const SequenceSpan& sequence = sequences[static_cast<size_t>(index / groups)];
    if (sequence.row_count == 0) return;
    const int64_t begin = index % groups * cpu::kScanGroupStrips;
    const int64_t scratch_bytes =
        cpu::selective_scan_backward_scratch_bytes(in.state_dim, sequence.row_count);
    run(kernel_args, {.row_begin = sequence.row_begin,
                      .row_count = sequence.row_count,
                      .strip_begin = begin,
                      .strip_end = std::min(begin + cpu::kScanGroupStrips, scan_strips(in.columns)),
                      .scratch = device.scratch(worker, scratch_bytes)});
  };
  device.team().parallel_for(static_cast<int64_t>(sequences.size()) * groups, 1,
                             [&](int64_t begin, int64_t end, int worker) {
                               for (int64_t i = begin; i < end; ++i) run_one(i, worker);
                             });
}

// W: strips in any order, each with all sequences in theirs.
void run_scan_backward_weight(CpuDevice& device, const std::vector<SequenceSpan>& sequences,
                              const cpu::SelectiveScanBackwardArgs& kernel_args) {
  const cpu::SelectiveScanOperands& in = kernel_args.in;
  const auto run = cpu::selective_scan_kernels(active_isa()).backward_weight;
  device.team().parallel_for(
      scan_strips(in.columns), 1, [&](int64_t begin, int64_t end, int worker) {
        for (const SequenceSpan& sequence : sequences) {
          if (sequence.row_count == 0) continue;
          const int64_t scratch_bytes =
              cpu::selective_scan_backward_scratch_bytes(in.state_dim, sequence.row_count);
          run(kernel_args, {.row_begin = sequence.row_begin,
                            .row_count = sequence.row_count,
                            .strip_begin = begin,
                            .strip_end = end,
                            .scratch = device.scratch(worker, scratch_bytes)});
        }
      });
}

}  // namespace

void selective_scan_forward(Stream& stream, const SelectiveScan& args) {
  const cpu::SelectiveScanOperands in = scan_operands(args);
  const int64_t rows = args.x.rows();
  check_float("dst", args.dst, rows, in.columns);
  int64_t slots = 0;
  if (args.states) {
    slots = args.states.rows();
    check_typed("states", args.states, DType::kF32, slots, in.columns * in.state_dim);
  }
  check_scan_sequences(args.sequences, rows, slots);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, in, &device = cpu_stream.cpu()] {
    run_scan_forward(device, args, {.in = in, .dst = rows_of(args.dst)});
  });
}

int64_t selective_scan_sum_columns(int64_t columns, int64_t state_dim) {
  return scan_groups(columns) * 2 * state_dim;
}

void selective_scan_backward_input(Stream& stream, const SelectiveScanBackwardInput& args) {
  const cpu::SelectiveScanOperands in = scan_operands(args.forward);
  const int64_t rows = args.forward.x.rows();
  check_float("grad_x", args.grad_x, rows, in.columns);
  check_float("grad_a", args.grad_a, rows, in.columns);
  check_float("grad_b", args.grad_b, rows, in.state_dim);
  check_float("grad_c", args.grad_c, rows, in.state_dim);
  check_float("grad_dst", args.grad_dst, rows, in.columns);
  check_typed("sums", args.sums, DType::kF32, rows,
              selective_scan_sum_columns(in.columns, in.state_dim));
  check_scan_sequences(args.forward.sequences, rows, 0);
  const cpu::SelectiveScanBackwardArgs kernel_args = {.in = in,
                                                      .grad_dst = const_rows_of(args.grad_dst),
                                                      .grad_x = rows_of(args.grad_x),
                                                      .grad_a = rows_of(args.grad_a),
                                                      .sums = rows_of(args.sums),
                                                      .grad_log_scale = nullptr,
                                                      .grad_bias = nullptr,
                                                      .grad_skip = nullptr};
  const cpu::SelectiveScanSumArgs sum_args = {.sums = const_rows_of(args.sums),
                                              .grad_b = rows_of(args.grad_b),
                                              .grad_c = rows_of(args.grad_c),
                                              .groups = scan_groups(in.columns),
                                              .state_dim = in.state_dim};
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit(
      [kernel_args, sum_args, sequences = args.forward.sequences, &device = cpu_stream.cpu()] {
        run_scan_backward_input(device, sequences, kernel_args);
        const auto sum = cpu::selective_scan_kernels(active_isa()).sum_groups;
        for (const SequenceSpan& sequence : sequences) {
          for_row_ranges(device, sequence.row_count, sum_args.groups * sum_args.state_dim,
                         [&](int64_t begin, int64_t end) {
                           sum(sum_args, sequence.row_begin + begin, sequence.row_begin + end);
                         });
        }
      });
}

void selective_scan_backward_weight(Stream& stream, const SelectiveScanBackwardWeight& args) {
  const cpu::SelectiveScanOperands in = scan_operands(args.forward);
  const int64_t rows = args.forward.x.rows();
  check_float("grad_dst", args.grad_dst, rows, in.columns);
  check_vector("grad_log_scale", args.grad_log_scale, DType::kF32, in.columns * in.state_dim);
  check_vector("grad_bias", args.grad_bias, DType::kF32, in.columns);
  check_vector("grad_skip", args.grad_skip, DType::kF32, in.columns);
  check_scan_sequences(args.forward.sequences, rows, 0);
  const cpu::SelectiveScanBackwardArgs kernel_args = {
      .in = in,
      .grad_dst = const_rows_of(args.grad_dst),
      .grad_x = {},
      .grad_a = {},
      .sums = {},
      .grad_log_scale = args.grad_log_scale.as<float>(),
      .grad_bias = args.grad_bias.as<float>(),
      .grad_skip = args.grad_skip.as<float>()};
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, sequences = args.forward.sequences, &device = cpu_stream.cpu()] {
    run_scan_backward_weight(device, sequences, kernel_args);
  });
}

int64_t selective_scan_scratch_bytes(int64_t state_dim, int64_t length_max) {
  return std::max(cpu::selective_scan_forward_scratch_bytes(state_dim),
                  cpu::selective_scan_backward_scratch_bytes(state_dim, length_max));
}

}  // namespace jige::ops

#include "kernels/cpu/attention_sinks.h"
#include "base/cpu.h"
#include "kernels/cuda/attention_flat.h"
#include "ops/attention.h"
#include "ops/kernel_rows.h"

namespace jige::ops {

void attention_sink_slopes(Stream& stream, const AttentionSinkSlopes& args) {
  const AttentionShape& shape = args.shape;
  const int64_t rows = args.dst.rows();
  const int64_t columns = shape.head_count * shape.head_dim;
  JIGE_CHECK(shape.sinks, "no sinks");
  check_float("dst", args.dst, rows, columns);
  check_float("grad_dst", args.grad_dst, rows, columns);
  check_typed("lse", args.lse, DType::kF32, rows, shape.head_count);
  check_vector("slopes", args.slopes, DType::kF32, rows * shape.head_count);
  const cpu::SinkSlopesArgs kernel_args{.slopes = args.slopes.as<float>(),
                                        .sinks = shape.sinks,
                                        .lse = args.lse.as<float>(),
                                        .lse_stride = args.lse.row_stride,
                                        .dst = const_rows_of(args.dst),
                                        .grad_dst = const_rows_of(args.grad_dst),
                                        .head_count = shape.head_count,
                                        .head_dim = shape.head_dim};
  if (on_cuda(stream)) {
    return cuda::attention_sink_slopes(launch_stream(stream), kernel_args, rows);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, rows, columns, &device = cpu_stream.cpu()] {
    const auto run = cpu::attention_sink_kernels(active_isa()).slopes;
    for_row_ranges(device, rows, 2 * columns,
                   [&](int64_t begin, int64_t end) { run(kernel_args, begin, end); });
  });
}

}  // namespace jige::ops

#include "ops/rope.h"

#include <cstddef>

#include "base/cpu.h"
#include "kernels/cpu/rope.h"
#include "kernels/cuda/rope.h"
#include "ops/kernel_rows.h"

namespace jige::ops {

void rope(Stream& stream, const Rope& args) {
  const int64_t rows = args.data.rows();
  JIGE_CHECK(args.rotary_dim >= 0 && args.rotary_dim % 2 == 0 && args.first >= 0 &&
                 args.first + args.rotary_dim <= args.head_dim,
             "rotary_dim {} from column {} of head_dim {}", args.rotary_dim, args.first,
             args.head_dim);
  JIGE_CHECK(args.head_dim >= 1 && args.data.columns() % args.head_dim == 0,
             "{} columns are no heads of {}", args.data.columns(), args.head_dim);
  check_float("data", args.data, rows, args.data.columns());
  check_vector("positions", args.positions, DType::kI32, rows);
  check_typed("cos_sin", args.cos_sin, DType::kF32, args.cos_sin.rows(), args.rotary_dim);
  cpu::RopeArgs kernel_args = {};
  kernel_args.data = rows_of(args.data);
  kernel_args.data.data =
      static_cast<std::byte*>(args.data.data) + dtype_bytes(args.data.dtype, args.first);
  kernel_args.positions = args.positions.as<int32_t>();
  kernel_args.cos_sin = args.cos_sin.as<float>();
  kernel_args.cos_sin_stride = args.cos_sin.row_stride;
  kernel_args.head_count = args.data.columns() / args.head_dim;
  kernel_args.head_dim = args.head_dim;
  kernel_args.rotary_dim = args.rotary_dim;
  kernel_args.inverse = args.inverse;
  if (on_cuda(stream)) return cuda::rope(launch_stream(stream), kernel_args, rows);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, rows, table_rows = args.cos_sin.rows(),
                     columns = args.data.columns(), &device = cpu_stream.cpu()] {
    for (int64_t t = 0; t < rows; ++t) {
      const int32_t position = kernel_args.positions[t];
      JIGE_CHECK(0 <= position && position < table_rows, "position {} of a table of {}", position,
                 table_rows);
    }
    const auto kernel = cpu::rope_kernels(active_isa()).rotate;
    for_row_ranges(device, rows, columns,
                   [&](int64_t begin, int64_t end) { kernel(kernel_args, begin, end); });
  });
}

}  // namespace jige::ops

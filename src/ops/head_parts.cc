#include "ops/head_parts.h"

#include "base/cpu.h"
#include "kernels/cpu/head_parts.h"
#include "kernels/cuda/head_parts.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

cpu::HeadPartsArgs kernel_args(const HeadParts& args) {
  const int64_t rows = args.parts.rows();
  const int64_t heads = args.head_count;
  JIGE_CHECK(heads >= 1 && args.parts.columns() % heads == 0, "{} columns of {} heads",
             args.parts.columns(), heads);
  const int64_t own = args.parts.columns() / heads - args.value_columns;
  const int64_t width = own + args.shared.columns();
  JIGE_CHECK(own >= 0 && args.value_columns >= 1 && args.value_columns <= width,
             "values of {} columns beside keys of {} and {}", args.value_columns, own,
             args.shared.columns());
  const DType dtype = args.parts.dtype;
  check_float("parts", args.parts, rows, args.parts.columns());
  check_typed("shared", args.shared, dtype, rows, args.shared.columns());
  check_typed("keys", args.keys, dtype, rows, heads * width);
  check_typed("values", args.values, dtype, rows, heads * width);
  return {.keys = rows_of(args.keys),
          .values = rows_of(args.values),
          .parts = rows_of(args.parts),
          .shared = rows_of(args.shared),
          .head_count = heads,
          .own = own,
          .shared_columns = args.shared.columns(),
          .value_columns = args.value_columns};
}

using PartsKernel = void (*)(const cpu::HeadPartsArgs&, int64_t, int64_t) noexcept;

void submit_parts(Stream& stream, const HeadParts& args,
                  PartsKernel cpu::HeadPartsKernels::*kernel_member) {
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args = kernel_args(args), rows = args.parts.rows(),
                     columns = args.keys.columns() + args.values.columns(), kernel_member,
                     &device = cpu_stream.cpu()] {
    const PartsKernel kernel = cpu::head_parts_kernels(active_isa()).*kernel_member;
    for_row_ranges(device, rows, columns,
                   [&](int64_t begin, int64_t end) { kernel(kernel_args, begin, end); });
  });
}

}  // namespace

void join_heads(Stream& stream, const HeadParts& args) {
  if (on_cuda(stream)) {
    return cuda::join_heads(launch_stream(stream), kernel_args(args), args.parts.rows());
  }
  submit_parts(stream, args, &cpu::HeadPartsKernels::join);
}

void join_heads_backward(Stream& stream, const HeadParts& args) {
  if (on_cuda(stream)) {
    return cuda::split_heads(launch_stream(stream), kernel_args(args), args.parts.rows());
  }
  submit_parts(stream, args, &cpu::HeadPartsKernels::split);
}

void fit_heads(Stream& stream, const FitHeads& args) {
  const TensorView& dst = args.dst;
  const TensorView& src = args.src;
  const int64_t heads = args.head_count;
  check_float("dst", dst, src.rows(), dst.columns());
  check_typed("src", src, dst.dtype, src.rows(), src.columns());
  JIGE_CHECK(heads >= 1 && dst.columns() % heads == 0 && src.columns() % heads == 0,
             "{} and {} columns of {} heads", dst.columns(), src.columns(), heads);
  const cpu::HeadColumnsArgs kernel_args = {.dst = rows_of(dst),
                                            .src = const_rows_of(src),
                                            .head_count = heads,
                                            .dst_columns = dst.columns() / heads,
                                            .src_columns = src.columns() / heads,
                                            .dst_first = args.dst_first,
                                            .src_first = args.src_first};
  JIGE_CHECK(args.dst_first >= 0 && args.dst_first <= kernel_args.dst_columns &&
                 args.src_first >= 0 && args.src_first <= kernel_args.src_columns,
             "columns from {} of {} and from {} of {}", args.dst_first, kernel_args.dst_columns,
             args.src_first, kernel_args.src_columns);
  if (on_cuda(stream)) return cuda::fit_heads(launch_stream(stream), kernel_args, src.rows());
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit(
      [kernel_args, rows = src.rows(), columns = dst.columns(), &device = cpu_stream.cpu()] {
        const auto kernel = cpu::head_parts_kernels(active_isa()).fit;
        for_row_ranges(device, rows, columns,
                       [&](int64_t begin, int64_t end) { kernel(kernel_args, begin, end); });
      });
}

}  // namespace jige::ops

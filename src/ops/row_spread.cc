#include "ops/row_spread.h"

#include <cmath>
#include <numbers>

#include "base/cpu.h"
#include "kernels/cpu/row_spread.h"
#include "kernels/cuda/row_spread.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

template <typename Args>
void submit_spread(Stream& stream, const Args& args, int64_t rows,
                   void (*cpu::RowSpreadKernels::*kernel_member)(const Args&, int64_t,
                                                                 int64_t) noexcept,
                   void (*cuda_kernel)(const cuda::LaunchStream&, const Args&, int64_t)) {
  if (on_cuda(stream)) return cuda_kernel(launch_stream(stream), args, rows);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, kernel_member, &device = cpu_stream.cpu()] {
    const auto run = cpu::row_spread_kernels(active_isa()).*kernel_member;
    for_row_ranges(device, rows, args.width,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

}  // namespace

void row_match(Stream& stream, const RowMatch& args) {
  const int64_t rows = args.src.rows();
  const int64_t columns = args.src.columns();
  check_float("dst", args.dst, rows, columns);
  check_float("src", args.src, rows, columns);
  check_float("target", args.target, rows, columns);
  submit_spread(stream,
                cpu::RowMatchArgs{.dst = rows_of(args.dst),
                                  .src = const_rows_of(args.src),
                                  .target = const_rows_of(args.target),
                                  .width = columns,
                                  .floor = static_cast<float>(args.floor)},
                rows, &cpu::RowSpreadKernels::match, cuda::row_match);
}

void row_match_backward(Stream& stream, const RowMatchBackward& args) {
  const int64_t rows = args.src.rows();
  const int64_t columns = args.src.columns();
  check_float("grad_src", args.grad_src, rows, columns);
  check_float("grad_target", args.grad_target, rows, columns);
  check_float("grad_dst", args.grad_dst, rows, columns);
  check_float("src", args.src, rows, columns);
  check_float("target", args.target, rows, columns);
  submit_spread(stream,
                cpu::RowMatchBackwardArgs{.grad_src = rows_of(args.grad_src),
                                          .grad_target = rows_of(args.grad_target),
                                          .grad_dst = const_rows_of(args.grad_dst),
                                          .src = const_rows_of(args.src),
                                          .target = const_rows_of(args.target),
                                          .width = columns,
                                          .floor = static_cast<float>(args.floor)},
                rows, &cpu::RowSpreadKernels::match_backward, cuda::row_match_backward);
}

void row_cut(Stream& stream, const TensorView& dst, const TensorView& src, double deviations) {
  check_float("dst", dst, src.rows(), src.columns());
  check_float("src", src, src.rows(), src.columns());
  submit_spread(stream,
                cpu::RowCutArgs{.dst = rows_of(dst),
                                .src = const_rows_of(src),
                                .width = src.columns(),
                                .deviations = static_cast<float>(deviations)},
                src.rows(), &cpu::RowSpreadKernels::cut, cuda::row_cut);
}

void row_cut_backward(Stream& stream, const TensorView& grad_src, const TensorView& grad_dst,
                      const TensorView& src, double deviations) {
  check_float("grad_src", grad_src, src.rows(), src.columns());
  check_float("grad_dst", grad_dst, src.rows(), src.columns());
  check_float("src", src, src.rows(), src.columns());
  submit_spread(stream,
                cpu::RowCutBackwardArgs{.grad_src = rows_of(grad_src),
                                        .grad_dst = const_rows_of(grad_dst),
                                        .src = const_rows_of(src),
                                        .width = src.columns(),
                                        .deviations = static_cast<float>(deviations)},
                src.rows(), &cpu::RowSpreadKernels::cut_backward, cuda::row_cut_backward);
}

double normal_deviations(double share) {
  JIGE_CHECK(share > 0.0 && share < 1.0, "a share of {}", share);
  constexpr double kFar = 40.0;  // beyond which a double has no tail left
  constexpr int kHalvings = 100;
  double low = -kFar, high = kFar;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    const double below = 0.5 * std::erfc(-middle / std::numbers::sqrt2);
    (below < share ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace jige::ops

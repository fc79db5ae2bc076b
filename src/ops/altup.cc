#include "ops/altup.h"

#include <algorithm>

#include "base/cpu.h"
#include "kernels/cpu/altup.h"
#include "kernels/cuda/altup.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// Puts a kernel over rows of so many columns on the stream.
template <typename Args>
void submit_streams(Stream& stream, const Args& args, int64_t rows, int64_t columns,
                    void (*cpu::AltUpKernels::*kernel_member)(const Args&, int64_t,
                                                              int64_t) noexcept,
                    void (*cuda_kernel)(const cuda::LaunchStream&, const Args&, int64_t)) {
  if (on_cuda(stream)) return cuda_kernel(launch_stream(stream), args, rows);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, columns, kernel_member, &device = cpu_stream.cpu()] {
    const auto run = cpu::altup_kernels(active_isa()).*kernel_member;
    for_row_ranges(device, rows, columns,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

struct StreamShape {
  int64_t rows, width, count;
};

StreamShape shape_of(const TensorView& streams, int64_t width) {
  const int64_t count = streams.columns() / std::max<int64_t>(width, 1);
  JIGE_CHECK(count >= 2 && count <= cpu::kAltUpStreamsMax && count * width == streams.columns(),
             "{} columns are no 2 to {} streams of {}", streams.columns(), cpu::kAltUpStreamsMax,
             width);
  return {streams.rows(), width, count};
}

void check_f32(const char* name, const TensorView& view, int64_t rows, int64_t columns) {
  check_typed(name, view, DType::kF32, rows, columns);
}

// The streams of a map of N² columns.
int64_t width_by_map(const TensorView& streams, const TensorView& map) {
  int64_t count = 1;
  while (count * count < map.columns()) ++count;
  return streams.columns() / count;
}

}  // namespace

void altup_predict(Stream& stream, const AltUpPredict& args) {
  const StreamShape shape = shape_of(args.src, args.active.columns());
  check_f32("active", args.active, shape.rows, shape.width);
  check_f32("others", args.others, shape.rows, (shape.count - 1) * shape.width);
  check_f32("src", args.src, shape.rows, shape.count * shape.width);
  check_f32("map", args.map, shape.rows, shape.count * shape.count);
  submit_streams(stream,
                 cpu::AltUpPredictArgs{.active = rows_of(args.active),
                                       .others = rows_of(args.others),
                                       .src = const_rows_of(args.src),
                                       .map = const_rows_of(args.map),
                                       .streams = shape.count,
                                       .width = shape.width},
                 shape.rows, args.src.columns(), &cpu::AltUpKernels::predict, cuda::altup_predict);
}

void altup_predict_backward(Stream& stream, const AltUpPredictBackward& args) {
  const StreamShape shape = shape_of(args.src, width_by_map(args.src, args.map));
  check_f32("grad", args.grad, shape.rows, shape.count * shape.width);
  check_f32("grad_map", args.grad_map, shape.rows, shape.count * shape.count);
  check_f32("src", args.src, shape.rows, shape.count * shape.width);
  check_f32("map", args.map, shape.rows, shape.count * shape.count);
  submit_streams(stream,
                 cpu::AltUpPredictBackwardArgs{.grad = rows_of(args.grad),
                                               .grad_map = rows_of(args.grad_map),
                                               .src = const_rows_of(args.src),
                                               .map = const_rows_of(args.map),
                                               .streams = shape.count,
                                               .width = shape.width},
                 shape.rows, 2 * args.src.columns(), &cpu::AltUpKernels::predict_backward,
                 cuda::altup_predict_backward);
}

void altup_correct(Stream& stream, const AltUpCorrect& args) {
  const StreamShape shape = shape_of(args.dst, args.active.columns());
  check_f32("dst", args.dst, shape.rows, shape.count * shape.width);
  check_f32("active", args.active, shape.rows, shape.width);
  check_f32("result", args.result, shape.rows, shape.width);
  check_f32("gains", args.gains, shape.rows, shape.count);
  submit_streams(stream,
                 cpu::AltUpCorrectArgs{.dst = rows_of(args.dst),
                                       .active = const_rows_of(args.active),
                                       .result = const_rows_of(args.result),
                                       .gains = const_rows_of(args.gains),
                                       .streams = shape.count,
                                       .width = shape.width},
                 shape.rows, args.dst.columns(), &cpu::AltUpKernels::correct, cuda::altup_correct);
}

void altup_correct_backward(Stream& stream, const AltUpCorrectBackward& args) {
  const StreamShape shape = shape_of(args.grad, args.active.columns());
  check_f32("grad", args.grad, shape.rows, shape.count * shape.width);
  check_f32("grad_result", args.grad_result, shape.rows, shape.width);
  check_f32("grad_gains", args.grad_gains, shape.rows, shape.count);
  check_f32("active", args.active, shape.rows, shape.width);
  check_f32("result", args.result, shape.rows, shape.width);
  check_f32("gains", args.gains, shape.rows, shape.count);
  submit_streams(stream,
                 cpu::AltUpCorrectBackwardArgs{.grad = rows_of(args.grad),
                                               .grad_result = rows_of(args.grad_result),
                                               .grad_gains = rows_of(args.grad_gains),
                                               .active = const_rows_of(args.active),
                                               .result = const_rows_of(args.result),
                                               .gains = const_rows_of(args.gains),
                                               .streams = shape.count,
                                               .width = shape.width},
                 shape.rows, args.grad.columns(), &cpu::AltUpKernels::correct_backward,
                 cuda::altup_correct_backward);
}

void scale_columns(Stream& stream, const TensorView& dst, const TensorView& src,
                   const TensorView& factors) {
  check_float("dst", dst, src.rows(), src.columns());
  check_float("src", src, src.rows(), src.columns());
  check_vector("factors", factors, DType::kF32, src.columns());
  submit_streams(stream,
                 cpu::ScaleColumnsArgs{.dst = rows_of(dst),
                                       .src = const_rows_of(src),
                                       .factors = factors.as<float>(),
                                       .width = src.columns()},
                 src.rows(), src.columns(), &cpu::AltUpKernels::scale_columns, cuda::scale_columns);
}

}  // namespace jige::ops

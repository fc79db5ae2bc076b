#include "ops/dropout.h"

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cuda/dropout.h"
#include "ops/elementwise.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

constexpr double kWords = 0x1p32;  // values of the bits that decide

}  // namespace

void dropout(Stream& stream, const TensorView& dst, const TensorView& src, const Dropout& dropout,
             uint64_t site) {
  if (dropout.rate == 0) return scale(stream, dst, src, 1.0f);
  JIGE_CHECK(dropout.rate > 0 && dropout.rate < 1, "dropout rate {}", dropout.rate);
  check_float("dst", dst, dst.rows(), dst.columns());
  check_float("src", src, dst.rows(), dst.columns());
  const double threshold = std::min(std::round(dropout.rate * kWords), kWords - 1);
  const cpu::DropoutArgs args = {.dst = rows_of(dst),
                                 .src = const_rows_of(src),
                                 .columns = dst.columns(),
                                 .key = dropout.key,
                                 .site = site,
                                 .token_begin = static_cast<uint64_t>(dropout.token_begin),
                                 .token_step = dropout.one_mask ? 0u : 1u,
                                 .threshold = static_cast<uint32_t>(threshold),
                                 .scale = static_cast<float>(kWords / (kWords - threshold))};
  if (on_cuda(stream)) return cuda::dropout(launch_stream(stream), args, dst.rows());
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows = dst.rows(), &device = cpu_stream.cpu()] {
    const auto kernel = cpu::dropout_kernels(active_isa()).dropout;
    for_row_ranges(device, rows, args.columns,
                   [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
  });
}

}  // namespace jige::ops

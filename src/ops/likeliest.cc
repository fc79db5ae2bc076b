#include "ops/likeliest.h"

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "kernels/cpu/logits.h"
#include "kernels/cuda/likeliest.h"
#include "ops/kernel_rows.h"

namespace jige::ops {

std::optional<int32_t> likeliest(std::span<const float> logits) {
  const cpu::LogitsKernels& kernels = cpu::logits_kernels(active_isa());
  const auto count = std::ssize(logits);
  const float largest = kernels.max(logits.data(), count);
  bool nan = false;
  for (const float logit : logits) nan |= logit != logit;
  if (nan || !std::isfinite(largest)) return std::nullopt;
  return kernels.first_index(logits.data(), count, largest);
}

void likeliest(Stream& stream, const TensorView& tokens, const TensorView& logits) {
  const int64_t rows = logits.rows();
  const int64_t columns = logits.columns();
  check_typed("logits", logits, DType::kF32, rows, columns);
  check_vector("tokens", tokens, DType::kI32, rows);
  JIGE_CHECK(columns > 0 && columns <= INT32_MAX, "{} logits", columns);
  if (rows == 0) return;
  if (on_cuda(stream)) {
    CudaStream& gpu = as_cuda(stream);
    return cuda::likeliest(
        launch_stream(stream),
        {.tokens = tokens.as<int32_t>(),
         .logits = logits.as<float>(),
         .stride = logits.row_stride,
         .rows = rows,
         .columns = columns,
         .scratch = gpu.scratch(cuda::likeliest_bytes(rows, columns)),
         .counters = static_cast<int32_t*>(gpu.zeros(rows * int64_t{sizeof(int32_t)}))});
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    for_row_ranges(device, rows, columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const float* const own = logits.as<float>() + row * logits.row_stride;
        tokens.as<int32_t>()[row] = likeliest({own, static_cast<size_t>(columns)}).value_or(-1);
      }
    });
  });
}

}  // namespace jige::ops

#include "ops/cross_entropy.h"

#include "base/cpu.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cuda/cross_entropy.h"
#include "ops/kernel_rows.h"

namespace jige::ops {

void cross_entropy(Stream& stream, const CrossEntropy& args) {
  const int64_t rows = args.logits.rows();
  const int64_t vocabulary = args.logits.columns();
  JIGE_CHECK(vocabulary >= 1, "logits {} have no vocabulary", args.logits.shape.to_string());
  check_typed("logits", args.logits, DType::kF32, rows, vocabulary);
  check_vector("loss", args.loss, DType::kF32, rows);
  check_vector("targets", args.targets, DType::kI32, rows);
  cpu::CrossEntropyArgs kernel_args = {};
  kernel_args.loss = args.loss.as<float>();
  kernel_args.logits = args.logits.as<float>();
  kernel_args.logits_stride = args.logits.row_stride;
  kernel_args.targets = args.targets.as<int32_t>();
  kernel_args.vocabulary = vocabulary;
  kernel_args.cap = static_cast<float>(args.cap);
  if (args.weights) {
    check_vector("weights", args.weights, DType::kF32, rows);
    kernel_args.weights = args.weights.as<float>();
  }
  if (args.grad_logits) {
    check_float("grad_logits", args.grad_logits, rows, vocabulary);
    kernel_args.grad = rows_of(args.grad_logits);
  }
  if (on_cuda(stream)) return cuda::cross_entropy(launch_stream(stream), kernel_args, rows);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, rows, &device = cpu_stream.cpu()] {
    for (int64_t t = 0; t < rows; ++t) {
      JIGE_CHECK(kernel_args.targets[t] < kernel_args.vocabulary, "target {} of a vocabulary of {}",
                 kernel_args.targets[t], kernel_args.vocabulary);
    }
    const auto kernel = cpu::cross_entropy_kernels(active_isa()).rows;
    const bool keeps = kernel_args.grad.data && kernel_args.grad.type != cpu::ElementType::kF32;
    device.team().parallel_for(
        rows, row_grain(kernel_args.vocabulary), [&](int64_t begin, int64_t end, int worker) {
          cpu::CrossEntropyArgs mine = kernel_args;
          const int64_t rows_kept = (keeps ? 1 : 0) + (mine.cap > 0 ? 1 : 0);
          if (rows_kept > 0) {
            auto* kept =
                static_cast<float*>(device.scratch(worker, rows_kept * kernel_args.vocabulary * 4));
            if (keeps) mine.exponentials = kept;
            if (mine.cap > 0) mine.capped = kept + (rows_kept - 1) * kernel_args.vocabulary;
          }
          kernel(mine, begin, end);
        });
  });
}

}  // namespace jige::ops

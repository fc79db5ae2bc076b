#include "ops/expert_balance.h"

#include <utility>

#include "base/cpu.h"
#include "kernels/cpu/expert_balance.h"
#include "kernels/cuda/expert_balance.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// One past the last row of each sequence.
std::vector<int32_t> sequence_ends(const ExpertBalance& args, int64_t token_count) {
  std::vector<int32_t> ends;
  int32_t row = 0;
  for (const SequenceSpan& sequence : args.sequences) {
    JIGE_CHECK(sequence.row_begin == row && sequence.row_count >= 0,
               "a sequence begins at row {}, not {}", sequence.row_begin, row);
    row += sequence.row_count;
    if (sequence.row_count > 0) ends.push_back(row);
  }
  JIGE_CHECK(row == token_count, "sequences cover {} of {} rows", row, token_count);
  return ends;
}

}  // namespace

void balance_experts(Stream& stream, const Routing& routing, const ExpertBalance& args) {
  const int64_t tokens = routing.token_count();
  const int64_t experts = routing.expert_count();
  JIGE_CHECK(experts <= cpu::kBalancedExpertsMax, "{} experts", experts);
  check_typed("logits", routing.logits, DType::kF32, tokens, experts);
  check_typed("grad_logits", args.grad_logits, DType::kF32, tokens, experts);
  check_vector("losses", args.losses, DType::kF32, tokens);
  std::vector<int32_t> ends = sequence_ends(args, tokens);
  cpu::BalanceArgs kernel_args = {.logits = routing.logits.as<float>(),
                                  .logits_stride = routing.logits.row_stride,
                                  .experts = experts,
                                  .chosen = routing.chosen_count(),
                                  .sigmoid = routing.sigmoid,
                                  .experts_of = routing.chosen.as<int32_t>(),
                                  .places = routing.place_of_row.as<int32_t>(),
                                  .row_ends = routing.row_ends.as<int32_t>(),
                                  .sequence_ends = ends.data(),
                                  .weight = args.weight,
                                  .losses = args.losses.as<float>(),
                                  .grad_logits = args.grad_logits.as<float>(),
                                  .grad_stride = args.grad_logits.row_stride};
  if (on_cuda(stream)) {
    const auto count = static_cast<int64_t>(ends.size());
    kernel_args.sequence_ends = static_cast<const int32_t*>(
        as_cuda(stream).upload(ends.data(), count * static_cast<int64_t>(sizeof(int32_t))));
    return cuda::balance_experts(launch_stream(stream), kernel_args,
                                 {.tokens = tokens, .sequences = count});
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([kernel_args, tokens, ends = std::move(ends), &device = cpu_stream.cpu()] {
    cpu::BalanceArgs own = kernel_args;
    own.sequence_ends = ends.data();
    const auto run = cpu::expert_balance_kernels(active_isa()).rows;
    for_row_ranges(device, tokens, 8 * own.experts,
                   [&](int64_t begin, int64_t end) { run(own, begin, end); });
  });
}

}  // namespace jige::ops

// The gated delta rule by itself: a token of a prompt, of decoding, and of a backward pass.
//
// usage: delta_bench [threads] [rounds]
// 16 heads of 128 x 128 in bf16. A token of a head takes four multiply-adds for every number of its
// matrix, with the one that lets it decay; what that takes at the rate that `jige bench machine`
// finds is the floor. Medians of rounds, with the fastest and the slowest; other load shows.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "machine.h"
#include "ops/delta_rule.h"

namespace jige::bench {
namespace {

constexpr int64_t kHeads = 16;
constexpr int64_t kDim = 128;
constexpr int64_t kLengths[] = {1, 64, 512, 2048};

void report(const char* what, int64_t tokens, int rounds, const std::function<void()>& run) {
  const auto repeats = std::max<int64_t>(1, 256 / tokens);
  run();
  std::vector<double> nanoseconds;
  for (int round = 0; round < rounds; ++round) {
    const StopWatch watch;
    for (int64_t i = 0; i < repeats; ++i) run();
    nanoseconds.push_back(watch.seconds() * 1e9 / static_cast<double>(repeats * tokens * kHeads));
  }
  std::ranges::sort(nanoseconds);
  const double median = nanoseconds[nanoseconds.size() / 2];
  fmt::print(
      "  {:<8} {:>5} tokens {:>8.0f} ns a token and head ({:.0f} to {:.0f}), {:.1f} GFLOP/s\n",
      what, tokens, median, nanoseconds.front(), nanoseconds.back(),
      8.0 * static_cast<double>(kDim * kDim) / median);
}

void bench_length(Machine& machine, int64_t tokens, int rounds) {
  const auto rows = [&](DType type, int64_t columns) {
    return random_tensor(machine, type, Shape({tokens, columns}));
  };
  const Tensor q = rows(DType::kBF16, kHeads * kDim), k = rows(DType::kBF16, kHeads * kDim);
  const Tensor v = rows(DType::kBF16, kHeads * kDim), dst = rows(DType::kBF16, kHeads * kDim);
  const Tensor grad_q = rows(DType::kBF16, kHeads * kDim);
  const Tensor grad_k = rows(DType::kBF16, kHeads * kDim);
  const Tensor grad_v = rows(DType::kBF16, kHeads * kDim);
  const Tensor decay = rows(DType::kF32, kHeads), rate = rows(DType::kF32, kHeads);
  const Tensor grad_decay = rows(DType::kF32, kHeads), grad_rate = rows(DType::kF32, kHeads);
  const Tensor states = random_tensor(machine, DType::kF32, Shape({1, kHeads * kDim * kDim}));
  // Logarithms of decays are not positive.
  for (int64_t i = 0; i < decay.view().count(); ++i) decay.view().as<float>()[i] = -0.05f;
  for (int64_t i = 0; i < rate.view().count(); ++i) rate.view().as<float>()[i] = 0.5f;
  ops::DeltaRuleForward forward{
      .dst = dst.view(),
      .q = q.view(),
      .k = k.view(),
      .v = v.view(),
      .log_decay = decay.view(),
      .rate = rate.view(),
      .states = states.view(),
      .sequences = {{.row_count = static_cast<int32_t>(tokens), .context_count = 1}},
      .shape = {.key_heads = kHeads, .value_heads = kHeads, .key_dim = kDim, .value_dim = kDim}};
  report("forward", tokens, rounds, [&] {
    ops::delta_rule_forward(*machine.stream, forward);
    machine.stream->synchronize();
  });
  if (tokens == 1) return;
  forward.states = {};
  forward.sequences.front().context_count = 0;
  report("backward", tokens, rounds, [&] {
    ops::delta_rule_backward(*machine.stream, {.grad_q = grad_q.view(),
                                               .grad_k = grad_k.view(),
                                               .grad_v = grad_v.view(),
                                               .grad_log_decay = grad_decay.view(),
                                               .grad_rate = grad_rate.view(),
                                               .grad_dst = dst.view(),
                                               .forward = forward});
    machine.stream->synchronize();
  });
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  jige::bench::Machine machine(std::max(threads, 1));
  for (const int64_t tokens : jige::bench::kLengths) {
    jige::bench::bench_length(machine, tokens, std::max(rounds, 1));
  }
  return 0;
}

// Attention against what the machine can do, measured in the same run: forward and backward as a
// share of the rate of fused multiply-adds, decoding as a share of the rate of reading memory.
//
// usage: attention_bench [threads]
// Operations count pairs of a query and a key it sees only: 4·d a pair and head forward, 10·d
// backward. Decoding with many query heads to a key/value head is bound by arithmetic, so its share
// of that is given, too. A cap of scores counts as no operation. The machine may be shared: each
// figure is the best of several repetitions, and what it is a share of is measured right before it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "cli/machine_rates.h"
#include "machine.h"
#include "ops/attention.h"

namespace jige::bench {
namespace {

// The best time of one call, in seconds, after one call to warm up.
template <typename Body>
double best_seconds(int repetitions, Body&& body) {
  body();
  double best = 1e30;
  for (int i = 0; i < repetitions; ++i) {
    const StopWatch watch;
    body();
    best = std::min(best, watch.seconds());
  }
  return best;
}

double fma_gflops(Machine& machine) { return cli::measure_fma_flops_per_s(machine.device) * 1e-9; }

struct TrainingCase {
  int64_t tokens = 0;
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  DType dtype = DType::kF32;
  double cap = 0;  // of scores; 0: none
};

void bench_training(Machine& machine, const TrainingCase& test) {
  const int64_t width = test.heads * test.head_dim;
  const int64_t kv_width = test.kv_heads * test.head_dim;
  const auto make = [&](int64_t columns) {
    return random_tensor(machine, test.dtype, Shape({test.tokens, columns}));
  };
  const Tensor q = make(width), k = make(kv_width), v = make(kv_width), dst = make(width);
  const Tensor grad_dst = make(width), grad_q = make(width);
  const Tensor grad_k = make(kv_width), grad_v = make(kv_width);
  const Tensor lse = std::move(*machine.arena.make(DType::kF32, Shape({test.tokens, test.heads})));
  const ops::AttentionShape shape{
      test.heads, test.kv_heads, test.head_dim, 1 / std::sqrt(static_cast<double>(test.head_dim)),
      0,          test.cap};
  const std::vector<ops::SequenceSpan> sequences = {
      {0, static_cast<int32_t>(test.tokens), 0, nullptr}};
  const double pairs = 0.5 * static_cast<double>(test.tokens) *
                       static_cast<double>(test.tokens + 1) * static_cast<double>(test.heads);
  const double flops = pairs * static_cast<double>(test.head_dim);
  const double peak = fma_gflops(machine);
  const int repetitions = static_cast<int>(std::clamp(2e10 / flops, 3.0, 50.0));
  const double forward = best_seconds(repetitions, [&] {
    ops::attention_forward(
        *machine.stream, {dst.view(), q.view(), k.view(), v.view(), lse.view(), sequences, shape});
    machine.stream->synchronize();
  });
  const double backward = best_seconds(repetitions, [&] {
    ops::attention_backward(*machine.stream,
                            {grad_q.view(), grad_k.view(), grad_v.view(), grad_dst.view(), q.view(),
                             k.view(), v.view(), dst.view(), lse.view(), sequences, shape});
    machine.stream->synchronize();
  });
  const double forward_rate = 4e-9 * flops / forward;
  const double backward_rate = 10e-9 * flops / backward;
  fmt::print("{:>6} {:>6} {:>3}/{:<3} {:>5} {:>4} {:>10.1f} {:>6.0f}% {:>10.1f} {:>6.0f}%\n",
             test.tokens, test.head_dim, test.heads, test.kv_heads, dtype_info(test.dtype).name,
             test.cap, forward_rate, 100 * forward_rate / peak, backward_rate,
             100 * backward_rate / peak);
}

struct DecodeCase {
  int64_t context = 0;
  int64_t head_dim = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  DType dtype = DType::kF32;
  double cap = 0;  // of scores; 0: none
};

void bench_decode(Machine& machine, const DecodeCase& test) {
  // As many layers as make the caches larger than the processor's.
  const int64_t blocks = test.context / ops::kKvBlockTokens;
  const int64_t bytes = ops::kv_cache_bytes(test.dtype, blocks, test.kv_heads, test.head_dim);
  const int64_t layers = std::max<int64_t>(1, (int64_t{400} << 20) / bytes);
  const int64_t elements = blocks * test.kv_heads * 2 * ops::kKvBlockTokens * test.head_dim;
  const Tensor cache = random_tensor(machine, test.dtype, Shape({layers, elements}));
  const Tensor q = random_tensor(machine, DType::kF32, Shape({1, test.heads * test.head_dim}));
  const Tensor dst = random_tensor(machine, DType::kF32, Shape({1, test.heads * test.head_dim}));
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  Rng rng(derive_key(2, "blocks"));
  rng.shuffle(std::span<int32_t>(table));
  const ops::AttentionShape shape{
      test.heads, test.kv_heads, test.head_dim, 1 / std::sqrt(static_cast<double>(test.head_dim)),
      0,          test.cap};
  const double peak = fma_gflops(machine);
  const double stream_rate =
      cli::measure_read_bytes_per_s(machine.device, layers * bytes).value_or(0) * 1e-9;
  const double seconds = best_seconds(5, [&] {
    for (int64_t layer = 0; layer < layers; ++layer) {
      const ops::KvCacheView view{cache.view().row_range(layer, layer + 1).data, test.dtype, blocks,
                                  test.kv_heads, test.head_dim};
      ops::attention_cached(*machine.stream,
                            {dst.view(),
                             q.view(),
                             view,
                             {{0, 1, static_cast<int32_t>(test.context - 1), table.data()}},
                             shape});
    }
    machine.stream->synchronize();
  });
  const double rate = static_cast<double>(layers * bytes) / seconds * 1e-9;
  const double flops =
      4e-9 * static_cast<double>(layers * test.context * test.heads * test.head_dim);
  fmt::print("{:>6} {:>6} {:>3}/{:<3} {:>5} {:>4} {:>10.1f} {:>6.0f}% {:>14.0f}%\n", test.context,
             test.head_dim, test.heads, test.kv_heads, dtype_info(test.dtype).name, test.cap, rate,
             100 * rate / stream_rate, 100 * flops / seconds / peak);
}

void run(int thread_count) {
  Machine machine(thread_count);
  fmt::print("{}, {}, {} threads, {:.0f} GFLOP/s of fused multiply-adds\n\n",
             cpu_features().model_name, isa_name(active_isa()), machine.device.team().size(),
             fma_gflops(machine));
  fmt::print("tokens    dim   heads  type  cap    forward   share   backward   share  (GFLOP/s)\n");
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t tokens : {256, 1024, 4096}) {
      bench_training(machine, {tokens, head_dim, 8, 2, DType::kF32});
    }
  }
  for (const int64_t head_dim : {64, 128}) {
    bench_training(machine, {1024, head_dim, 4, 4, DType::kF32});
    bench_training(machine, {1024, head_dim, 8, 2, DType::kBF16});
    bench_training(machine, {1024, head_dim, 8, 2, DType::kF32, 50});
    bench_training(machine, {1024, head_dim, 8, 2, DType::kBF16, 50});
  }
  fmt::print("\ncontext   dim   heads cache  cap    decode   share  of arithmetic  (GB/s)\n");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t context : {4096, 32768}) {
      bench_decode(machine, {context, 128, 8, 8, dtype});
      bench_decode(machine, {context, 128, 32, 8, dtype});
      bench_decode(machine, {context, 128, 32, 8, dtype, 50});
      bench_decode(machine, {context, 64, 14, 2, dtype});
    }
  }
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::run(argc > 1 ? std::atoi(argv[1]) : 0);
  return 0;
}

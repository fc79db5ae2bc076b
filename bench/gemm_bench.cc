// Matrix products against oneDNN and against what the machine can do, in one run.
//
// usage: gemm_bench [threads] [filter]      filter: part of a case's name, as "f32/weight/2048"
// Cases are type/form/tokens/width. Ours and the peer's batches of calls alternate, a pause between
// them, so that both see the same machine; rates are of the best batch, the ratio is the median of
// the pairs with its quartiles. Weights of few tokens rotate through more memory than the caches
// hold. Shares: of the rate of fused multiply-adds on registers, and of the rate of reading memory.
// The filter "adamw" measures the optimizer alone, with moments in f32 and in blocks of codes, in
// turns with a triad that streams memory.
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "cli/machine_rates.h"
#include "ops/adamw.h"
#include "products.h"
#include "timing.h"

namespace jige::bench {
namespace {

constexpr int kPairs = 7;
constexpr double kBatchSeconds = 0.12;
constexpr int64_t kRotatedBytes = int64_t{256} << 20;

struct Case {
  DType type;
  Form form;
  int64_t tokens;
  int64_t width;

  std::string name() const {
    return fmt::format("{}/{}/{}/{}", dtype_info(type).name, form_name(form), tokens, width);
  }
  Product product() const { return {type, form, tokens, width, width}; }
  double weight_bytes() const {
    return static_cast<double>(
               dtype_bytes(form == Form::kWeight ? DType::kF32 : type, width * width)) *
           (form == Form::kWeight ? 2 : 1);
  }
  int64_t copies() const {
    return tokens > 16 ? 1
                       : std::max<int64_t>(1, kRotatedBytes / static_cast<int64_t>(weight_bytes()));
  }
};

// One call of a product with the weight number `copy`.
using Call = std::function<void(int64_t copy)>;

// Seconds a call takes, over calls that fill a batch.
double batch_seconds(const Call& call, int64_t copies, int64_t calls) {
  const StopWatch watch;
  for (int64_t i = 0; i < calls; ++i) call(i % copies);
  return watch.seconds() / static_cast<double>(calls);
}

int64_t calls_per_batch(const Call& call, int64_t copies) {
  call(0);
  for (int64_t calls = 1;; calls *= 4) {
    const double seconds = batch_seconds(call, copies, calls) * static_cast<double>(calls);
    if (seconds > 0.1 * kBatchSeconds) {
      return std::max<int64_t>(
          1, static_cast<int64_t>(static_cast<double>(calls) * kBatchSeconds / seconds));
    }
  }
}

struct Rates {
  double fma_gflops = 0;
  double read_gbytes = 0;
};

// The best so far; again before every case, since the machine may be shared.
void update(Machine& machine, Rates* rates) {
  const double bytes = cli::measure_read_bytes_per_s(machine.device, kRotatedBytes).value_or(0);
  rates->fma_gflops =
      std::max(rates->fma_gflops, cli::measure_fma_flops_per_s(machine.device) * 1e-9);
  rates->read_gbytes = std::max(rates->read_gbytes, bytes * 1e-9);
}

void bench_case(Machine& machine, const Case& test, const Rates& rates) {
  const int64_t copies = test.copies();
  OurProduct ours(machine, test.product(), copies);
  const auto peer = PeerProduct::create(test.product(), copies);
  const Call our_call = [&](int64_t copy) { ours.call(copy); };
  const Call peer_call = [&](int64_t copy) { peer->call(copy); };
  const int64_t our_calls = calls_per_batch(our_call, copies);
  const int64_t peer_calls = peer ? calls_per_batch(peer_call, copies) : 0;
  double our_best = 1e30, peer_best = 1e30;
  std::vector<double> ratios;
  for (int pair = 0; pair < kPairs; ++pair) {
    wait_until_quiet();
    const double our_seconds = batch_seconds(our_call, copies, our_calls);
    our_best = std::min(our_best, our_seconds);
    if (!peer) continue;
    wait_until_quiet();
    const double peer_seconds = batch_seconds(peer_call, copies, peer_calls);
    peer_best = std::min(peer_best, peer_seconds);
    ratios.push_back(peer_seconds / our_seconds);
  }
  const double gflops = test.product().flops() / our_best * 1e-9;
  const double gbytes = test.weight_bytes() / our_best * 1e-9;
  fmt::print("{:<22} {:>9.1f} {:>6.0f}% {:>7.0f}%", test.name(), gflops,
             100 * gflops / rates.fma_gflops, 100 * gbytes / rates.read_gbytes);
  if (peer) {
    fmt::print(" {:>9.1f} {:>7.2f} [{:.2f}, {:.2f}]", test.product().flops() / peer_best * 1e-9,
               quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75));
  } else {
    fmt::print("         -");
  }
  fmt::print("\n");
}

// a = b + 3 c on the team: what the machine streams beside AdamW, which is bound by memory alone.
// The lines of a are read before they are written, as those of AdamW are, so that all 16 bytes
// count.
void triad(Machine& machine, const TensorView& a, const TensorView& b, const TensorView& c) {
  constexpr int64_t kGrain = 16384;
  machine.device.team().parallel_for(a.count(), kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i + 8 <= end; i += 8) {
      const __m256 sum = _mm256_fmadd_ps(_mm256_set1_ps(3.0f), _mm256_loadu_ps(c.as<float>() + i),
                                         _mm256_loadu_ps(b.as<float>() + i));
      _mm256_storeu_ps(a.as<float>() + i, sum);
    }
  });
}

void bench_optimizer(Machine& machine) {
  const Shape shape{24'000'000};
  std::vector<Tensor> arrays;
  for (int i = 0; i < 4; ++i) {
    arrays.push_back(std::move(*machine.arena.make_zero(DType::kF32, shape)));
  }
  const ops::MomentLayout blocks = ops::moment_part_layout(DType::kU8, shape.count());
  for (int i = 0; i < 2; ++i) {
    arrays.push_back(std::move(*machine.arena.make_zero(blocks.dtype, blocks.shape)));
  }
  double stream = 1e30, squares = 1e30, result = 0;
  double steps[2] = {1e30, 1e30};  // f32, q8
  std::vector<double> ratios, gains;
  for (int i = 0; i < kPairs; ++i) {
    const StopWatch first;
    triad(machine, arrays[0].view(), arrays[1].view(), arrays[2].view());
    const double triad_seconds = first.seconds();
    stream = std::min(stream, triad_seconds);
    double seconds[2] = {};
    for (const size_t form : {0, 1}) {
      const StopWatch watch;
      ops::adamw(*machine.stream, {.weight = arrays[0].view(),
                                   .moment1 = arrays[form == 0 ? 1 : 4].view(),
                                   .moment2 = arrays[form == 0 ? 2 : 5].view(),
                                   .grad = arrays[3].view(),
                                   .learning_rate = 1e-3});
      machine.stream->synchronize();
      seconds[form] = watch.seconds();
      steps[form] = std::min(steps[form], seconds[form]);
    }
    ratios.push_back(28 * triad_seconds / (16 * seconds[0]));
    gains.push_back(seconds[0] / seconds[1]);
    const StopWatch second;
    ops::sums_of_squares(*machine.stream, {{arrays[3].view()}}, &result);
    machine.stream->synchronize();
    squares = std::min(squares, second.seconds());
  }
  const auto print = [&](const char* name, double bytes, double seconds) {
    const double rate = bytes * static_cast<double>(shape.count()) / seconds * 1e-9;
    fmt::print("{:<22} {:>9.1f} GB/s", name, rate);
  };
  print("triad", 16, stream);
  const auto print_quartiles = [](const char* what, const std::vector<double>& values) {
    fmt::print(" {:>4.2f} {} [{:.2f}, {:.2f}]", quantile(values, 0.5), what, quantile(values, 0.25),
               quantile(values, 0.75));
  };
  print("\nadamw", 28, steps[0]);
  print_quartiles("of triad's", ratios);
  print("\nadamw, moments q8", 16.125, steps[1]);
  print_quartiles("times adamw's speed", gains);
  print("\nsum of squares", 4, squares);
  fmt::print("\n");
}

void run(int thread_count, const std::string& filter) {
  Machine machine(thread_count);
  set_peer_threads(machine.device.team().size());
  Rates rates;
  update(machine, &rates);
  fmt::print("{}, {}, {} threads: {:.0f} GFLOP/s of fused multiply-adds, {:.1f} GB/s read\n",
             cpu_features().model_name, isa_name(active_isa()), machine.device.team().size(),
             rates.fma_gflops, rates.read_gbytes);
  if (!peer_name().empty()) fmt::print("peer: {}\n", peer_name());
  fmt::print("\n{:<22} {:>9} {:>7} {:>8} {:>9} {:>7} [quartiles]\n", "type/form/tokens/width",
             "GFLOP/s", "of fma", "of read", "peer", "ratio");
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const Form form : {Form::kForward, Form::kInput, Form::kWeight}) {
      for (const int64_t tokens : {1, 16, 256, 2048}) {
        for (const int64_t width : {768, 2048}) {
          const Case test = {type, form, tokens, width};
          if (test.name().find(filter) == std::string::npos) continue;
          update(machine, &rates);
          bench_case(machine, test, rates);
        }
      }
    }
  }
  if (filter.empty() || filter == "adamw") {
    fmt::print("\n");
    bench_optimizer(machine);
  }
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? argv[2] : "");
  return 0;
}

// Products with quantised weights beside those with bf16 weights, in one run.
//
// usage: quant_bench [threads] [filter]      filter: part of a case's name, as "2048x8192/512
// forward" Cases are outputs x inputs/tokens, rows and results in bf16. Batches of calls of the
// formats alternate, a pause between them, so that all see the same machine; rates are of the best
// batch, the ratio is the time of bf16 over that of the format, the median of the rounds with its
// quartiles. Weights of few tokens rotate through more memory than the caches hold; their rate of
// reading is that of the packed bytes, also as a share of the rate of reading memory, which is
// measured in every round.
// "pack" as filter: how long packing a weight of bf16 takes. "numbers": products with the numbers
// of the blocks instead, as training on a quantised base runs them, forward and for the input
// gradient, and how much time a weight takes to be turned back.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "cli/machine_rates.h"
#include "products.h"
#include "timing.h"

namespace jige::bench {
namespace {

using ops::WeightFormat;

constexpr int kRounds = 7;
constexpr double kBatchSeconds = 0.08;
constexpr int64_t kRotatedBytes = int64_t{256} << 20;
constexpr WeightKind kKindList[] = {{"bf16", WeightFormat::kCompute},
                                    {"q8", WeightFormat::kQ8},
                                    {"q4", WeightFormat::kQ4},
                                    {"q4 even", WeightFormat::kQ4, true},
                                    {"mxfp4", WeightFormat::kMxfp4}};
constexpr std::span<const WeightKind> kKinds = kKindList;

struct Case {
  int64_t outputs, inputs, tokens;
  bool numbers = false;
  Form form = Form::kForward;
  std::string name() const {
    return fmt::format("{}x{}/{} {}", outputs, inputs, tokens, form_name(form));
  }
};

// One format's product, its weights in as many copies as a batch rotates through.
struct Contender {
  Contender(Machine& machine, const Case& test, const WeightKind& kind) {
    const Product product = {.type = DType::kBF16,
                             .form = test.form,
                             .tokens = test.tokens,
                             .inputs = test.inputs,
                             .outputs = test.outputs,
                             .format = kind.format,
                             .numbers = test.numbers,
                             .even_levels = kind.even_levels};
    const int64_t bytes = ops::packed_weight_bytes(DType::kBF16, ops::PackUse::kForward,
                                                   test.outputs, test.inputs, kind.format);
    copies = test.tokens > 16 ? 1 : std::max<int64_t>(1, kRotatedBytes / bytes);
    ours = std::make_unique<OurProduct>(machine, product, copies);
    for (double seconds = run(1); seconds < 0.1 * kBatchSeconds; seconds = run(calls)) calls *= 4;
    calls = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(calls) * kBatchSeconds / run(calls)));
  }
  // Seconds of so many calls.
  double run(int64_t count) {
    const StopWatch watch;
    for (int64_t i = 0; i < count; ++i) ours->call(next++ % copies);
    return watch.seconds();
  }

  std::unique_ptr<OurProduct> ours;
  int64_t copies = 1;
  int64_t calls = 1;
  int64_t next = 0;
  std::vector<double> times;  // of a call, by round
};

void bench_case(Machine& machine, cli::ReadProbe& memory, const Case& test) {
  std::vector<Contender> contenders;
  for (const WeightKind& kind : kKinds) contenders.emplace_back(machine, test, kind);
  double read_rate = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (test.tokens == 1) {
      read_rate = std::max(read_rate, cli::measure_read_bytes_per_s(memory, 0.05));
    }
    for (Contender& contender : contenders) {
      wait_until_quiet();
      contender.times.push_back(contender.run(contender.calls) /
                                static_cast<double>(contender.calls));
    }
  }
  const double operations =
      2.0 * static_cast<double>(test.tokens * test.inputs) * static_cast<double>(test.outputs);
  for (size_t i = 0; i < contenders.size(); ++i) {
    const Contender& contender = contenders[i];
    const double best = quantile(contender.times, 0);
    std::vector<double> ratios;
    for (size_t round = 0; round < contender.times.size(); ++round) {
      ratios.push_back(contenders[0].times[round] / contender.times[round]);
    }
    fmt::print("{:<25} {:<7} {:>9.1f} {:>7.2f} [{:.2f}, {:.2f}]", i == 0 ? test.name() : "",
               kKinds[i].name, operations / best * 1e-9, quantile(ratios, 0.5),
               quantile(ratios, 0.25), quantile(ratios, 0.75));
    if (test.tokens == 1) {
      const double rate = static_cast<double>(contender.ours->packed_bytes()) / best;
      fmt::print(" {:>8.1f} GB/s {:>4.0f}%", rate * 1e-9, 100 * rate / read_rate);
    }
    fmt::print("\n");
  }
}

void bench_pack(Machine& machine) {
  const Case test = {2048, 8192, 1};
  for (const WeightKind& kind : kKinds) {
    Contender contender(machine, test, kind);
    double best = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      const StopWatch watch;
      for (int64_t copy = 0; copy < 4; ++copy) contender.ours->pack(copy % contender.copies);
      best = std::min(best, watch.seconds() / 4);
    }
    fmt::print("packing {:<7} {:>7.3f} ns a weight\n", kind.name,
               best * 1e9 / static_cast<double>(test.outputs * test.inputs));
  }
}

// A product of one row takes as long as its weight takes to be turned back and read once more.
void bench_turning_back(Machine& machine) {
  for (const Form form : {Form::kForward, Form::kInput}) {
    for (const WeightKind& kind : kKinds.subspan(1)) {
      const Case test = {2048, 8192, 1, true, form};
      Contender contender(machine, test, kind);
      double best = 1e30;
      for (int round = 0; round < kRounds; ++round) {
        best =
            std::min(best, contender.run(contender.calls) / static_cast<double>(contender.calls));
      }
      fmt::print("turning back {:<7} {:<8} {:>7.3f} ns a weight\n", kind.name, form_name(form),
                 best * 1e9 / static_cast<double>(test.outputs * test.inputs));
    }
  }
}

void run(int thread_count, const std::string& filter) {
  Machine machine(thread_count);
  const auto memory = cli::ReadProbe::create(machine.device, {.bytes = kRotatedBytes});
  if (!memory) return;
  fmt::print("{}, {}, {} threads\n\n{:<25} {:<7} {:>9} {:>7} [quartiles]\n",
             cpu_features().model_name, isa_name(active_isa()), machine.device.team().size(),
             "outputs x inputs", "", "GFLOP/s", "ratio");
  const int64_t shapes[][2] = {{768, 2304}, {2304, 768}, {2048, 8192}, {8192, 2048}};
  for (const auto& [outputs, inputs] : shapes) {
    for (const int64_t tokens : {1, 4, 16, 64, 512, 2048}) {
      const Case test = {outputs, inputs, tokens};
      if (test.name().find(filter) != std::string::npos) bench_case(machine, **memory, test);
    }
  }
  if (filter.empty() || filter == "pack") bench_pack(machine);
  if (filter != "numbers") return;
  for (const auto& [outputs, inputs] : shapes) {
    for (const int64_t tokens : {256, 1024, 4096}) {
      for (const Form form : {Form::kForward, Form::kInput}) {
        bench_case(machine, **memory, {outputs, inputs, tokens, true, form});
      }
    }
  }
  bench_turning_back(machine);
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? argv[2] : "");
  return 0;
}

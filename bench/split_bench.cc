// Prompts and next tokens on threads of their own beside iterations that have both.
//
// usage: split_bench [15m|42m|110m]... [--quantize none|q8|q4] [--threads N] [--prompt N]
//                    [--context N] [--rounds N] [--seconds S]
// Models of `jige train --size` with random weights. Apart: one engine runs next tokens of B
// answers behind --context others on half of the threads while another runs whole prompts of
// --prompt tokens on the other half, each without a pause. Together: an engine on all threads runs
// iterations that have B next tokens and K tokens of a prompt, where K is what the prompts' threads
// came to meanwhile. So both do the same work in the time between two tokens, and neither half of
// the threads has ever waited: the best case of threads apart. `together/apart` is the ratio of
// these times: above 1, threads apart have more throughput and shorter gaps. `for each` is K over
// B, the tokens of prompts to each next token at which neither half waits; with other loads one
// does. `alone` is what next tokens take there while no prompt runs, over what they take beside
// prompts.
//
// Turns are those of the engine's loop (serve/step_meter.h), a round is one of each kind, one right
// after the other, so that all see the same machine; the first does not count. Ratios are medians
// of rounds with their quartiles. The two engines apart have weights of their own: what two would
// share of the last cache is not in it.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "bench_flags.h"
#include "cli/bench_serve_model.h"
#include "machine.h"
#include "serve/step_meter.h"
#include "timing.h"

namespace jige::bench {
namespace {

constexpr int32_t kDecodeRows[] = {1, 4, 8, 16, 32, 64};
constexpr int32_t kDecodeTurns = 16;

struct SplitOptions {
  std::vector<std::string> sizes = {"15m", "110m"};
  std::string quantize = "none";
  int threads = 2;
  int32_t prompt = 256;
  int32_t context = 256;
  int rounds = 7;
  double seconds = 0.4;
};

std::string spread(const std::vector<double>& values) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", quantile(values, 0.5), quantile(values, 0.25),
                     quantile(values, 0.75));
}

// A model and what times it, which is with it in one place.
struct Side {
  explicit Side(cli::BenchServeModel loaded)
      : served(std::move(loaded)),
        meter(*served.model, *served.tokenizer, &served.devices.team()) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // The times of turns of this shape, for as long as `more` says. What fails ends the program.
  template <typename More>
  std::vector<double> run(const serve::StepShape& shape, int32_t turns, const More& more) {
    std::vector<double> times;
    do {
      const Status done = meter.run(
          shape, turns, [&](const serve::StepMeter::Turn& turn) { times.push_back(turn.seconds); });
      if (!done) {
        fmt::print(stderr, "split_bench: {}\n", done.error().message);
        std::exit(1);
      }
    } while (more());
    return times;
  }
  std::vector<double> run_for(double seconds, const serve::StepShape& shape, int32_t turns) {
    const StopWatch watch;
    return run(shape, turns, [&] { return watch.seconds() < seconds; });
  }

  cli::BenchServeModel served;
  serve::StepMeter meter;
};

Result<cli::BenchServeModel> load(const SplitOptions& options, const std::string& size,
                                  int threads) {
  cli::BenchServeModelFlags flags;
  flags.random = size;
  flags.quantize = options.quantize;
  flags.device.threads = threads;
  const int64_t rows_max = *std::ranges::max_element(kDecodeRows);
  const int64_t tokens_max = options.context + 4 * int64_t{options.prompt};
  return flags.load(tokens_max, (rows_max * (options.context + 64) + 2 * tokens_max) / 16,
                    rows_max + 4 * int64_t{options.prompt}, rows_max + 1);
}

class Rounds {
 public:
  Rounds(const SplitOptions& options, Side& decode, Side& prompts, Side& both)
      : options_(options), decode_(decode), prompts_(prompts), both_(both) {}

  void run(int32_t rows) {
    for (int round = -1; round < options_.rounds; ++round) one(rows, round >= 0);
    fmt::print("{:>4} {:>8.2f} {:>8.2f} {:>6.0f} {:>9.1f}   {:<17}  {:<17}  {:<17}  {:.2f}\n", rows,
               quantile(together_s_, 0.5) * 1e3, quantile(apart_s_, 0.5) * 1e3,
               quantile(counts_, 0.5), quantile(counts_, 0.5) / rows, spread(ratios_),
               spread(tails_), spread(turns_), quantile(alone_, 0.5));
    std::fflush(stdout);
  }

 private:
  void one(int32_t rows, bool counts) {
    const serve::StepShape next_tokens{.decode_rows = rows, .decode_context = options_.context};
    const serve::StepShape prompt{.prompt_count = 1, .prompt_rows = options_.prompt};
    std::atomic<bool> over{false};
    std::vector<double> prompt_s;
    std::thread beside([&] { prompt_s = prompts_.run(prompt, 1, [&] { return !over.load(); }); });
    const std::vector<double> apart = decode_.run_for(options_.seconds, next_tokens, kDecodeTurns);
    over.store(true);
    beside.join();
    const double gap_s = quantile(apart, 0.5);
    const double share = gap_s / quantile(prompt_s, 0.5);
    const auto count = std::max(static_cast<int32_t>(share * options_.prompt + 0.5), 1);
    serve::StepShape mixed = next_tokens;
    mixed.prompt_count = 1;
    mixed.prompt_rows = std::min(count, 3 * options_.prompt);
    const std::vector<double> together = both_.run_for(options_.seconds, mixed, kDecodeTurns);
    const std::vector<double> next_s =
        both_.run_for(options_.seconds / 2, next_tokens, kDecodeTurns);
    const std::vector<double> whole_s = both_.run_for(options_.seconds / 2, prompt, 1);
    const double turns_s =
        quantile(next_s, 0.5) + quantile(whole_s, 0.5) * mixed.prompt_rows / options_.prompt;
    const std::vector<double> alone =
        decode_.run_for(options_.seconds / 2, next_tokens, kDecodeTurns);
    if (!counts) return;
    apart_s_.push_back(gap_s);
    together_s_.push_back(quantile(together, 0.5));
    counts_.push_back(mixed.prompt_rows);
    ratios_.push_back(together_s_.back() / gap_s);
    tails_.push_back(quantile(together, 0.99) / quantile(apart, 0.99));
    turns_.push_back(turns_s / gap_s);
    alone_.push_back(quantile(alone, 0.5) / gap_s);
  }

  const SplitOptions& options_;
  Side& decode_;
  Side& prompts_;
  Side& both_;
  std::vector<double> apart_s_, together_s_, counts_, ratios_, tails_, turns_, alone_;
};

Status bench_size(const SplitOptions& options, const std::string& size) {
  const int half = std::max(options.threads / 2, 1);
  JIGE_TRY(cli::BenchServeModel of_all, load(options, size, options.threads));
  JIGE_TRY(cli::BenchServeModel of_decode, load(options, size, half));
  JIGE_TRY(cli::BenchServeModel of_prompts, load(options, size, options.threads - half));
  Side both(std::move(of_all)), decode(std::move(of_decode)), prompts(std::move(of_prompts));
  fmt::print("\n{}, {} threads together, {} and {} apart, prompts of {}, contexts of {}\n",
             both.served.text, options.threads, half, options.threads - half, options.prompt,
             options.context);
  fmt::print("{:>4} {:>8} {:>8} {:>6} {:>9}   {:<17}  {:<17}  {:<17}  {}\n", "B", "together",
             "apart", "K", "for each", "together/apart", "at 99 %", "in turns", "alone");
  for (const int32_t rows : kDecodeRows) Rounds(options, decode, prompts, both).run(rows);
  return {};
}

int run(const SplitOptions& options) {
  fmt::print("{}, {}; ms\n", cpu_features().model_name, isa_name(active_isa()));
  for (const std::string& size : options.sizes) {
    if (const Status done = bench_size(options, size); !done) {
      fmt::print(stderr, "split_bench: {}: {}\n", size, done.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::SplitOptions options;
  CLI::App app("Prompts and next tokens on threads of their own, beside both on all",
               "split_bench");
  jige::bench::declare_sizes(app, options.sizes);
  app.add_option("--threads", options.threads)->check(CLI::Range(2, 1024))->capture_default_str();
  jige::bench::declare_positive(app, "--prompt", options.prompt, "tokens of a prompt");
  jige::bench::declare_positive(app, "--context", options.context, "tokens before a next one");
  jige::bench::declare_positive(app, "--rounds", options.rounds, "how often each is measured");
  app.add_option("--seconds", options.seconds, "of a measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  jige::bench::declare_quantize(app, options.quantize);
  CLI11_PARSE(app, argc, argv);
  return jige::bench::run(options);
}

// Training steps that leave out blocks of the feed-forward layers' hidden width, beside steps that
// drop nothing and steps that drop single numbers.
//
// usage: ffn_dropout_bench [15m|42m|110m]... [--tokens N] [--at-once N] [--dtype f32|bf16]
//                          [--threads N] [--rounds N]
// Models of `jige train --size` with random weights, an output matrix for 1024 tokens. A step is
// one micro-batch of N tokens in sequences of 256, which so many subnetworks share, clipping and
// AdamW. A round is one step of each way, one right after the other, so that all see the same
// machine; the first does not count. Times are the processor's, in which other work on the machine
// shows little: tokens/s is of them, "time" that of a step over that of the round's step without
// dropout, the median of the rounds, and its quartiles. "work" is the part of the step's products
// that is left.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/rng.h"
#include "bench_flags.h"
#include "cli/device_flags.h"
#include "cli/model_sizes.h"
#include "machine.h"
#include "model/init.h"
#include "model/memory_plan.h"
#include "timing.h"
#include "train/executor.h"
#include "train/optimizer.h"
#include "train/run_dropout.h"
#include "train/step_flops.h"

namespace jige::bench {
namespace {

constexpr int64_t kContext = 256;
constexpr int64_t kVocabSize = 1024;
constexpr double kRates[] = {0.1, 0.25, 0.5};
constexpr int64_t kBlocks[] = {32, 64, 128};

struct DropoutBenchOptions : MachineOptions {
  std::vector<std::string> sizes = {"15m", "110m"};
  int64_t tokens = 2048;
  int64_t at_once = 1;
};

struct Way {
  std::string name;
  train::TrainOptions dropout;  // of which that alone counts
  std::vector<double> times;    // by round
};

std::vector<Way> ways_of(const model::Architecture& architecture, int64_t at_once) {
  std::vector<Way> ways = {{.name = "none", .dropout = {}, .times = {}}};
  for (const double rate : kRates) {
    ways.push_back({.name = fmt::format("numbers {}", rate), .dropout = {}, .times = {}});
    ways.back().dropout.dropout = rate;
  }
  for (const double rate : kRates) {
    for (const int64_t block : kBlocks) {
      Way way{.name = fmt::format("blocks of {}, {}", block, rate), .dropout = {}, .times = {}};
      way.dropout.ffn_dropout = rate;
      way.dropout.ffn_dropout_block = block;
      way.dropout.dropout_at_once = at_once;
      if (train::check_block_dropout(architecture, way.dropout)) ways.push_back(std::move(way));
    }
  }
  return ways;
}

train::HostBatch random_batch(int64_t tokens) {
  Rng rng(derive_key(1, "bench tokens"));
  train::HostBatch batch;
  for (int64_t i = 0; i < tokens; ++i) {
    batch.tokens.push_back(static_cast<int32_t>(rng.below(uint64_t{kVocabSize})));
    batch.positions.push_back(static_cast<int32_t>(i % kContext));
  }
  batch.targets = batch.tokens;
  for (int64_t begin = 0; begin < tokens; begin += kContext) {
    batch.counts.push_back(static_cast<int32_t>(std::min(kContext, tokens - begin)));
  }
  return batch;
}

// A model in training.
struct Trained {
  static Result<std::unique_ptr<Trained>> create(Machine& machine,
                                                 const model::Architecture& architecture,
                                                 const DropoutBenchOptions& options) {
    auto made = std::make_unique<Trained>();
    const model::WeightsOptions weights{.compute = options.dtype, .position_count = kContext};
    JIGE_TRY(made->weights, model::ModelWeights::create(machine.arena, architecture, weights));
    model::initialise_weights(*made->weights, *machine.stream, 1);
    JIGE_TRY(made->optimizer,
             train::Optimizer::create(machine.arena, made->weights->trainable(), {}));
    JIGE_TRY(made->executor,
             train::Executor::create(machine.arena, *made->weights, options.tokens));
    made->batch = random_batch(options.tokens);
    made->tasks = train::one_device_tasks(architecture.node_count(), 1);
    return made;
  }

  double seconds_of_step(Stream& stream, const train::TrainOptions& dropout, int64_t step) {
    const auto count = std::ssize(batch.tokens);
    const double begin = processor_seconds();
    weights->start_gradients(stream);
    executor->load(stream, batch,
                   {.loss_weight = 1.0f / static_cast<float>(count),
                    .dropout = train::step_dropout(dropout, step, count)});
    executor->run(stream, tasks, model::GradientUse::kStore);
    weights->finish_gradients(stream);
    optimizer->step(stream, {.learning_rate = 1e-4, .renew_packed = true});
    weights->pack_others(stream);
    stream.synchronize();
    return processor_seconds() - begin;
  }

  std::optional<model::ModelWeights> weights;
  std::optional<train::Optimizer> optimizer;
  std::optional<train::Executor> executor;
  train::HostBatch batch;
  std::vector<train::Task> tasks;
};

Status bench_size(Machine& machine, const std::string& size, const DropoutBenchOptions& options) {
  JIGE_TRY(const auto config, cli::make_llama_config({.size = size}, kVocabSize));
  JIGE_TRY(const auto architecture, model::Architecture::create(config));
  JIGE_TRY(const auto trained, Trained::create(machine, *architecture, options));
  std::vector<Way> ways = ways_of(*architecture, options.at_once);
  for (int round = -1; round < options.rounds; ++round) {
    for (Way& way : ways) {
      const double seconds = trained->seconds_of_step(*machine.stream, way.dropout, round + 2);
      if (round >= 0) way.times.push_back(seconds);
    }
  }
  const auto tokens = static_cast<double>(options.tokens);
  const auto flops = [&](const Way& way) {
    return train::training_flops(*architecture, way.dropout, tokens, kContext / 2.0);
  };
  for (const Way& way : ways) {
    std::vector<double> ratios;
    for (size_t round = 0; round < way.times.size(); ++round) {
      ratios.push_back(way.times[round] / ways[0].times[round]);
    }
    fmt::print("{:<6} {:<20} {:>8.0f} {:>6.3f} {:>6.3f} [{:.3f}, {:.3f}]\n",
               &way == ways.data() ? size : "", way.name, tokens / quantile(way.times, 0.5),
               flops(way) / flops(ways[0]), quantile(ratios, 0.5), quantile(ratios, 0.25),
               quantile(ratios, 0.75));
  }
  std::fflush(stdout);
  return {};
}

int run(const DropoutBenchOptions& options) {
  Machine machine(options.threads);
  fmt::print(
      "{}, {}, {} threads, {}, {} tokens a step, {} subnetworks at once\n\n{:<6} {:<20} {:>8} "
      "{:>6} {:>6} {}\n",
      cpu_features().model_name, isa_name(active_isa()), machine.device.team().size(),
      dtype_info(options.dtype).name, options.tokens, options.at_once, "size", "dropped",
      "tokens/s", "work", "time", "[quartiles]");
  for (const std::string& size : options.sizes) {
    if (const Status done = bench_size(machine, size, options); !done) {
      fmt::print(stderr, "ffn_dropout_bench: {}: {}\n", size, done.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::DropoutBenchOptions options;
  options.dtype = jige::cli::default_training_dtype();
  options.threads = 1;
  CLI::App app("Training steps that leave out blocks of feed-forward layers, in turns",
               "ffn_dropout_bench");
  jige::bench::declare_sizes(app, options.sizes);
  jige::bench::declare_positive(app, "--tokens", options.tokens, "of a step");
  jige::bench::declare_positive(app, "--at-once", options.at_once, "subnetworks that share a step");
  jige::bench::declare_machine(app, options);
  CLI11_PARSE(app, argc, argv);
  return jige::bench::run(options);
}

// Training steps of an adapter on a whole base and on quantised ones, in one run.
//
// usage: adapter_bench [15m|42m|110m]... [--tokens N] [--dtype f32|bf16] [--threads N] [--rounds N]
// Models of `jige train --size` with random weights, adapters of rank 8 on all linear layers. A
// step is one micro-batch of N tokens in sequences of 256, clipping and AdamW. A round is one step
// of each base, one right after the other, so that all see the same machine; the first does not
// count. The time beside the whole base is the median of the rounds' ratios, with its quartiles.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "bench_flags.h"
#include "cli/device_flags.h"
#include "cli/model_sizes.h"
#include "cli/random_model.h"
#include "machine.h"
#include "model/init.h"
#include "model/memory_plan.h"
#include "timing.h"
#include "train/executor.h"
#include "train/optimizer.h"

namespace jige::bench {
namespace {

using ops::WeightFormat;

constexpr WeightFormat kBaseFormats[] = {WeightFormat::kCompute, WeightFormat::kQ8,
                                         WeightFormat::kQ4};
constexpr int64_t kContext = 256;

struct AdapterBenchOptions : MachineOptions {
  std::vector<std::string> sizes = {"15m", "110m"};
  int64_t tokens = 2048;
};

train::HostBatch random_batch(int64_t tokens, int64_t vocab_size) {
  Rng rng(derive_key(1, "bench tokens"));
  train::HostBatch batch;
  for (int64_t i = 0; i < tokens; ++i) {
    batch.tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size))));
    batch.positions.push_back(static_cast<int32_t>(i % kContext));
  }
  batch.targets = batch.tokens;
  for (int64_t begin = 0; begin < tokens; begin += kContext) {
    batch.counts.push_back(static_cast<int32_t>(std::min(kContext, tokens - begin)));
  }
  return batch;
}

// An adapter on a base of one format.
class Tuning {
 public:
  static Result<std::unique_ptr<Tuning>> create(Machine& machine,
                                                const model::Architecture& architecture,
                                                const formats::TensorFolder& files,
                                                const AdapterBenchOptions& options,
                                                WeightFormat format) {
    std::unique_ptr<Tuning> made(new Tuning(machine, architecture, options.tokens));
    const model::WeightsOptions weights{.compute = options.dtype,
                                        .table_dtype = DType::kBF16,
                                        .position_count = kContext,
                                        .format = format};
    made->memory_ = model::training_memory(architecture, weights, options.tokens);
    JIGE_TRY(made->weights_, model::ModelWeights::create(machine.arena, architecture, weights));
    JIGE_DO(model::load_weights(*made->weights_, *machine.stream, files));
    model::initialise_weights(*made->weights_, *machine.stream, 1);
    JIGE_TRY(made->optimizer_,
             train::Optimizer::create(machine.arena, made->weights_->trainable(), {}));
    JIGE_TRY(made->executor_,
             train::Executor::create(machine.arena, *made->weights_, options.tokens));
    return made;
  }

  double seconds_of_step() {
    const StopWatch watch;
    Stream& stream = *machine_.stream;
    weights_->start_gradients(stream);
    executor_->load(stream, batch_,
                    {.loss_weight = 1.0f / static_cast<float>(batch_.tokens.size())});
    executor_->run(stream, tasks_, model::GradientUse::kStore);
    weights_->finish_gradients(stream);
    optimizer_->step(stream, {.learning_rate = 1e-4, .renew_packed = true});
    weights_->pack_others(stream);
    stream.synchronize();
    return watch.seconds();
  }

  const model::TrainingMemory& memory() const { return memory_; }

  std::vector<double> times;  // by round

 private:
  Tuning(Machine& machine, const model::Architecture& architecture, int64_t tokens)
      : machine_(machine),
        batch_(random_batch(tokens, architecture.config().vocab_size)),
        tasks_(train::one_device_tasks(architecture.node_count(), 1)) {}

  Machine& machine_;
  train::HostBatch batch_;
  std::vector<train::Task> tasks_;
  model::TrainingMemory memory_;
  std::optional<model::ModelWeights> weights_;
  std::optional<train::Optimizer> optimizer_;
  std::optional<train::Executor> executor_;
};

Status bench_adapters(Machine& machine, const std::string& size,
                      const AdapterBenchOptions& options) {
  JIGE_TRY(auto config, cli::make_llama_config({.size = size}, 32000));
  config.stored_dtype = DType::kBF16;
  JIGE_TRY(const cli::TemporaryFolder folder, cli::TemporaryFolder::make());
  JIGE_DO(cli::write_random_model(folder.path(), config, 1));
  JIGE_TRY(const auto files, formats::TensorFolder::open(folder.path()));
  JIGE_TRY(const auto architecture,
           model::Architecture::create(config, formats::LoraConfig{.rank = 8, .alpha = 16}));
  std::vector<std::unique_ptr<Tuning>> bases;
  for (const WeightFormat format : kBaseFormats) {
    bases.emplace_back();
    JIGE_TRY(bases.back(), Tuning::create(machine, *architecture, files, options, format));
  }
  for (int round = -1; round < options.rounds; ++round) {
    for (const auto& base : bases) {
      const double seconds = base->seconds_of_step();
      if (round >= 0) base->times.push_back(seconds);
    }
  }
  for (size_t i = 0; i < bases.size(); ++i) {
    std::vector<double> ratios;
    for (size_t round = 0; round < bases[i]->times.size(); ++round) {
      ratios.push_back(bases[i]->times[round] / bases[0]->times[round]);
    }
    const model::WeightsMemory& memory = bases[i]->memory().weights;
    fmt::print(
        "{:<6} {:<5} {:>8.0f} {:>6.2f} [{:.2f}, {:.2f}] {:>10} {:>10} {:>10}\n", i == 0 ? size : "",
        i == 0 ? dtype_info(options.dtype).name : ops::weight_format_name(kBaseFormats[i]),
        static_cast<double>(options.tokens) / quantile(bases[i]->times, 0.5), quantile(ratios, 0.5),
        quantile(ratios, 0.25), quantile(ratios, 0.75), format_bytes(memory.packed_bytes),
        format_bytes(memory.strip_bytes), format_bytes(bases[i]->memory().total_bytes()));
    std::fflush(stdout);
  }
  return {};
}

int run(const AdapterBenchOptions& options) {
  Machine machine(options.threads);
  fmt::print(
      "{}, {}, {} threads, {} tokens a step\n\n{:<6} {:<5} {:>8} {:>6} {:<12} {:>10} {:>10} "
      "{:>10}\n",
      cpu_features().model_name, isa_name(active_isa()), machine.device.team().size(),
      options.tokens, "size", "base", "tokens/s", "time", "[quartiles]", "packed", "strip", "all");
  for (const std::string& size : options.sizes) {
    if (const Status done = bench_adapters(machine, size, options); !done) {
      fmt::print(stderr, "adapter_bench: {}: {}\n", size, done.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::AdapterBenchOptions options;
  options.dtype = jige::cli::default_training_dtype();
  CLI::App app("Training steps of an adapter on whole and quantised bases, in turns",
               "adapter_bench");
  jige::bench::declare_sizes(app, options.sizes);
  jige::bench::declare_positive(app, "--tokens", options.tokens, "of a step");
  jige::bench::declare_machine(app, options);
  CLI11_PARSE(app, argc, argv);
  return jige::bench::run(options);
}

// A step of several users on adapters of one model beside the same step without.
//
// usage: adapter_serve_bench [15m|42m|110m]... [--rank N] [--users N] [--prompt N] [--dtype
// f32|bf16]
//                            [--quantize none|q8|q4] [--threads N] [--rounds N]
// Models of `jige train --size` with random weights, with adapters of one rank on all linear
// layers. A step is a token of each user behind 256 others, users next to each other on one adapter
// as the engine has them; or, last, a prompt of N tokens. A round is one step of each kind, one
// right after the other, so that all see the same machine; the first does not count. The time
// beside the model that has no adapters is the median of the rounds' ratios, with its quartiles.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "bench_flags.h"
#include "cli/device_flags.h"
#include "cli/model_sizes.h"
#include "cli/random_model.h"
#include "machine.h"
#include "model/inference.h"
#include "model/init.h"
#include "model/weights_save.h"
#include "timing.h"

namespace jige::bench {
namespace {

constexpr int64_t kContextTokens = 256;
constexpr int64_t kAdaptersMost = 8;

struct ServeBenchOptions : MachineOptions {
  std::vector<std::string> sizes = {"42m", "110m"};
  std::string quantize = "none";
  int64_t rank = 16;
  int64_t users = 8;
  int64_t prompt = 256;
};

// Writes adapters of a random model as folders; what they hold does not matter for their time.
Result<std::vector<model::AdapterSource>> write_adapters(Machine& machine,
                                                         const std::string& folder,
                                                         const formats::ModelConfig& config,
                                                         int64_t rank) {
  const formats::LoraConfig lora{.rank = rank, .alpha = 16};
  JIGE_TRY(const auto architecture, model::Architecture::create(config, lora));
  JIGE_TRY(auto weights,
           model::ModelWeights::create(machine.arena, *architecture,
                                       {.compute = DType::kBF16, .gradients = false}));
  std::vector<model::AdapterSource> sources;
  for (int64_t i = 0; i < kAdaptersMost; ++i) {
    model::initialise_weights(weights, *machine.stream, static_cast<uint64_t>(i));
    const std::string path = fmt::format("{}/adapter{}", folder, i);
    JIGE_DO(model::save_adapter(path, model::Masters::of(weights), *machine.stream, ""));
    sources.push_back({fmt::format("a{}", i), path});
  }
  return sources;
}

// One step of a model, with so many adapters.
class Kind {
 public:
  Kind(std::string label, model::InferenceModel& model, int64_t users, int64_t tokens_each,
       int64_t context, int64_t adapters)
      : name(std::move(label)), model_(model) {
    const int64_t blocks_each =
        (context + tokens_each + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
    blocks_.resize(static_cast<size_t>(users * blocks_each));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (int64_t user = 0; user < users; ++user) {
      spans_.push_back({.row_begin = static_cast<int32_t>(std::ssize(tokens_)),
                        .row_count = static_cast<int32_t>(tokens_each),
                        .context_count = static_cast<int32_t>(context),
                        .blocks = blocks_.data() + user * blocks_each});
      tokens_.resize(tokens_.size() + static_cast<size_t>(tokens_each), 7);
      rows_.push_back(static_cast<int32_t>(std::ssize(tokens_) - 1));
      adapters_.push_back(adapters == 0 ? model::kNoAdapter
                                        : static_cast<int32_t>(user * adapters / users));
    }
  }

  Status run() {
    const StopWatch watch;
    JIGE_TRY(
        [[maybe_unused]] const auto logits,
        model_.forward(
            {.tokens = tokens_, .sequences = spans_, .logit_rows = rows_, .adapters = adapters_}));
    times.push_back(watch.seconds());
    return {};
  }

  std::string name;
  std::vector<double> times;  // by round

 private:
  model::InferenceModel& model_;
  std::vector<int32_t> tokens_, rows_, adapters_, blocks_;
  std::vector<ops::SequenceSpan> spans_;
};

// The first kind is what the others are compared with.
Status measure(const std::string& size, std::vector<Kind>& kinds, int rounds) {
  for (int round = -1; round < rounds; ++round) {
    for (Kind& kind : kinds) {
      JIGE_DO(kind.run());
      if (round < 0) kind.times.clear();
    }
  }
  for (const Kind& kind : kinds) {
    std::vector<double> ratios;
    for (size_t round = 0; round < kind.times.size(); ++round) {
      ratios.push_back(kind.times[round] / kinds[0].times[round]);
    }
    fmt::print("{:<6} {:<34} {:>8.2f} {:>6.2f} [{:.2f}, {:.2f}]\n", size, kind.name,
               quantile(kind.times, 0.5) * 1e3, quantile(ratios, 0.5), quantile(ratios, 0.25),
               quantile(ratios, 0.75));
  }
  std::fflush(stdout);
  return {};
}

Status bench_steps(Machine& machine, const std::string& size, const ServeBenchOptions& options) {
  JIGE_TRY(auto config, cli::make_llama_config({.size = size, .context = 2048}, 32000));
  config.stored_dtype = DType::kBF16;
  JIGE_TRY(const cli::TemporaryFolder folder, cli::TemporaryFolder::make());
  JIGE_DO(cli::write_random_model(folder.path(), config, 1));
  JIGE_TRY(const auto sources, write_adapters(machine, folder.path(), config, options.rank));
  const int64_t rows = std::max(options.users, options.prompt);
  model::InferenceOptions load{.compute = options.dtype,
                               .format = cli::read_weight_format(options.quantize),
                               .context_max = 2048,
                               .kv_block_count = 1024,
                               .batch_tokens_max = rows,
                               .logit_rows_max = options.users};
  JIGE_TRY(const auto plain, model::InferenceModel::load(folder.path(), machine.device, load));
  load.adapters = sources;
  JIGE_TRY(const auto adapted, model::InferenceModel::load(folder.path(), machine.device, load));
  const auto memory = model::inference_memory(adapted->architecture(), adapted->sizes());
  fmt::print("{:<6} weights {}, an adapter of rank {} {}\n", size,
             format_bytes(memory.weights.total_bytes()), options.rank,
             format_bytes(memory.adapters_bytes[0]));
  const auto users = [&](model::InferenceModel& model, std::string name, int64_t adapters) {
    return Kind(fmt::format("{} users, {}", options.users, name), model, options.users, 1,
                kContextTokens, adapters);
  };
  std::vector<Kind> steps;
  steps.push_back(users(*plain, "no adapters loaded", 0));
  steps.push_back(users(*adapted, "base beside 8 adapters", 0));
  for (const int64_t count : {1, 2, 4, 8}) {
    steps.push_back(users(*adapted, fmt::format("on {} adapters", count), count));
  }
  JIGE_DO(measure(size, steps, options.rounds));
  std::vector<Kind> prompts;
  prompts.emplace_back(fmt::format("prompt of {}", options.prompt), *plain, 1, options.prompt, 0,
                       0);
  prompts.emplace_back(fmt::format("prompt of {} on an adapter", options.prompt), *adapted, 1,
                       options.prompt, 0, 1);
  return measure(size, prompts, std::max(options.rounds / 4, 5));
}

int run(const ServeBenchOptions& options) {
  Machine machine(options.threads);
  fmt::print("{}, {}, {} threads, {}\n\n{:<6} {:<34} {:>8} {:>6} {}\n", cpu_features().model_name,
             isa_name(active_isa()), machine.device.team().size(),
             cli::numbers_text(options.dtype, cli::read_weight_format(options.quantize)), "size",
             "step", "ms", "time", "[quartiles]");
  for (const std::string& size : options.sizes) {
    if (const Status done = bench_steps(machine, size, options); !done) {
      fmt::print(stderr, "adapter_serve_bench: {}: {}\n", size, done.error().message);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::ServeBenchOptions options;
  options.dtype = jige::cli::default_training_dtype();
  options.rounds = 41;
  CLI::App app("Steps of a server with adapters beside one base, in turns", "adapter_serve_bench");
  jige::bench::declare_sizes(app, options.sizes);
  jige::bench::declare_positive(app, "--rank", options.rank, "of each adapter");
  jige::bench::declare_positive(app, "--users", options.users, "that decode at once");
  jige::bench::declare_positive(app, "--prompt", options.prompt, "tokens of the prompt");
  jige::bench::declare_quantize(app, options.quantize);
  jige::bench::declare_machine(app, options);
  CLI11_PARSE(app, argc, argv);
  return jige::bench::run(options);
}

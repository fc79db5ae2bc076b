// Decoding over a key/value cache in f32, bf16 and 8 bits, in turns: what attention takes by
// itself, and what a step of a whole model takes.
//
// usage: kv_cache_bench [threads] [rounds] [model size] [f32 or bf16]
// Attention: one new token over contexts of several lengths, over as many layers as make the caches
// larger than the processor's, and a prompt of as many tokens. Model: a Llama with random weights
// of 8 bits, whose contexts are not computed: what they hold makes no difference to the time. The
// type is that of queries and products; in bf16 there are no caches in f32. In every
// round each type has its turn, in alternating order; ratios are taken within a round. All types
// read the same tokens. Other load on the machine shows in the spread.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "bench_flags.h"
#include "cli/device_flags.h"
#include "cli/filled_cache.h"
#include "cli/model_sizes.h"
#include "cli/random_model.h"
#include "machine.h"
#include "model/inference.h"
#include "ops/attention.h"
#include "timing.h"

namespace jige::bench {
namespace {

constexpr std::array kTypes = {DType::kBF16, DType::kI8, DType::kF32};
constexpr int64_t kContexts[] = {512, 4096, 16384, 32768};
constexpr int64_t kPromptTokens = 4096;

struct Options {
  int threads = 0;
  int rounds = 15;
  std::string size = "110m";
  DType compute = DType::kF32;

  size_t type_count() const { return compute == DType::kBF16 ? 2 : kTypes.size(); }
};

struct Spread {
  double median, low, high;  // quartiles
};
Spread spread_of(const std::vector<double>& values) {
  return {median(values), quantile(values, 0.25), quantile(values, 0.75)};
}

// Runs body(type index) in turns and prints a line for each type.
void compare(const Options& options, const std::array<int64_t, kTypes.size()>& bytes,
             const std::function<void(size_t)>& body) {
  std::array<std::vector<double>, kTypes.size()> seconds;
  const size_t count = options.type_count();
  for (size_t type = 0; type < count; ++type) body(type);
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t type = round % 2 == 0 ? turn : count - 1 - turn;
      const StopWatch watch;
      body(type);
      seconds[type].push_back(watch.seconds());
    }
  }
  const std::vector<double>& halves = seconds[0];  // bf16
  for (size_t type = 0; type < count; ++type) {
    std::vector<double> ratios;
    for (size_t i = 0; i < halves.size(); ++i) ratios.push_back(halves[i] / seconds[type][i]);
    const Spread time = spread_of(seconds[type]);
    const Spread ratio = spread_of(ratios);
    fmt::print(
        "    {:<5} {:>8.2f} MB {:>9.3f} ms ({:.3f} to {:.3f}) {:>6.2f} times bf16's rate "
        "({:.2f} to {:.2f}), {:.1f} GB/s\n",
        cli::kv_cache_name(kTypes[type]), static_cast<double>(bytes[type]) * 1e-6,
        time.median * 1e3, time.low * 1e3, time.high * 1e3, ratio.median, ratio.low, ratio.high,
        static_cast<double>(bytes[type]) * 1e-9 / time.median);
  }
}

struct Heads {
  int64_t query, kv, dim;
};

// One new token, or all of the context at once.
void bench_attention(const Options& options, int64_t context, const Heads& heads, bool prompt) {
  Machine machine(options.threads);
  const int64_t blocks = context / ops::kKvBlockTokens;
  const auto layer_bytes = [&](DType type) {
    return ops::kv_cache_bytes(type, blocks, heads.kv, heads.dim);
  };
  const int64_t layers =
      prompt ? 1 : std::max<int64_t>(1, (int64_t{96} << 20) / layer_bytes(DType::kI8));
  const int64_t tokens = prompt ? context : 1;
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  Rng rng(derive_key(2, "blocks"));
  rng.shuffle(std::span<int32_t>(table));
  const Tensor rows = random_tensor(machine, DType::kF32, Shape({context, heads.kv * heads.dim}));
  const Shape query_shape({tokens, heads.query * heads.dim});
  const Tensor q = random_tensor(machine, options.compute, query_shape);
  const Tensor dst = random_tensor(machine, options.compute, query_shape);
  std::array<Tensor, kTypes.size()> caches;
  std::array<int64_t, kTypes.size()> bytes{};
  const auto view_of = [&](size_t type, int64_t layer) {
    return ops::KvCacheView{caches[type].view().row_range(layer, layer + 1).data, kTypes[type],
                            blocks, heads.kv, heads.dim};
  };
  const auto context_count = static_cast<int32_t>(context);
  for (size_t type = 0; type < options.type_count(); ++type) {
    bytes[type] = layers * layer_bytes(kTypes[type]);
    caches[type] =
        std::move(*machine.arena.make(DType::kU8, Shape({layers, layer_bytes(kTypes[type])})));
    for (int64_t layer = 0; layer < layers; ++layer) {
      ops::kv_append(*machine.stream, view_of(type, layer), rows.view(), rows.view(),
                     {{0, context_count, 0, table.data()}});
    }
    machine.stream->synchronize();
  }
  fmt::print("  attention, {} {}, {} query heads over {} of {}, {} layers\n",
             prompt ? "prompt" : "context", context, heads.query, heads.kv, heads.dim, layers);
  const ops::AttentionShape shape{heads.query, heads.kv, heads.dim,
                                  1 / std::sqrt(static_cast<double>(heads.dim)), 0};
  const ops::SequenceSpan span{0, static_cast<int32_t>(tokens),
                               static_cast<int32_t>(context - tokens), table.data()};
  compare(options, bytes, [&](size_t type) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      ops::attention_cached(*machine.stream,
                            {dst.view(), q.view(), view_of(type, layer), {span}, shape});
    }
    machine.stream->synchronize();
  });
}

template <typename T>
T value_or_end(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "error: {}\n", result.error().message);
  std::exit(1);
}

void bench_model(const Options& options) {
  const std::string& size = options.size;
  CpuDevice device({.thread_count = options.threads});
  const int64_t context_max = kContexts[std::size(kContexts) - 1];
  const cli::ModelShape shape{.size = size, .context = context_max};
  auto config = value_or_end(cli::make_llama_config(shape, cli::base_size(shape).vocab_size));
  config.stored_dtype = DType::kF32;
  const cli::TemporaryFolder folder = value_or_end(cli::TemporaryFolder::make());
  const Status written = cli::write_random_model(folder.path(), config, 1);
  JIGE_CHECK(written.has_value(), "{}", written.error().message);
  std::array<std::unique_ptr<model::InferenceModel>, kTypes.size()> models;
  const size_t count = options.type_count();
  for (size_t type = 0; type < count; ++type) {
    models[type] = value_or_end(model::InferenceModel::load(folder.path(), device,
                                                            {.compute = options.compute,
                                                             .kv_dtype = kTypes[type],
                                                             .format = ops::WeightFormat::kQ8,
                                                             .context_max = context_max,
                                                             .batch_tokens_max = 16}));
  }
  std::vector<int32_t> blocks(static_cast<size_t>(models[0]->sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (size_t type = 0; type < count; ++type) {
    const Status filled = cli::fill_cache(*models[type], context_max);
    JIGE_CHECK(filled.has_value(), "{}", filled.error().message);
  }
  for (const int64_t context : kContexts) {
    std::array<int64_t, kTypes.size()> bytes{};
    for (size_t type = 0; type < count; ++type) {
      const model::InferenceMemory memory =
          model::inference_memory(models[type]->architecture(), models[type]->sizes());
      bytes[type] = context * memory.kv_bytes_per_token + memory.weights.packed_bytes;
    }
    fmt::print("  a step of {}, context {}, {} layers, {} heads over {} of {}\n", size, context,
               config.layer_count, config.head_count, config.kv_head_count, config.head_dim);
    compare(options, bytes, [&](size_t type) {
      const int32_t token = 1;
      const int32_t row = 0;
      const ops::SequenceSpan span{.row_count = 1,
                                   .context_count = static_cast<int32_t>(context) - 1,
                                   .blocks = blocks.data()};
      value_or_end(models[type]->forward({.tokens = std::span(&token, 1),
                                          .sequences = std::span(&span, 1),
                                          .logit_rows = std::span(&row, 1)}));
    });
  }
}

void run(const Options& options) {
  fmt::print("{}, {}, {}\n", cpu_features().model_name, isa_name(active_isa()),
             dtype_info(options.compute).name);
  for (const Heads& heads :
       {Heads{8, 8, 64}, Heads{16, 4, 64}, Heads{32, 8, 128}, Heads{28, 4, 128}}) {
    for (const int64_t context : kContexts) bench_attention(options, context, heads, false);
    bench_attention(options, kPromptTokens, heads, true);
  }
  bench_model(options);
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::Options options;
  CLI::App app("Attention over keys and values in bf16, 8 bits and f32, in turns",
               "kv_cache_bench");
  app.add_option("THREADS", options.threads, "0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("ROUNDS", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
  jige::bench::declare_size(app, options.size);
  jige::bench::declare_dtype(app, "DTYPE", options.compute);
  CLI11_PARSE(app, argc, argv);
  jige::bench::run(options);
  return 0;
}

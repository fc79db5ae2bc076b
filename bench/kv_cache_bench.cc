// Decoding over a key/value cache in f32, bf16 and 8 bits, in turns: what attention takes by
// itself, and what a step of a whole model takes.
//
// usage: kv_cache_bench [threads] [rounds] [model size]
// Attention: one new token over contexts of several lengths, over as many layers as make the caches
// larger than the processor's. Model: a Llama with random weights (f32 products, weights of 8
// bits), whose contexts are not computed: what they hold makes no difference to the time. In every
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
#include "cli/device_flags.h"
#include "cli/filled_cache.h"
#include "cli/model_sizes.h"
#include "cli/random_model.h"
#include "machine.h"
#include "model/inference.h"
#include "ops/attention.h"

namespace jige::bench {
namespace {

constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kI8};
constexpr int64_t kContexts[] = {512, 4096, 16384};

struct Spread {
  double median, low, high;  // quartiles
};
Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.25), at(0.75)};
}

// Runs body(type index) in turns and prints a line for each type.
void compare(int rounds, const std::array<int64_t, kTypes.size()>& bytes,
             const std::function<void(size_t)>& body) {
  std::array<std::vector<double>, kTypes.size()> seconds;
  for (size_t type = 0; type < kTypes.size(); ++type) body(type);
  for (int round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < kTypes.size(); ++turn) {
      const size_t type = round % 2 == 0 ? turn : kTypes.size() - 1 - turn;
      const StopWatch watch;
      body(type);
      seconds[type].push_back(watch.seconds());
    }
  }
  const std::vector<double>& halves = seconds[1];  // bf16
  for (size_t type = 0; type < kTypes.size(); ++type) {
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

void bench_attention(int threads, int rounds, int64_t context, const Heads& heads) {
  Machine machine(threads);
  const int64_t blocks = context / ops::kKvBlockTokens;
  const auto layer_bytes = [&](DType type) {
    return ops::kv_cache_bytes(type, blocks, heads.kv, heads.dim);
  };
  const int64_t layers = std::max<int64_t>(1, (int64_t{96} << 20) / layer_bytes(DType::kI8));
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  Rng rng(derive_key(2, "blocks"));
  rng.shuffle(std::span<int32_t>(table));
  const Tensor rows = random_tensor(machine, DType::kF32, Shape({context, heads.kv * heads.dim}));
  const Tensor q = random_tensor(machine, DType::kF32, Shape({1, heads.query * heads.dim}));
  const Tensor dst = random_tensor(machine, DType::kF32, Shape({1, heads.query * heads.dim}));
  std::array<Tensor, kTypes.size()> caches;
  std::array<int64_t, kTypes.size()> bytes{};
  const auto view_of = [&](size_t type, int64_t layer) {
    return ops::KvCacheView{caches[type].view().row_range(layer, layer + 1).data, kTypes[type],
                            blocks, heads.kv, heads.dim};
  };
  const auto context_count = static_cast<int32_t>(context);
  for (size_t type = 0; type < kTypes.size(); ++type) {
    bytes[type] = layers * layer_bytes(kTypes[type]);
    caches[type] =
        std::move(*machine.arena.make(DType::kU8, Shape({layers, layer_bytes(kTypes[type])})));
    for (int64_t layer = 0; layer < layers; ++layer) {
      ops::kv_append(*machine.stream, view_of(type, layer), rows.view(), rows.view(),
                     {{0, context_count, 0, table.data()}});
    }
    machine.stream->synchronize();
  }
  fmt::print("  attention, context {}, {} query heads over {} of {}, {} layers\n", context,
             heads.query, heads.kv, heads.dim, layers);
  const ops::AttentionShape shape{heads.query, heads.kv, heads.dim,
                                  1 / std::sqrt(static_cast<double>(heads.dim)), 0};
  compare(rounds, bytes, [&](size_t type) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      ops::attention_cached(*machine.stream, {dst.view(),
                                              q.view(),
                                              view_of(type, layer),
                                              {{0, 1, context_count - 1, table.data()}},
                                              shape});
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

void bench_model(int threads, int rounds, const std::string& size) {
  CpuDevice device({.thread_count = threads});
  const int64_t context_max = kContexts[std::size(kContexts) - 1];
  const cli::ModelShape shape{.size = size, .context = context_max};
  auto config = value_or_end(cli::make_llama_config(shape, cli::base_size(shape).vocab_size));
  config.stored_dtype = DType::kF32;
  const cli::TemporaryFolder folder = value_or_end(cli::TemporaryFolder::make());
  const Status written = cli::write_random_model(folder.path(), config, 1);
  JIGE_CHECK(written.has_value(), "{}", written.error().message);
  std::array<std::unique_ptr<model::InferenceModel>, kTypes.size()> models;
  for (size_t type = 0; type < kTypes.size(); ++type) {
    models[type] = value_or_end(model::InferenceModel::load(folder.path(), device,
                                                            {.compute = DType::kF32,
                                                             .kv_dtype = kTypes[type],
                                                             .format = ops::WeightFormat::kQ8,
                                                             .context_max = context_max,
                                                             .batch_tokens_max = 16}));
  }
  std::vector<int32_t> blocks(static_cast<size_t>(models[0]->sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (const auto& model : models) {
    const Status filled = cli::fill_cache(*model, context_max);
    JIGE_CHECK(filled.has_value(), "{}", filled.error().message);
  }
  for (const int64_t context : kContexts) {
    std::array<int64_t, kTypes.size()> bytes{};
    for (size_t type = 0; type < kTypes.size(); ++type) {
      const model::InferenceMemory memory =
          model::inference_memory(models[type]->architecture(), models[type]->sizes());
      bytes[type] = context * memory.kv_bytes_per_token + memory.weights.packed_bytes;
    }
    fmt::print("  a step of {}, context {}, {} layers, {} heads over {} of {}\n", size, context,
               config.layer_count, config.head_count, config.kv_head_count, config.head_dim);
    compare(rounds, bytes, [&](size_t type) {
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

void run(int threads, int rounds, const std::string& size) {
  fmt::print("{}, {}\n", cpu_features().model_name, isa_name(active_isa()));
  for (const Heads& heads : {Heads{8, 8, 64}, Heads{16, 4, 64}, Heads{32, 8, 128}}) {
    for (const int64_t context : kContexts) bench_attention(threads, rounds, context, heads);
  }
  bench_model(threads, rounds, size);
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  const std::string size = argc > 3 ? argv[3] : "110m";
  if (!jige::bench::are_sizes({size})) return 2;
  jige::bench::run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? std::atoi(argv[2]) : 15, size);
  return 0;
}

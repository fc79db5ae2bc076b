#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/device_flags.h"
#include "cli/layer_flags.h"
#include "cli/machine_rates.h"
#include "cli/random_model.h"
#include "model/inference.h"
#include "model/init.h"
#include "model/memory_plan.h"
#include "ops/linear.h"
#include "serve/roofline.h"
#include "train/executor.h"
#include "train/optimizer.h"

namespace jige::cli {
namespace {

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab_size) {
  Rng rng(derive_key(1, "bench tokens"));
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size))));
  }
  return tokens;
}

std::string model_text(const BenchOptions& options, const std::string& numbers) {
  return fmt::format("{} parameters, {}",
                     format_count(static_cast<double>(parameter_count(options.config))), numbers);
}

std::string trained_text(const BenchOptions& options) {
  return model_text(options, std::string(dtype_info(options.dtype).name));
}

std::string run_text(const BenchOptions& options) {
  return model_text(options, numbers_text(options.dtype, options.format, options.kv_dtype));
}

void set_share(const TimingInTurns& timing, const Reference& reference, Measurement* found) {
  found->share = timing.share;
  found->share_low = timing.share_low;
  found->share_high = timing.share_high;
  found->share_of = reference.name;
}

// One sequence over the whole cache of a model.
class Sequence {
 public:
  explicit Sequence(model::InferenceModel& model) : model_(model) {
    blocks_.resize(static_cast<size_t>(model.sizes().kv_block_count));
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  void restart() { length_ = 0; }

  // Goes back to where keep() was called.
  Status keep() {
    kept_ = length_;
    return copy_state(0, 1);
  }
  Status go_back() {
    length_ = kept_;
    return copy_state(1, 0);
  }

  // Runs tokens behind those before, in chunks; the likeliest next token.
  Result<int32_t> extend(std::span<const int32_t> tokens) {
    const auto chunk = static_cast<size_t>(model_.sizes().batch_tokens_max);
    int32_t likeliest = -1;
    while (!tokens.empty()) {
      const auto now = tokens.first(std::min(chunk, tokens.size()));
      tokens = tokens.subspan(now.size());
      const ops::SequenceSpan span{.row_count = static_cast<int32_t>(now.size()),
                                   .context_count = length_,
                                   .blocks = blocks_.data()};
      length_ += static_cast<int32_t>(now.size());
      model::InferenceBatch batch{
          .tokens = now, .sequences = std::span(&span, 1), .logit_rows = {}};
      if (!tokens.empty()) {
        JIGE_DO(model_.forward(batch));
        continue;
      }
      const int32_t last = span.row_count - 1;
      batch.logit_rows = std::span(&last, 1);
      const ops::RowDraw draw{.kind = ops::RowDraw::kLikeliest};
      JIGE_TRY(const model::LogitRows rows, model_.forward_drawn(batch, std::span(&draw, 1)));
      likeliest = rows.token(0);
    }
    if (likeliest < 0) return fail(Code::kInternal, "no token is likeliest");
    return likeliest;
  }

 private:
  // Of recurrent layers; of no token there is none.
  Status copy_state(int32_t src, int32_t dst) {
    if (kept_ == 0 || model_.sizes().state_count == 0) return {};
    return model_.copy_state(src, dst);
  }

  model::InferenceModel& model_;
  std::vector<int32_t> blocks_;
  int32_t length_ = 0;
  int32_t kept_ = 0;
};

Status bench_prefill(Sequence& sequence, std::span<const int32_t> prompt,
                     const model::Architecture& architecture, const BenchOptions& options,
                     const Reference& products, const MeasurementSink& sink) {
  const auto work = [&]() -> Status {
    sequence.restart();
    JIGE_TRY([[maybe_unused]] const int32_t token, sequence.extend(prompt));
    return {};
  };
  const auto count = static_cast<double>(prompt.size());
  // The head computes the last row only.
  const double flops = architecture.forward_flops(count, count / 2) -
                       architecture.head().forward_flops(count - 1, count / 2);
  JIGE_TRY(const TimingInTurns timing, time_in_turns(options.seconds, flops, work, products));
  Measurement found =
      make_measurement("prefill", fmt::format("{} tokens, {}", prompt.size(), run_text(options)),
                       count, "tokens/s", timing.work);
  set_share(timing, products, &found);
  sink(found);
  return {};
}

// Bytes that decoding reads from memory: every token's matrices, and its keys and values.
double decode_bytes(const model::InferenceModel& model, const BenchOptions& options) {
  const serve::RooflineModel roofline(model.architecture(), model.sizes());
  serve::RooflineSample sample;
  for (int64_t i = 0; i < options.new_tokens; ++i) {
    const ops::SequenceSpan span{.row_count = 1,
                                 .context_count = static_cast<int32_t>(options.decode_context + i)};
    roofline.add_forward(sample, std::span(&span, 1), 1);
  }
  return sample.bytes;
}

// What decoding is compared with, and the bytes that it reads of that.
struct DecodeReference {
  Reference rate;
  double bytes = 0;
};

Status bench_decode(Sequence& sequence, std::span<const int32_t> past, const BenchOptions& options,
                    const DecodeReference& reference, const MeasurementSink& sink) {
  sequence.restart();
  int32_t token = past.back();
  if (past.size() > 1) {
    JIGE_TRY(token, sequence.extend(past.first(past.size() - 1)));
  }
  JIGE_DO(sequence.keep());
  const auto work = [&]() -> Status {
    JIGE_DO(sequence.go_back());
    for (int64_t i = 0; i < options.new_tokens; ++i) {
      JIGE_TRY(token, sequence.extend(std::span(&token, 1)));
    }
    return {};
  };
  JIGE_TRY(const TimingInTurns timing,
           time_in_turns(options.seconds, reference.bytes, work, reference.rate));
  const auto count = static_cast<double>(options.new_tokens);
  const double token_bytes = reference.bytes / count;
  const std::string behind =
      options.decode_context > 0 ? fmt::format(" behind {}", options.decode_context) : "";
  Measurement found = make_measurement(
      "decode",
      fmt::format("{} tokens{} of {} each, {}", options.new_tokens, behind,
                  format_bytes(static_cast<int64_t>(token_bytes)), run_text(options)),
      count, "tokens/s", timing.work);
  found.unit_bytes = token_bytes;
  set_share(timing, reference.rate, &found);
  sink(found);
  return {};
}

// What a model's products are compared with, and what it runs on.
struct Products {
  std::unique_ptr<GemmProbe> probe;  // of the widest layer; none where the caller has its own
  Reference reference;
};

// The folder is gone once this returns: who is killed while measuring leaves nothing behind.
Result<std::unique_ptr<model::InferenceModel>> load_random_model(Device& device,
                                                                 const formats::ModelConfig& config,
                                                                 const BenchOptions& options) {
  JIGE_TRY(const TemporaryFolder folder, TemporaryFolder::make());
  JIGE_DO(write_random_model(folder.path(), config, 1));
  JIGE_TRY(const model::InferenceOptions fitted,
           serve::fit_layers(folder.path(),
                             {.compute = options.dtype,
                              .kv_dtype = options.kv_dtype,
                              .format = options.format,
                              .context_max = config.context_max,
                              .batch_tokens_max = 512,
                              .memory_bytes_max = options.memory_bytes_max},
                             options.layers, device.kind()));
  return model::InferenceModel::load(folder.path(), device, fitted);
}

model::WeightsOptions training_weights(const BenchOptions& options) {
  return {.compute = options.dtype,
          .use = model::PackFor::kTraining,
          .position_count = options.context};
}

Result<Products> make_products(Device& device, const BenchOptions& options, int64_t tokens) {
  Products made;
  if (options.products) {
    made.reference = *options.products;
    return made;
  }
  JIGE_TRY(made.probe, GemmProbe::create(device, options.dtype,
                                         {.tokens = std::min<int64_t>(tokens, 512),
                                          .inputs = options.config.hidden_size,
                                          .outputs = 2 * formats::inner_columns(options.config)}));
  made.reference = {.name = "of matrix products",
                    .units = made.probe->flops(),
                    .run = [probe = made.probe.get()] { probe->run(); }};
  return made;
}

}  // namespace

Status bench_inference(Device& device, const BenchOptions& options, const MeasurementSink& sink) {
  formats::ModelConfig config = options.config;
  config.stored_dtype = options.dtype;
  config.context_max = std::max(
      {config.context_max, options.prompt_tokens, options.decode_context + options.new_tokens});
  JIGE_TRY(const auto model, load_random_model(device, config, options));
  const double load_s = model->load_seconds();
  sink({.name = "load",
        .detail = run_text(options),
        .value = load_s,
        .slowest = load_s,
        .fastest = load_s,
        .unit = "s"});
  const std::vector<int32_t> prompt = random_tokens(options.prompt_tokens, config.vocab_size);
  Sequence sequence(*model);
  JIGE_TRY(const Products products, make_products(device, options, options.prompt_tokens));
  const std::string streamed = streamed_layers_text(*model);
  const MeasurementSink tell = [&](Measurement found) {
    if (!streamed.empty()) found.detail += ", " + streamed.substr(0, streamed.find(':'));
    sink(found);
  };
  JIGE_DO(
      bench_prefill(sequence, prompt, model->architecture(), options, products.reference, tell));
  const std::vector<int32_t> past = random_tokens(options.decode_context + 1, config.vocab_size);
  if (const model::LayerStream* const layers = model->layer_stream()) {
    JIGE_TRY(const auto copying, CopyProbe::create(device, streaming_bytes_min()));
    const auto bytes = static_cast<double>(layers->bytes() * options.new_tokens);
    return bench_decode(sequence, past, options,
                        {.rate = {.name = "of copying alone",
                                  .units = copying->bytes(),
                                  .run = [&] { copying->run(); }},
                         .bytes = bytes},
                        tell);
  }
  JIGE_TRY(const auto reading, ReadProbe::create(device, {.bytes = streaming_bytes(),
                                                          .seconds = options.seconds / 4,
                                                          .bytes_min = options.read_bytes_min}));
  return bench_decode(sequence, past, options,
                      {.rate = {.name = "of reading memory",
                                .units = reading->bytes(),
                                .run = [&] { reading->run(); }},
                       .bytes = decode_bytes(*model, options)},
                      sink);
}

namespace {

Result<std::unique_ptr<const model::Architecture>> trained_architecture(const BenchOptions& options,
                                                                        DeviceKind device) {
  return model::Architecture::create(options.config, {}, model::HeadKind::kLanguageModel, device);
}

}  // namespace

Status check_training_memory(const BenchOptions& options, DeviceKind device) {
  JIGE_TRY(const auto architecture, trained_architecture(options, device));
  const model::TrainingMemory memory =
      model::training_memory(*architecture, training_weights(options), options.batch_tokens);
  if (memory.total_bytes() <= options.memory_bytes_max) return {};
  const auto shown = [](int64_t bytes) { return format_bytes(bytes); };
  return fail(Code::kExhausted,
              "a training step takes {} (weights and gradients {}, moments {}, buffers for {} "
              "tokens {}), --memory-limit is {}; choose a smaller --batch-tokens or model",
              format_bytes_up(memory.total_bytes()), shown(memory.weights.total_bytes()),
              shown(memory.moments_bytes), options.batch_tokens,
              shown(memory.buffers.total_bytes()), shown(options.memory_bytes_max));
}

namespace {

Status time_steps(const BenchOptions& options, const std::function<Status()>& step,
                  const MeasurementSink& sink) {
  while (options.next_step()) {
    const StopWatch watch;
    JIGE_DO(step());
    const double seconds = watch.seconds();
    sink({.name = "step",
          .detail = trained_text(options),
          .value = seconds,
          .slowest = seconds,
          .fastest = seconds,
          .unit = "s"});
  }
  return {};
}

}  // namespace

Status bench_train(Device& device, const BenchOptions& options, const MachineRates& rates,
                   const MeasurementSink& sink) {
  JIGE_DO(check_training_memory(options, device.kind()));
  Arena arena(device, "training benchmark", options.memory_bytes_max);
  JIGE_TRY(const auto stream, device.make_stream());
  JIGE_TRY(const auto architecture, trained_architecture(options, device.kind()));
  JIGE_TRY(auto weights,
           model::ModelWeights::create(arena, *architecture, training_weights(options)));
  model::initialise_weights(weights, *stream, 1);
  JIGE_TRY(auto optimizer, train::Optimizer::create(arena, weights.trainable(), {}));
  JIGE_TRY(auto executor, train::Executor::create(arena, weights, options.batch_tokens));
  const auto tasks = train::one_device_tasks(architecture->node_count(), 1);

  train::HostBatch batch;
  batch.tokens = random_tokens(options.batch_tokens, options.config.vocab_size);
  batch.targets = batch.tokens;
  for (int64_t i = 0; i < options.batch_tokens; ++i) {
    batch.positions.push_back(static_cast<int32_t>(i % options.context));
  }
  for (int64_t begin = 0; begin < options.batch_tokens; begin += options.context) {
    batch.counts.push_back(
        static_cast<int32_t>(std::min(options.context, options.batch_tokens - begin)));
  }
  const auto loss_weight = 1.0f / static_cast<float>(options.batch_tokens);
  const auto work = [&]() -> Status {
    weights.start_gradients(*stream);
    executor.load(*stream, batch, {.loss_weight = loss_weight});
    executor.run(*stream, tasks, model::GradientUse::kStore);
    weights.finish_gradients(*stream);
    optimizer.step(*stream, {.learning_rate = 1e-4, .renew_packed = true});
    weights.pack_others(*stream);
    stream->synchronize();
    return {};
  };
  if (options.next_step) return time_steps(options, work, sink);
  JIGE_TRY(const Products products, make_products(device, options, options.batch_tokens));
  const auto tokens = static_cast<double>(options.batch_tokens);
  const double flops =
      3 * architecture->forward_flops(tokens, static_cast<double>(options.context) / 2);
  JIGE_TRY(const TimingInTurns timing,
           time_in_turns(options.seconds, flops, work, products.reference));
  Measurement found =
      make_measurement("train",
                       fmt::format("steps of {} x {} tokens, {}", batch.counts.size(),
                                   options.context, trained_text(options)),
                       tokens, "tokens/s", timing.work);
  set_share(timing, products.reference, &found);
  sink(found);
  const std::string vector_units =
      rates.fma_flops_per_s > 0
          ? fmt::format("; the vector units reach {:.1f}", rates.fma_flops_per_s / 1e9)
          : "";
  sink(make_measurement("train", "arithmetic of the same steps" + vector_units, flops / 1e9,
                        "GFLOP/s", timing.work));
  return {};
}

}  // namespace jige::cli

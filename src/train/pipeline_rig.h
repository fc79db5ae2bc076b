// What the tests of the pipeline executor share: a small model, the same micro-batches for
// everybody, training on one device without a schedule, and a rig that trains by one.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "model/init.h"
#include "plan/pipeline_generate.h"
#include "plan/pipeline_peak.h"
#include "train/executor.h"
#include "train/expert_bias.h"
#include "train/pipeline_costs.h"
#include "train/pipeline_executor.h"

namespace jige::train {

using plan::ClipMode;
using plan::OptimizerMode;
using plan::ScheduleRequest;

inline constexpr int64_t kRigTokens = 24;  // of a micro-batch at most
inline constexpr int64_t kContext = 16;
inline constexpr double kBiasRate = 0.01;  // of models whose choice of experts has a bias

inline formats::ModelConfig test_config(int64_t layers, bool tied = false) {
  formats::ModelConfig config =
      *formats::load_model_config(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/llama2");
  config.layer_count = layers;
  config.tied_embeddings = tied;
  return config;
}

inline HostBatch random_batch(Rng& rng, int64_t vocab, int64_t tokens) {
  HostBatch batch;
  while (tokens > 0) {
    const auto count = static_cast<int32_t>(
        std::min<int64_t>(tokens, 1 + static_cast<int64_t>(rng.below(kContext))));
    for (int32_t i = 0; i < count; ++i) {
      batch.tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab))));
      batch.positions.push_back(i);
      batch.targets.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab))));
    }
    batch.counts.push_back(count);
    tokens -= count;
  }
  return batch;
}

// The micro-batches of a step, the same for everybody; one of them may be empty.
inline std::vector<HostBatch> step_batches(int64_t step, int32_t count, int64_t vocab) {
  Rng rng(derive_key(static_cast<uint64_t>(step), "batches"));
  std::vector<HostBatch> batches;
  for (int32_t m = 0; m < count; ++m) {
    const bool empty = m > 0 && step % 5 == 4 && m == count - 1;
    batches.push_back(empty ? HostBatch{} : random_batch(rng, vocab, kRigTokens - m % 3));
  }
  return batches;
}

inline float loss_weight(const std::vector<HostBatch>& batches) {
  size_t count = 0;
  for (const HostBatch& batch : batches) count += batch.tokens.size();
  return static_cast<float>(1.0 / static_cast<double>(count));
}

// Dropout of a step, of its first token.
inline model::StepDropout dropout_of(double rate, int64_t step) {
  return {.rate = rate, .key = derive_key(3, "dropout", static_cast<uint64_t>(step))};
}

inline BatchTerms terms_of(const std::vector<HostBatch>& batches, double dropout = 0,
                           int64_t step = 0) {
  return {.loss_weight = loss_weight(batches),
          .dropout = dropout_of(dropout, step),
          .balance_weight = 0.3f * loss_weight(batches)};
}

// Everything that must not depend on the schedule.
struct Trace {
  std::vector<uint64_t> bits;
  int clipped = 0;
  void add(const PipelineStep& step) {
    add(step.loss_sum);
    add(step.optimizer.grad_norm);
    if (step.optimizer.grad_scale != 1) ++clipped;
    if (step.experts.expert_count == 0) return;
    add(step.experts.balance.value());
    for (const int64_t count : step.experts.counts) bits.push_back(static_cast<uint64_t>(count));
  }
  void add(double value) { bits.push_back(std::bit_cast<uint64_t>(value)); }
  void add(const TensorView& view) {
    uint64_t hash = 1469598103934665603u;
    const auto* words = static_cast<const uint32_t*>(view.data);
    const int64_t count = view.count();
    for (int64_t i = 0; i < count; ++i) hash = (hash ^ words[i]) * 1099511628211u;
    bits.push_back(hash);
  }
  void add(const Optimizer& optimizer) {
    for (size_t i = 0; i < optimizer.params().size(); ++i) {
      add(optimizer.params()[i].value);
      add(optimizer.moment1(i));
      add(optimizer.moment2(i));
    }
  }
  bool operator==(const Trace&) const = default;
};

inline OptimizerOptions optimizer_options() { return {.weight_decay = 0.1, .clip_norm = 0.9}; }
inline double rate_of(int64_t step) { return 0.01 / static_cast<double>(1 + step % 7); }

// One device, no schedule: train/executor.h and train/optimizer.h.
inline Trace train_alone(const model::Architecture& architecture, int32_t micro_batches,
                         int64_t steps, double dropout = 0) {
  CpuDevice cpu({.thread_count = 1});
  Arena arena(cpu, "alone");
  const auto stream = *cpu.make_stream();
  auto weights = *model::ModelWeights::create(
      arena, architecture, {.use = model::PackFor::kTraining, .position_count = kContext});
  model::initialise_weights(weights, *stream, 7);
  auto optimizer = *Optimizer::create(arena, weights.trainable(), optimizer_options());
  auto executor = *Executor::create(arena, weights, kRigTokens);
  ExpertMeter experts(architecture);
  Trace trace;
  for (int64_t step = 0; step < steps; ++step) {
    const auto batches = step_batches(step, micro_batches, architecture.config().vocab_size);
    ExactSum loss;
    weights.zero_gradients(*stream);
    BatchTerms terms = terms_of(batches, dropout, step);
    for (const HostBatch& batch : batches) {
      if (batch.tokens.empty()) continue;
      executor.load(*stream, batch, terms);
      terms.dropout.token_begin += static_cast<int64_t>(batch.tokens.size());
      executor.run(*stream, one_device_tasks(architecture.node_count(), 1));
      executor.add_losses(*stream, loss);
      executor.add_expert_use(*stream, experts);
    }
    weights.finish_gradients(*stream);
    const auto report = optimizer.step(*stream, {.learning_rate = rate_of(step)});
    weights.pack(*stream);
    const PipelineStep done{
        .loss_sum = loss.value(), .experts = experts.take(), .optimizer = report};
    move_choice_biases(*stream, weights, done.experts, kBiasRate);
    trace.add(done);
  }
  trace.add(optimizer);
  ExactSum loss;
  executor.load(*stream, step_batches(0, 1, architecture.config().vocab_size)[0], {});
  executor.evaluate(*stream);
  executor.add_losses(*stream, loss);
  trace.add(loss.value());
  return trace;
}

// A schedule with everything it runs on.
struct Rig {
  std::unique_ptr<PipelineMachine> machine;
  std::optional<model::ModelWeights> weights;
  std::optional<Optimizer> optimizer;
  std::unique_ptr<PipelineExecutor> executor;
  plan::PipelinePeaks planned;
  int64_t device_bytes = 0;  // cap of each device; 0: what is planned

  void build(const model::Architecture& architecture, const ScheduleRequest& request,
             PipelineExecutorOptions options = {}) {
    plan::PipelineSchedule schedule = *plan::generate_pipeline(request);
    model::WeightsOptions weights_options{.use = model::PackFor::kTraining,
                                          .position_count = kContext,
                                          .gradients = request.optimizer != OptimizerMode::kDevice};
    const plan::PipelineCosts costs =
        pipeline_costs(architecture, weights_options,
                       {.micro_batch_tokens = kRigTokens, .micro_batches = request.micro_batches});
    const auto graph = plan::PipelineGraph::create(schedule);
    planned = *plan::pipeline_peaks(schedule, *graph, plan::HappensBefore(*graph),
                                    plan::pipeline_buffers(schedule, costs));
    std::vector<int64_t> caps;
    for (const plan::MemoryPeak& peak : planned.devices) {
      caps.push_back(device_bytes > 0 ? device_bytes : peak.bytes);
    }
    auto made = PipelineMachine::create(std::move(schedule), costs, {.device_bytes = caps});
    ASSERT_TRUE(made) << made.error().message;
    machine = std::move(*made);
    weights_options.position_count = 0;  // devices have their own rope tables
    const auto arenas = machine->node_arenas();
    auto model_weights = model::ModelWeights::create(arenas, architecture, weights_options);
    ASSERT_TRUE(model_weights) << model_weights.error().message;
    weights.emplace(std::move(*model_weights));
    model::initialise_weights(*weights, machine->state_streams(), 7);
    optimizer.emplace(
        *Optimizer::create(machine->moment_arenas(), weights->trainable(), optimizer_options()));
    options.micro_batch_tokens = kRigTokens;
    options.position_count = kContext;
    auto run = PipelineExecutor::create(*machine, *weights, *optimizer, std::move(options));
    ASSERT_TRUE(run) << run.error().message;
    executor = std::move(*run);
  }
};

inline Trace train_by_schedule(const model::Architecture& architecture,
                               const ScheduleRequest& request, int64_t steps,
                               PipelineExecutorOptions options = {}, double dropout = 0) {
  Trace trace;
  Rig rig;
  rig.build(architecture, request, std::move(options));
  if (!rig.executor) return trace;
  for (int64_t step = 0; step < steps; ++step) {
    const auto batches =
        step_batches(step, request.micro_batches, architecture.config().vocab_size);
    const auto result =
        rig.executor->run({batches, terms_of(batches, dropout, step), rate_of(step), kBiasRate});
    EXPECT_TRUE(result) << result.error().message;
    if (!result) return trace;
    trace.add(*result);
  }
  trace.add(*rig.optimizer);
  for (int32_t d = 0; d < request.devices; ++d) {
    EXPECT_LE(rig.machine->device(d).arena().peak_bytes(),
              rig.planned.devices[static_cast<size_t>(d)].bytes);
  }
  ExactSum loss;
  const auto batch = step_batches(0, 1, architecture.config().vocab_size)[0];
  const Status evaluated = rig.executor->evaluate(batch, loss);
  EXPECT_TRUE(evaluated) << evaluated.error().message;
  trace.add(loss.value());
  return trace;
}

inline double trace_step(Rig& rig, const std::vector<HostBatch>& batches, double rate) {
  const auto result = rig.executor->run({batches, terms_of(batches), rate});
  EXPECT_TRUE(result) << result.error().message;
  return result ? result->loss_sum : 0;
}

inline std::string request_name(const ScheduleRequest& r) {
  return fmt::format("{} P={} M={} V={}/{} host={} R={} optimizer={} clip={}",
                     plan::schedule_name(r.kind), r.devices, r.micro_batches, r.forward_stages,
                     r.backward_stages, r.host_parameters, r.recompute,
                     plan::optimizer_name(r.optimizer), plan::clip_name(r.clip));
}

}  // namespace jige::train

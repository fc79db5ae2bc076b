// Steps that skip weight gradients of rows that hardly move on.
#include "train/row_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "model/init.h"
#include "train/one_device_engine.h"
#include "train/run_setup.h"
#include "train/stopped_run_test_support.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

TrainOptions gate_options(const TestFolder& folder, const std::string& out, SkipMode mode) {
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.out_folder = folder.file(out);
  options.config->ffn_size = 128;
  options.steps = 9;
  options.row_gate = {
      .most = 0.6, .mode = mode, .below = 1e6, .rows = 32, .warmup = 2, .refresh = 5, .rise = 9};
  return options;
}

// An engine with its data; every step is of the same sequences.
struct GateRig {
  explicit GateRig(const TrainOptions& options) {
    auto prepared = prepare_run(options, {}, device.team());
    EXPECT_TRUE(prepared) << prepared.error().message;
    setup.emplace(std::move(*prepared));
    auto made = OneDeviceEngine::create(device, *setup->architecture, setup->weights_options,
                                        setup->memory, setup->options);
    EXPECT_TRUE(made) << made.error().message;
    engine = std::move(*made);
    model::initialise_weights(engine->weights(), engine->streams(), 1);
    plan = StepPlanner(setup->dataset.training, setup->planner_options()).plan(0);
  }

  StepOutcome step(int64_t number, double learning_rate) {
    const auto outcome =
        engine->run(setup->dataset.corpus, plan,
                    {.step = number, .learning_rate = learning_rate, .dropout = {}});
    EXPECT_TRUE(outcome) << outcome.error().message;
    return *outcome;
  }

  // What a gate knows of the moves of all groups: as if all were e and a.
  void set_drift(float e, float a) {
    for (const RowGate::State& part : engine->row_gate()->state()) {
      auto* const values = part.view.as<float>();
      if (part.name == "loss") continue;
      for (int64_t i = 0; i < part.view.count(); ++i) values[i] = i % 16 < 8 ? e : a;
    }
  }

  CpuDevice device{CpuDeviceOptions{.thread_count = 1}};
  std::optional<RunSetup> setup;
  std::unique_ptr<StepEngine> engine;
  StepPlan plan;
};

using Floats = std::vector<float>;

Floats floats_of(const TensorView& view) {
  return {view.as<float>(), view.as<float>() + view.count()};
}

std::vector<Floats> whole_gradients(GateRig& rig) {
  std::vector<Floats> all;
  for (const auto& param : rig.engine->weights().trainable()) all.push_back(floats_of(param.grad));
  return all;
}

bool is_zero(const Floats& values, int64_t begin, int64_t count) {
  return std::all_of(values.begin() + begin, values.begin() + begin + count,
                     [](float value) { return value == 0; });
}

// How many steps of a run skipped something.
int64_t skipping_steps(const TrainOptions& options) {
  int64_t count = 0;
  for (const Json& record : log_records(options, "step")) {
    count += record["weight_gradient_share"] < 1.0;
  }
  return count;
}

TEST(RowGate, GivesTheSameBitsHoweverItIsRunAndStopped) {
  for (const SkipMode mode : {SkipMode::kFreeze, SkipMode::kScale}) {
    const TestFolder folder;
    const auto options_of = [&](const std::string& out) { return gate_options(folder, out, mode); };
    expect_bits_however_run(options_of, {std::nullopt}, "/model/model.safetensors");
    EXPECT_EQ(skipping_steps(options_of("way0")), 6);  // all but 1, 2 and 5
  }
  // Where the loss rises, from step 2 on, nothing is skipped.
  const TestFolder folder;
  const auto options_of = [&](const std::string& out) {
    TrainOptions options = gate_options(folder, out, SkipMode::kFreeze);
    options.row_gate->warmup = options.row_gate->refresh = 0;
    options.row_gate->rise = 1e-4;
    options.schedule.peak = 0.3;
    return options;
  };
  expect_bits_however_run(options_of, {std::nullopt}, "/model/model.safetensors");
  EXPECT_LT(skipping_steps(options_of("way0")), 8);
}

TEST(RowGate, WhereNothingIsSkippedTheBitsAreThoseWithoutIt) {
  const TestFolder folder;
  for (const SkipMode mode : {SkipMode::kFreeze, SkipMode::kScale}) {
    TrainOptions options = gate_options(folder, mode == SkipMode::kScale ? "a" : "b", mode);
    options.row_gate->refresh = 1;
    const auto with = train_until(options);
    ASSERT_TRUE(with) << with.error().message;
    const std::string model = bytes_of(options.out_folder + "/model/model.safetensors");
    options.row_gate.reset();
    options.out_folder += "-without";
    const auto without = train_until(options);
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_EQ(with->losses, without->losses);
    EXPECT_EQ(model, bytes_of(options.out_folder + "/model/model.safetensors"));
  }
}

// By group: with probability 1 - q its gradient times 1 / (1 - q), else zeros; so the mean over
// both is what it is without.
TEST(RowGate, TheMeanOverAllMasksIsTheWholeGradient) {
  const TestFolder folder;
  TrainOptions options = gate_options(folder, "out", SkipMode::kScale);
  options.row_gate->refresh = 0;
  options.row_gate->warmup = 1;
  GateRig rig(options);
  rig.step(1, 0);
  const std::vector<Floats> whole = whole_gradients(rig);
  rig.set_drift(0, 1);  // q is `most`
  const double q = options.row_gate->most;
  std::map<std::pair<size_t, int64_t>, int> computed;  // steps, by parameter and first row
  constexpr int kSteps = 60;
  double skipped_elements = 0;
  for (int64_t step = 2; step < 2 + kSteps; ++step) {
    const StepOutcome outcome = rig.step(step, 0);
    const std::vector<Floats> grads = whole_gradients(rig);
    double zeros = 0;
    for (size_t i = 0; i < grads.size(); ++i) {
      const auto& param = rig.engine->weights().trainable()[i];
      if (!may_skip_rows(rig.engine->weights().architecture(), param)) {
        EXPECT_EQ(grads[i], whole[i]) << param.spec->name;
        continue;
      }
      const int64_t columns = param.grad.columns();
      for (const ops::RowRange& rows : row_groups(param.grad.rows(), 32)) {
        const int64_t begin = rows.begin * columns;
        const int64_t count = rows.count() * columns;
        int& times = computed[{i, rows.begin}];
        if (is_zero(grads[i], begin, count)) {
          zeros += static_cast<double>(count);
          continue;
        }
        ++times;
        for (int64_t k = begin; k < begin + count; ++k) {
          const double mean = (1 - q) * grads[i][static_cast<size_t>(k)];
          EXPECT_NEAR(mean, whole[i][static_cast<size_t>(k)], 1e-6 * std::abs(mean));
        }
      }
    }
    EXPECT_EQ(zeros, outcome.rows->skipped_elements);  // counted as predicted
    skipped_elements += zeros;
  }
  // Within four standard deviations.
  double drawn = 0;
  for (const auto& [group, times] : computed) {
    EXPECT_GT(times, 0);
    EXPECT_LT(times, kSteps);
    drawn += times;
  }
  const double count = static_cast<double>(computed.size()) * kSteps;
  EXPECT_NEAR(drawn / count, 1 - q, 4 * std::sqrt(q * (1 - q) / count));
  EXPECT_GT(skipped_elements, 0);
}

TEST(RowGate, WhatIsFrozenStaysAndItsMomentsToo) {
  const TestFolder folder;
  TrainOptions options = gate_options(folder, "out", SkipMode::kFreeze);
  options.row_gate->refresh = 0;
  GateRig rig(options);
  rig.step(1, 1e-3);
  rig.set_drift(0, 1);
  Optimizer& optimizer = rig.engine->optimizer();
  const auto snapshot = [&] {
    std::vector<Floats> all;
    for (size_t i = 0; i < optimizer.params().size(); ++i) {
      all.push_back(floats_of(optimizer.params()[i].value));
      all.push_back(floats_of(optimizer.moment1(i)));
      all.push_back(floats_of(optimizer.moment2(i)));
    }
    return all;
  };
  const std::vector<Floats> before = snapshot();
  const auto drift = [&](size_t matrix) {
    return floats_of(rig.engine->row_gate()->state()[1 + matrix].view);
  };
  const StepOutcome outcome = rig.step(3, 1e-3);
  const std::vector<Floats> after = snapshot();
  const std::vector<Floats> grads = whole_gradients(rig);
  EXPECT_LT(outcome.rows->share, 1);
  size_t matrix = 0;
  for (size_t i = 0; i < grads.size(); ++i) {
    const auto& param = rig.engine->weights().trainable()[i];
    if (!may_skip_rows(rig.engine->weights().architecture(), param)) continue;
    // Of what was skipped nothing was learned.
    const Floats known = drift(matrix++);
    const auto groups = row_groups(param.grad.rows(), 32);
    for (size_t g = 0; g < groups.size(); ++g) {
      const int64_t columns = param.grad.columns();
      const bool skipped =
          is_zero(grads[i], groups[g].begin * columns, groups[g].count() * columns);
      EXPECT_EQ(known[16 * g + 8] == 1, skipped) << param.spec->name;
    }
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    for (size_t k = 0; k < grads[i].size(); ++k) {
      const bool frozen = grads[i][k] == 0 && may_skip_rows(rig.engine->weights().architecture(),
                                                            rig.engine->weights().trainable()[i]);
      for (const size_t part : {0, 1, 2}) {
        if (frozen) {
          EXPECT_EQ(before[3 * i + part][k], after[3 * i + part][k]);
        }
      }
      if (grads[i][k] != 0) {
        EXPECT_NE(before[3 * i][k], after[3 * i][k]);
      }
    }
  }
}

TEST(RowGate, SkipsWhatMovesToAndFroAndNotWhatMovesOn) {
  const TestFolder folder;
  TrainOptions options = gate_options(folder, "out", SkipMode::kFreeze);
  options.row_gate->below = 0.5;
  options.row_gate->rise = 0.1;
  GateRig rig(options);
  const auto share = [&](int64_t step) {
    rig.engine->row_gate()->start_step(step);
    return rig.engine->row_gate()->use().share;
  };
  EXPECT_EQ(share(3), 1);  // nothing is known yet
  rig.set_drift(0.5f, 1);
  for (int64_t step = 6; step < 10; ++step) EXPECT_EQ(share(step), 1);
  rig.set_drift(0, 1);
  for (int64_t step = 6; step < 10; ++step) EXPECT_LT(share(step), 1);
  EXPECT_EQ(share(2), 1);   // one of the first
  EXPECT_EQ(share(10), 1);  // all are computed again
  const std::vector<RowGate::State> state = rig.engine->row_gate()->state();
  auto* const loss = state[0].view.as<float>();
  loss[1] = 2;
  loss[0] = 2.1f;
  EXPECT_LT(share(11), 1);
  loss[0] = 2.3f;
  EXPECT_EQ(share(11), 1);
  EXPECT_TRUE(rig.engine->row_gate()->check_state("there"));
  state[1].view.as<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const Status bad = rig.engine->row_gate()->check_state("there");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::kCorrupt);
  EXPECT_THAT(bad.error().message, HasSubstr("there: what is known of the moves of model.layers"));
}

// What moves in one direction has c of 1 as it is measured, what comes back a small one.
TEST(RowGate, MeasuresHowStraightWeightsMove) {
  const TestFolder folder;
  TrainOptions options = gate_options(folder, "out", SkipMode::kFreeze);
  options.row_gate->warmup = 100;
  GateRig rig(options);
  RowGate& gate = *rig.engine->row_gate();
  const auto params = rig.engine->weights().trainable();
  const auto move = [&](size_t index, float by) {
    auto* const values = params[index].value.as<float>();
    for (int64_t k = 0; k < params[index].value.count(); ++k) values[k] += by;
  };
  std::vector<size_t> gated;
  for (size_t i = 0; i < params.size(); ++i) {
    if (may_skip_rows(rig.engine->weights().architecture(), params[i])) gated.push_back(i);
  }
  for (int64_t step = 1; step <= 200; ++step) {
    gate.start_step(step);
    move(gated[0], 0.25f);
    move(gated[1], step % 2 == 0 ? 0.25f : -0.25f);
    gate.end_step(1, true);
  }
  const auto c = [&](size_t matrix) {
    const float* const drift = gate.state()[1 + matrix].view.as<float>();
    return std::abs(drift[0]) / drift[8];
  };
  EXPECT_NEAR(c(0), 1, 1e-3);
  EXPECT_LT(c(1), 0.05);
  // A step that changed nothing tells nothing.
  const Floats loss = floats_of(gate.state()[0].view);
  const Floats known = floats_of(gate.state()[1].view);
  gate.start_step(201);
  gate.end_step(std::numeric_limits<double>::quiet_NaN(), false);
  EXPECT_EQ(loss, floats_of(gate.state()[0].view));
  EXPECT_EQ(known, floats_of(gate.state()[1].view));
}

TEST(RowGate, LastRowsBelongToTheLastGroup) {
  EXPECT_EQ(row_groups(70, 32), (std::vector<ops::RowRange>{{0, 32}, {32, 70}}));
  EXPECT_EQ(row_groups(20, 32), (std::vector<ops::RowRange>{{0, 20}}));
}

TEST(RowGate, IsPartOfWhatARunGoesOnUnder) {
  const TestFolder folder;
  TrainOptions options = gate_options(folder, "out", SkipMode::kFreeze);
  ASSERT_TRUE(train_until(options, 2));
  options.row_gate->rows = 64;
  const auto other = train_until(options);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("skip_converged.rows = 32, this run has 64"));
}

TEST(RowGate, RefusesWhatItCannotDo) {
  const TestFolder folder;
  const auto refused = [&](auto&& change) {
    TrainOptions options = gate_options(folder, "out", SkipMode::kFreeze);
    change(options);
    const Status status = validate(options);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_THAT(refused([](auto& o) { o.row_gate->most = 1; }), HasSubstr("--skip-converged is 1"));
  EXPECT_THAT(refused([](auto& o) { o.row_gate->rows = 40; }), HasSubstr("--skip-rows is 40"));
  EXPECT_THAT(refused([](auto& o) { o.row_gate->below = 0; }), HasSubstr("--skip-below is 0"));
  EXPECT_THAT(refused([](auto& o) { o.row_gate->rise = -1; }), HasSubstr("--skip-rise is -1"));
  EXPECT_THAT(refused([](auto& o) { o.gpus = {0}; }), HasSubstr("--device cuda"));
  EXPECT_THAT(refused([](auto& o) { o.pipeline = PipelineOptions{.devices = 2}; }),
              HasSubstr("--skip-converged with a pipeline of devices"));
  EXPECT_THAT(refused([](auto& o) { o.ranks = RankOptions{.size = 2}; }), HasSubstr("--ranks"));
  EXPECT_THAT(refused([](auto& o) { o.optimizer.moments = ops::MomentFormat::kQ8; }),
              HasSubstr("--moments q8"));
  EXPECT_THAT(refused([](auto& o) { o.ffn_dropout = 0.5; }), HasSubstr("--ffn-dropout"));
}

}  // namespace
}  // namespace jige::train

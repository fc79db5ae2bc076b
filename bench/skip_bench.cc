// Fine-tuning that skips weight gradients of rows that hardly move on, beside training without,
// random skipping, a lower learning rate and layers that are frozen.
//
// usage: skip_bench FOLDER TRAIN HELD_OUT [--steps N] [--seeds N] [--lr X] [--low X] [--most P]
//                   [--below C] [--rise X] [--rows N] [--warmup N] [--tokens N] [--every N]
//                   [--dtype f32|bf16]
// FOLDER is a model, the files are text or JSONL. For each seed all ways begin with its weights and
// take their steps in turns, of the same data; weight decay is 0, one thread computes. Random
// skipping skips each group of rows with the probability of what the one before it in the list
// skipped in the same step. A lower rate is --low of the other; frozen is the first half of the
// layers, of which W is not computed, while X and the update are. Held-out loss is measured every
// so many steps; "best" is the least. Times are the processor's, of a step over that of the same
// step without skipping, the median of the steps behind the warm-up; "W" is what was computed there
// of the weight gradients between embedding and head.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "bench_flags.h"
#include "formats/tensor_folder.h"
#include "tensor/cpu_device.h"
#include "timing.h"
#include "train/evaluate.h"
#include "train/one_device_engine.h"
#include "train/run_setup.h"

namespace jige::bench {
namespace {

struct SkipBenchOptions {
  train::TrainOptions run;
  int seeds = 3;
  double low = 0.5;  // times the rate
  train::RowGateOptions gate;
  int64_t every = 20;
};

enum class Control { kNone, kRandom, kLowRate, kFrozen };

struct SkipArm {
  const char* name;
  std::optional<train::SkipMode> mode;
  Control control = Control::kNone;
  std::vector<double> best = {}, last = {};  // by seed
  std::vector<double> times = {}, shares = {};
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// A model in training, one way.
class SkipRun {
 public:
  static Result<std::unique_ptr<SkipRun>> create(CpuDevice& device, train::RunSetup& setup,
                                                 const SkipBenchOptions& options,
                                                 const SkipArm& arm) {
    auto run = std::unique_ptr<SkipRun>(new SkipRun());
    train::TrainOptions own = setup.options;
    if (arm.mode) {
      own.row_gate = options.gate;
      own.row_gate->mode = *arm.mode;
    }
    run->random_ = arm.control == Control::kRandom;
    if (run->random_) own.row_gate->most = own.row_gate->below = kRandomMost;
    JIGE_TRY(run->engine_,
             train::OneDeviceEngine::create(device, *setup.architecture, setup.weights_options,
                                            setup.memory, own));
    model::ModelWeights& weights = run->engine_->weights();
    JIGE_TRY(const auto files, formats::TensorFolder::open(own.init_folder));
    JIGE_DO(model::load_weights(weights, run->engine_->streams(), files));
    const size_t layers = setup.architecture->layers().size();
    for (const model::NamedParam& param : weights.trainable()) {
      const bool frozen = arm.control == Control::kFrozen && param.node <= layers / 2;
      if (frozen && train::may_skip_rows(*setup.architecture, param)) {
        weights.set_gradient_rows(param, &run->none_);
      }
    }
    return run;
  }

  // Skips each group with this probability in the next step.
  void skip_at_random(double probability) {
    if (!random_) return;
    const auto c = static_cast<float>(kRandomMost - probability);
    for (const train::RowGate::State& part : engine_->row_gate()->state()) {
      if (part.name == "loss") continue;
      auto* const values = part.view.as<float>();
      for (int64_t i = 0; i < part.view.count(); ++i) values[i] = i % 16 < 8 ? c : 1;
    }
  }

  // The seconds it took, and what of W was computed.
  struct Step {
    double seconds = 0;
    double share = 1;
  };
  Result<Step> step(const train::RunSetup& setup, const train::StepPlan& plan, int64_t number,
                    double rate) {
    const double begin = processor_seconds();
    JIGE_TRY(const train::StepOutcome outcome,
             engine_->run(setup.dataset.corpus, plan,
                          {.step = number, .learning_rate = rate, .dropout = {}}));
    return Step{processor_seconds() - begin, outcome.rows ? outcome.rows->share : 1};
  }
  Result<double> held_out(const train::RunSetup& setup,
                          const std::vector<train::MicroBatch>& batches) {
    JIGE_TRY(const auto measured,
             train::evaluate(setup.dataset.held_out_corpus(), batches, *engine_, {}));
    return measured->loss;
  }

 private:
  SkipRun() = default;
  // q = most (1 - c / below) is most - c where both are one number.
  static constexpr double kRandomMost = 0.999;

  const std::vector<ops::RowRange> none_;
  std::unique_ptr<train::StepEngine> engine_;
  bool random_ = false;
};

Status bench_seed(CpuDevice& device, const SkipBenchOptions& options, uint64_t seed,
                  std::vector<SkipArm>& arms) {
  train::TrainOptions given = options.run;
  given.seed = seed;
  JIGE_TRY(train::RunSetup setup, train::prepare_run(given, {}, device.team()));
  std::vector<std::unique_ptr<SkipRun>> runs;
  for (SkipArm& arm : arms) {
    JIGE_TRY(auto run, SkipRun::create(device, setup, options, arm));
    runs.push_back(std::move(run));
    arm.best.push_back(1e9);
    arm.last.push_back(0);
  }
  train::StepPlanner planner(setup.dataset.training, setup.planner_options());
  const auto batches = train::choose_evaluation(setup.dataset.held_out,
                                                {.tokens_max = given.eval_tokens_max,
                                                 .micro_batch_tokens = given.micro_batch_tokens,
                                                 .seed = given.seed});
  uint64_t cursor = 0;
  for (int64_t number = 1; number <= given.steps; ++number) {
    const train::StepPlan plan = planner.plan(cursor);
    cursor = plan.cursor_end;
    const double rate = train::learning_rate(setup.options.schedule, number);
    double without = 0;
    double share = 1;
    for (size_t i = 0; i < arms.size(); ++i) {
      const bool low = arms[i].control == Control::kLowRate;
      runs[i]->skip_at_random(1 - share);
      JIGE_TRY(const SkipRun::Step step,
               runs[i]->step(setup, plan, number, low ? options.low * rate : rate));
      if (i == 0) without = step.seconds;
      share = step.share;
      if (number > options.gate.warmup) {
        arms[i].times.push_back(step.seconds / without);
        arms[i].shares.push_back(step.share);
      }
      if (number % options.every != 0 && number != given.steps) continue;
      JIGE_TRY(const double loss, runs[i]->held_out(setup, batches));
      arms[i].best.back() = std::min(arms[i].best.back(), loss);
      arms[i].last.back() = loss;
    }
  }
  return {};
}

int bench_skipping(const SkipBenchOptions& options) {
  using train::SkipMode;
  std::vector<SkipArm> arms = {{.name = "none", .mode = {}},
                               {.name = "freeze", .mode = SkipMode::kFreeze},
                               {"freeze, random", SkipMode::kFreeze, Control::kRandom},
                               {.name = "scale", .mode = SkipMode::kScale},
                               {"scale, random", SkipMode::kScale, Control::kRandom},
                               {"lower rate", {}, Control::kLowRate},
                               {"half of the layers", {}, Control::kFrozen}};
  CpuDevice device(CpuDeviceOptions{.thread_count = 1});
  for (int seed = 1; seed <= options.seeds; ++seed) {
    if (const Status done = bench_seed(device, options, static_cast<uint64_t>(seed), arms); !done) {
      fmt::print(stderr, "skip_bench: {}\n", done.error().message);
      return 1;
    }
  }
  fmt::print("{}, {}, {} steps, {} seeds, rate {}, skips up to {} below {}, groups of {}\n\n",
             isa_name(active_isa()), dtype_info(options.run.compute).name, options.run.steps,
             options.seeds, options.run.schedule.peak, options.gate.most, options.gate.below,
             options.gate.rows);
  fmt::print("{:<20} {:>6} {:>6} {:>7} {:>7}  {}\n", "", "W", "time", "best", "last",
             "best by seed");
  for (const SkipArm& arm : arms) {
    std::string seeds;
    for (const double best : arm.best) seeds += fmt::format(" {:.3f}", best);
    fmt::print("{:<20} {:>6.3f} {:>6.3f} {:>7.4f} {:>7.4f} {}\n", arm.name,
               arm.control == Control::kFrozen ? 0.5 : mean_of(arm.shares), median(arm.times),
               mean_of(arm.best), mean_of(arm.last), seeds);
  }
  return 0;
}

}  // namespace
}  // namespace jige::bench

int main(int argc, char** argv) {
  jige::bench::SkipBenchOptions options;
  jige::train::TrainOptions& run = options.run;
  run.compute = jige::DType::kBF16;
  run.steps = 200;
  run.step_tokens = run.micro_batch_tokens = 2048;
  run.schedule.peak = 1e-3;
  run.optimizer.weight_decay = 0;
  run.thread_count = 1;
  options.gate.rows = 32;
  options.gate.warmup = 40;
  std::string folder, texts, held_out;
  CLI::App app("Runs that skip weight gradients, beside runs that do not", "skip_bench");
  app.add_option("FOLDER", folder, "model folder")->required();
  app.add_option("TRAIN", texts, "what is learned from")->required();
  app.add_option("HELD_OUT", held_out, "what loss is measured on")->required();
  jige::bench::declare_positive(app, "--steps", run.steps, "of a run");
  jige::bench::declare_positive(app, "--seeds", options.seeds, "runs of each kind");
  jige::bench::declare_positive(app, "--lr", run.schedule.peak, "learning rate");
  jige::bench::declare_positive(app, "--low", options.low, "times the rate, of the low one");
  app.add_option("--most", options.gate.most, "part of the steps that a group is skipped in")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  jige::bench::declare_positive(app, "--below", options.gate.below,
                                "how straight what is skipped is");
  jige::bench::declare_positive(app, "--rise", options.gate.rise, "of the loss that ends skipping");
  jige::bench::declare_positive(app, "--rows", options.gate.rows, "of a group");
  jige::bench::declare_positive(app, "--warmup", options.gate.warmup, "steps that skip nothing");
  jige::bench::declare_positive(app, "--tokens", run.step_tokens, "of a step");
  jige::bench::declare_positive(app, "--every", options.every, "steps between measurements");
  jige::bench::declare_dtype(app, "--dtype", run.compute);
  CLI11_PARSE(app, argc, argv);
  run.micro_batch_tokens = run.step_tokens;
  run.init_folder = folder;
  run.data.files = {texts};
  run.data.eval_files = {held_out};
  run.schedule.warmup_steps = 10;
  run.out_folder = "skip_bench.tmp";  // of tokenised data
  return jige::bench::bench_skipping(options);
}

// jige bench train-schedules: schedules of a training step beside one another.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/counted.h"
#include "base/cpu.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/gpu_list.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/schedule_runs.h"
#include "cli/suggest.h"
#include "ops/linear_cuda.h"
#include "tensor/cuda_device.h"
#include "train/options.h"

namespace jige::cli {
namespace {

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (int k = 0; k < plan::kScheduleKindCount; ++k) {
    names.emplace_back(plan::schedule_name(static_cast<plan::ScheduleKind>(k)));
  }
  return names;
}

class BenchSchedulesCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Runs every schedule of a training step with every place of its optimizer, on one small "
        "model of equal blocks, in turns: medians with the spread. Without --timed, training is "
        "real, on logical devices that share this machine's cores: losses must agree to the bit, "
        "memory is what arenas counted, and times say nothing about which schedule is better. On "
        "--device cuda the devices are parts of a GPU, or of several in turns: a row whose "
        "optimizer is on the device is "
        "beside what it costs to keep parameters and optimizer on the host. With "
        "--timed, tasks take a given time instead of computing and copies move real bytes through "
        "links of a limited rate: what is measured is the executor, beside its prediction.");
    flags.texts("[SCHEDULE]...", schedules_,
                fmt::format("{}; all if none, and with --timed interleaved, mobius and spipe",
                            fmt::join(kind_names(), ", ")));
    flags.section("Model and machine");
    flags.integer("--devices N", devices_, {.min = 1, .max = 64}, "logical devices");
    flags.integer("--micro-batches N", micro_batches_, {.min = 1, .max = 4096}, "of a step");
    flags.integer("--blocks N", blocks_, {.min = 3, .max = 1024},
                  "embedding, layers and head, of one size");
    flags.integer("--width N", width_, {.min = 16, .max = 4096}, "of the model");
    flags.text("--config FILE", config_file_,
               "the model of a Hugging Face config.json instead, with random weights");
    flags.choice("--dtype NAME", dtype_, {"f32", "bf16"}, "type of matrix products");
    flags.text("--device NAME", device_.device,
               "where to compute: cpu, cuda (the first NVIDIA GPU), cuda:N (GPU N), or several "
               "GPUs, which the devices take in turns, as cuda:0,1 or cuda:all");
    flags.number("--clip X", options_.clip_norm, {.min = 0},
                 "clip the gradient's norm at this value; 0: off. Where it is above, speculating "
                 "schedules update twice");
    flags.integer("--micro-batch-tokens N", options_.micro_batch_tokens, {.min = 1, .max = 1 << 20},
                  "tokens that pass through the model at once");
    flags.integer("--context N", options_.context, {.min = 1, .max = 1 << 20},
                  "tokens of a sequence");
    flags.bytes("--device-memory SIZE", options_.device_bytes,
                "budget of each device; without it what each schedule needs");
    flags.integer("--forward-stages N", forward_stages_, {.min = 1, .max = 1024},
                  "pieces of the model on each device, where the schedule has a choice");
    flags.integer("--backward-stages N", backward_stages_, {.min = 1, .max = 1024},
                  "the same for spipe's backward passes");
    flags.section("Timed devices");
    flags.toggle("--timed", timed_, "hold queues instead of computing, and time the ablation too");
    flags.number("--forward-ms X", forward_ms_, {.min = 0.01, .max = 1e4},
                 "forward pass of a block; recomputation and both backward passes take the same");
    flags.number("--fetch X", ratios_.fetch, {.min = 0, .above_min = true},
                 "time of fetching a block's parameters, in forward passes of a block");
    flags.number("--offload X", ratios_.offload, {.min = 0, .above_min = true},
                 "of taking its gradient to the host");
    flags.number("--update X", ratios_.update, {.min = 0, .above_min = true},
                 "of its optimizer step on the host");
    flags.number("--message X", ratios_.message, {.min = 0, .above_min = true},
                 "of a message between devices");
    flags.section("Amounts");
    flags.integer("--rounds N", counts_.rounds, {.min = 1, .max = 1000},
                  "times that every row is built and run in its turn");
    flags.integer("--steps N", counts_.steps, {.min = 1, .max = 1000},
                  "steps that count of each round; one before them does not");
    output_.declare(flags, "one JSON line for what is compared, then one a row");
    flags.example("jige bench train-schedules");
    flags.example("jige bench train-schedules mobius spipe --device-memory 4MiB");
    flags.example("jige bench train-schedules --timed --rounds 10");
    flags.example(
        "jige bench train-schedules mobius --device cuda --devices 1 --config llama/config.json "
        "--dtype bf16 --micro-batch-tokens 4096 --context 2048 --forward-stages 9");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_DO(choose_model());
    JIGE_TRY(const auto gpus, open_gpus());
    for (const auto& gpu : gpus) options_.gpus.push_back(gpu.get());
    if (!gpus.empty()) {
      options_.optimizer_threads = train::optimizer_threads_beside_gpu(static_cast<int>(devices_));
    }
    MatrixRequest matrix{.devices = static_cast<int32_t>(devices_),
                         .micro_batches = static_cast<int32_t>(micro_batches_),
                         .block_count = static_cast<int32_t>(blocks_),
                         .forward_stages = static_cast<int32_t>(forward_stages_),
                         .backward_stages = static_cast<int32_t>(backward_stages_)};
    JIGE_TRY(matrix.kinds, chosen_kinds());
    if (timed_) {
      ratios_.forward_s = forward_ms_ * 1e-3;
      options_.timed = ratios_;
      matrix.optimizers = {plan::OptimizerMode::kSync, plan::OptimizerMode::kAsync};
    } else {
      matrix.optimizers = {plan::OptimizerMode::kDevice, plan::OptimizerMode::kSync,
                           plan::OptimizerMode::kAsync};
    }
    JIGE_TRY(std::vector<ScheduleRow> rows, schedule_matrix(matrix));
    const size_t matrix_count = rows.size();
    if (timed_ && schedules_.empty()) {
      JIGE_TRY(std::vector<ScheduleRow> steps, schedule_ablation(matrix));
      for (ScheduleRow& step : steps) rows.push_back(std::move(step));
    }
    print_head();
    JIGE_TRY(const std::vector<ScheduleRuns> runs,
             run_schedules(std::move(rows), options_, counts_,
                           [](const std::string& what) { log_debug("{}", what); }));
    print(runs, matrix_count);
    const bool any =
        std::ranges::any_of(runs, [](const ScheduleRuns& row) { return row.refusal.empty(); });
    if (any) return {};
    return fail(Code::kExhausted, "no schedule runs within --device-memory {}",
                options_.device_bytes);
  }

 private:
  Status choose_model() {
    JIGE_TRY(options_.compute, parse_dtype(dtype_));
    if (config_file_.empty()) {
      JIGE_TRY(options_.config, train::even_blocks_config(blocks_, width_));
      return {};
    }
    JIGE_TRY(options_.config, load_config_file("--config", config_file_));
    blocks_ = options_.config.layer_count + 2;
    return {};
  }

  Result<std::vector<std::unique_ptr<Device>>> open_gpus() const {
    std::vector<std::unique_ptr<Device>> gpus;
    JIGE_TRY(const std::vector<int> named, named_gpus(device_.device));
    for (const int index : named) {
      auto gpu = make_cuda_device(index);
      if (!gpu) return with_context(std::move(gpu.error()), "--device {}", device_.device);
      gpus.push_back(std::move(*gpu));
    }
    if (!gpus.empty()) JIGE_DO(ops::cuda_matmul_ready());
    return gpus;
  }

  Result<std::vector<plan::ScheduleKind>> chosen_kinds() const {
    const std::vector<std::string> names = kind_names();
    std::vector<std::string> wanted = schedules_;
    if (wanted.empty() && timed_) wanted = {"interleaved", "mobius", "spipe"};
    if (wanted.empty()) wanted = names;
    std::vector<plan::ScheduleKind> kinds;
    for (const std::string& name : wanted) {
      const auto found = std::ranges::find(names, name);
      if (found == names.end()) {
        return fail(Code::kInvalidArgument, "SCHEDULE: \"{}\" is not one of {}{}", name,
                    fmt::join(names, ", "), suggestion(name, names));
      }
      kinds.push_back(static_cast<plan::ScheduleKind>(found - names.begin()));
    }
    return kinds;
  }

  // What a reader must know to take the figures for what they are.
  std::string label() const {
    if (timed_) {
      return "timed logical devices: tasks hold their queues for a given time and compute nothing, "
             "copies move real bytes at a limited rate";
    }
    if (!options_.gpus.empty()) {
      return fmt::format(
          "real training on logical devices that are parts of {}, with {} for updates",
          device_.device, counted(options_.optimizer_threads, "thread"));
    }
    return fmt::format(
        "real training on logical CPU devices that share {} cores: losses and memory count, times "
        "do not tell schedules apart",
        cpu_features().logical_count);
  }

  void print_head() const {
    if (output_.json) {
      Json head{{"machine", cpu_features().model_name},
                {"threads", cpu_features().logical_count},
                {"version", kVersion},
                {"what", label()},
                {"devices", devices_},
                {"micro_batches", micro_batches_},
                {"blocks", blocks_},
                {"micro_batch_tokens", options_.micro_batch_tokens},
                {"rounds", counts_.rounds},
                {"steps", counts_.steps}};
      if (timed_) {
        head["forward_s"] = ratios_.forward_s;
        head["ratios"] = {{"fetch", ratios_.fetch},
                          {"offload", ratios_.offload},
                          {"update", ratios_.update},
                          {"message", ratios_.message}};
      }
      print_json(head);
      return;
    }
    print_text(fmt::format("{}, {}, {}; {} of {}\n{}\n", counted(devices_, "device"),
                           counted(micro_batches_, "micro-batch"), counted(blocks_, "block"),
                           counted(counts_.rounds, "round"), counted(counts_.steps, "step"),
                           label()));
    if (!timed_) return;
    print_text(fmt::format(
        "a block: F, R, X and W {:g} ms each, fetch {:g}, gradient {:g}, update {:g}, message {:g} "
        "of that\n",
        forward_ms_, ratios_.fetch, ratios_.offload, ratios_.update, ratios_.message));
  }

  void print(const std::vector<ScheduleRuns>& runs, size_t matrix_count) const {
    if (output_.json) {
      for (const ScheduleRuns& row : runs) print_json(runs_json(row, timed_));
      return;
    }
    if (!timed_) {
      print_text("\n" + real_runs_table(runs) +
                 (options_.compute == DType::kF32
                      ? "\nThe losses of all rows that ran have the same bits, in every round.\n"
                      : ""));
      return;
    }
    const auto ablation = runs.begin() + static_cast<std::ptrdiff_t>(matrix_count);
    print_text("\n" + timed_runs_table({runs.begin(), ablation}));
    if (ablation == runs.end()) return;
    print_text("\nFrom Mobius to SPipe, one step at a time:\n" +
               timed_runs_table({ablation, runs.end()}) + "\nHow a schedule says each:\n");
    for (auto row = ablation; row != runs.end(); ++row) {
      print_text(fmt::format("  {:<22}{}\n", row->row.name, row->row.how));
    }
  }

  std::vector<std::string> schedules_;
  std::string config_file_, dtype_ = "f32";
  DeviceFlags device_;
  int64_t devices_ = 4, micro_batches_ = 8, blocks_ = 24, width_ = 64;
  int64_t forward_stages_ = 2, backward_stages_ = 6;
  bool timed_ = false;
  double forward_ms_ = 5;
  train::TimedRatios ratios_;
  train::RigOptions options_;
  RunCounts counts_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_schedules_command() {
  return std::make_unique<BenchSchedulesCommand>();
}

}  // namespace jige::cli

// jige train: trains a model from nothing, or fine-tunes one.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/gpu_list.h"
#include "cli/interrupt.h"
#include "cli/new_model.h"
#include "cli/output.h"
#include "cli/train_checks.h"
#include "cli/train_command.h"
#include "cli/train_flags.h"
#include "cli/train_rank_flags.h"
#include "cli/train_report.h"
#include "tensor/cuda_device.h"
#include "train/rank_exchange.h"
#include "train/records.h"
#include "train/run_source.h"
#include "train/step_flops.h"
#include "train/trainer.h"

namespace jige::cli {
namespace {

// The part of the rate of matrix products that a step reaches, for the prediction of times.
constexpr double kTypicalShare = 0.5;

class TrainCommand final : public Command {
 public:
  explicit TrainCommand(std::function<void(train::TrainOptions&)> adjust)
      : adjust_(std::move(adjust)) {}

  void declare(Flags& flags) override {
    flags.about(
        "Trains a model from text and writes it as a Hugging Face folder, OUT/model. Without "
        "--from "
        "it trains a tokenizer and a Llama from nothing. A run that was stopped, or killed, goes "
        "on "
        "from its last checkpoint when the same command is given again. Ctrl-C, SIGTERM or the "
        "end of the terminal stops behind a checkpoint; with nohup a run outlives the terminal.");
    flags_ = &flags;
    train_.declare(flags);
    ranks_.declare(flags);
    device_.declare(flags, true);
    flags.toggle("--plan-only", plan_only_,
                 "say what memory and time it will take, and stop; the data is read for it");
    output_.declare(flags, "JSON lines: every step, measurement and checkpoint, then the result");
    flags.example("jige train --data stories.txt --out runs/first");
    flags.example("jige train --data chats.jsonl --size 15m --epochs 2 --lr 1e-3 --out runs/chat");
    flags.example("jige train --data stories.txt --ranks 4 --out runs/four");
    flags.example(
        "jige train --from models/llama --device cuda:0,1,2,3 --data mine.jsonl --out runs/all");
    flags.example("jige train --from models/llama --lora --data mine.jsonl --out runs/mine");
    flags.example(
        "jige train --from models/llama --lora --quantize q4 --data a.jsonl --out runs/q4");
    flags.example("jige train --from runs/chat --dpo --data pairs.jsonl --out runs/preferred");
    flags.example(
        "jige train --from runs/chat --grpo --reward number --data sums.jsonl --out runs/sums");
  }

  Status run() override {
    output_.apply();
    outlive_readers();
    const InterruptScope interrupts;
    if (plan_only_) {
      JIGE_TRY(const auto ranks, ranks_.planned());
      return run_rank(ranks);
    }
    return ranks_.run([this](const auto& ranks) { return run_rank(ranks); });
  }

 private:
  // Those that are named; of a rank, the one that it takes. From here on device_ has the first.
  Result<std::vector<int>> choose_gpus(std::optional<train::RankOptions>& ranks) {
    JIGE_TRY(std::vector<int> gpus, named_gpus(device_.device));
    if (gpus.empty()) return gpus;
    if (ranks && gpus.size() > 1) {
      return fail(Code::kUnsupported,
                  "--device {} is for the devices of one process's pipeline; ranks take a "
                  "machine's GPUs in turns with --device cuda",
                  device_.device);
    }
    if (device_.device != "cuda") device_.device = gpus_text({gpus.front()});
    if (!ranks) return gpus;
    JIGE_DO(choose_rank_gpu(*ranks));
    JIGE_TRY(const std::optional<int> own, device_.gpu_index());
    return std::vector{*own};
  }

  Status choose_rank_gpu(train::RankOptions& ranks) {
    auto gpus = list_cuda_devices();
    if (!gpus) return with_context(std::move(gpus.error()), "--device {}", device_.device);
    share_out_gpus(static_cast<int>(gpus->size()), device_, ranks);
    return {};
  }

  Status run_rank(std::optional<train::RankOptions> ranks) {
    if (ranks && ranks->rank != 0) hush();
    JIGE_TRY(const std::vector<int> gpus, choose_gpus(ranks));
    JIGE_TRY(train::TrainOptions options, train_.to_options(*flags_, gpus));
    JIGE_DO(check_data_files(options.data));
    options.ranks = ranks;
    options.thread_count = static_cast<int>(device_.threads);
    if (options.thread_count == 0 && ranks) {
      options.thread_count = std::max(1, cpu_features().logical_count / ranks->local);
    }
    options.memory_limit_bytes = device_.memory_limit_bytes;
    options.program_version = kVersion;
    JIGE_DO(train::validate_ranks(options));
    if (options.dpo || options.grpo) JIGE_DO(check_tuning(options));
    const auto prepare = [&] { return prepare_model(options); };
    const bool several = ranks && ranks->group;
    JIGE_DO(several ? train::after_rank_0(*ranks->group, prepare) : prepare());
    JIGE_TRY(options.gemm_flops_per_s, measure_training_rate(device_, options));
    if (adjust_) adjust_(options);
    return plan_only_ ? plan(options) : train(options);
  }

  // Of preferences and rewards, before a model is made or searched for.
  Status check_tuning(train::TrainOptions options) const {
    options.config.reset();
    if (options.init_folder.empty())
      options.init_folder = train::recorded_source(options.out_folder);
    JIGE_DO(train::validate_preference(options));
    return train::validate_grpo(options);
  }

  // Rank 0 speaks for all.
  void hush() {
    output_ = {.json = false, .quiet = true};
    set_log_level(LogLevel::kError);
  }

  // A run that was begun from a model goes on from it without being told again.
  Status find_source(train::TrainOptions& options) const {
    if (train_.names_model(*flags_) || options.resume == train::ResumeMode::kNever) return {};
    const std::string adapter = train::recorded_adapter_flags(options.out_folder);
    if (!adapter.empty()) {
      return fail(Code::kInvalidArgument,
                  "{}: this run trains an adapter; continue with {}, or start anew in another "
                  "folder",
                  options.out_folder, adapter);
    }
    options.init_folder = train::recorded_source(options.out_folder);
    std::error_code error;
    if (options.init_folder.empty() || std::filesystem::exists(options.init_folder, error)) {
      return {};
    }
    return fail(Code::kNotFound,
                "{}: the run in {} was begun from this model, which is not there any more; say "
                "with --from where it is now",
                options.init_folder, options.out_folder);
  }

  Status prepare_model(train::TrainOptions& options) const {
    // Before a tokenizer is trained and the data is read, which can take long.
    if (!options.ranks || options.ranks->rank == 0) {
      JIGE_DO(check_folders(options.out_folder));
      JIGE_DO(check_no_model(options.out_folder));
      JIGE_DO(train::check_resume(options.out_folder, options.resume));
    }
    JIGE_DO(find_source(options));
    if (options.init_folder.empty()) return prepare_new_model(train_, output_.quiet, options);
    if (!train_.tokenizer_folder.empty()) options.tokenizer_folder = train_.tokenizer_folder;
    return {};
  }

  Status plan(const train::TrainOptions& options) const {
    JIGE_TRY(const ComputeDevices devices, device_.make());
    TrainReport report(output_);
    JIGE_TRY(const train::RunSetup setup,
             train::prepare_run(options, report.callbacks(), devices.team()));
    const auto step_tokens =
        static_cast<double>(std::min(setup.options.step_tokens, setup.plan.epoch_tokens));
    const double context_mean = static_cast<double>(setup.plan.context) / 2;
    const double flops =
        setup.options.grpo
            ? reward_flops(setup)
            : train::training_flops(*setup.architecture, setup.options, step_tokens, context_mean);
    // The first weights score all pairs before the first step.
    const double reference_flops =
        setup.options.dpo ? setup.architecture->forward_flops(
                                static_cast<double>(setup.dataset.all_input_count()), context_mean)
                          : 0;
    const double seconds = (static_cast<double>(setup.plan.steps_total) * flops + reference_flops) /
                           (kTypicalShare * options.gemm_flops_per_s);
    if (output_.json) {
      Json json = train::plan_json(setup.plan);
      json["seconds"] = seconds;
      json["gemm_flops_per_s"] = options.gemm_flops_per_s;
      print_json(json);
    } else {
      print_text(plan_text(setup.plan, seconds));
    }
    return {};
  }

  // Of a step whose answers are as long as they may be: drawn, and learned from in every update.
  static double reward_flops(const train::RunSetup& setup) {
    const train::GrpoOptions& grpo = *setup.options.grpo;
    const double prompt = static_cast<double>(setup.plan.epoch_tokens) /
                          static_cast<double>(setup.plan.sequence_count);
    const auto answer = static_cast<double>(grpo.draw.tokens_max);
    const auto answers = static_cast<double>(grpo.prompts_per_step * grpo.group);
    const double context = (prompt + answer) / 2;
    return setup.architecture->forward_flops(answers * answer, context) +
           static_cast<double>(grpo.updates) *
               train::training_flops(*setup.architecture, setup.options,
                                     answers * (prompt + answer), context);
  }

  Status train(const train::TrainOptions& options) const {
    TrainReport report(output_);
    JIGE_TRY(const auto trainer, train::Trainer::create(options, report.callbacks()));
    JIGE_TRY(const train::TrainResult result, trainer->run());
    report.finish(result);
    if (!result.stopped) return {};
    return fail(Code::kCancelled,
                "after step {} of {}, with a checkpoint; the same command goes on "
                "from there",
                result.steps_done, result.steps_total);
  }

  std::function<void(train::TrainOptions&)> adjust_;
  const Flags* flags_ = nullptr;
  TrainFlags train_;
  TrainRankFlags ranks_;
  DeviceFlags device_;
  bool plan_only_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_train_command() { return std::make_unique<TrainCommand>(nullptr); }

std::unique_ptr<Command> make_adjusted_train_command(
    std::function<void(train::TrainOptions&)> adjust) {
  return std::make_unique<TrainCommand>(std::move(adjust));
}

}  // namespace jige::cli

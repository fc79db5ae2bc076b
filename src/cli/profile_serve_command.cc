// jige profile serve: what an iteration of the serving engine takes with a model on this machine.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/bench_serve_model.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/step_profiler.h"
#include "cli/table.h"
#include "sim/step_profile.h"
#include "sim/workload.h"

namespace jige::cli {
namespace {

class ProfileServeCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Times iterations of the serving engine with a model: next tokens, prompts, pieces of "
        "prompts and mixtures, in front of short and long contexts, all in turns. A model of the "
        "time is fitted to them, and its error told on cells that it has not seen. `jige simulate "
        "serve --profile` reads the file. Several GPUs share the model, with one batch at work.");
    flags.text("[MODEL]", model_.folder, "a model folder; or --random");
    model_.declare_form(flags);
    flags.text("-o,--output FILE", output_path_, "write the profile here");
    flags.number("--seconds S", seconds_, {.min = 0.1, .max = 1e5},
                 "time to measure; a slow model takes longer, once through a coarser grid");
    flags.section("What is measured");
    flags.integer("--batch-tokens N", batch_tokens_, {.min = 16, .max = 1 << 16},
                  "rows of one forward at most, as of `jige serve`");
    flags.integer("--max-batch N", batch_requests_, {.min = 1, .max = 4096},
                  "answers that are made at once at most");
    flags.integer("--kv-tokens N", kv_tokens_, {.min = 64, .max = int64_t{1} << 30},
                  "tokens the key/value cache holds");
    flags.integer("--context N", context_, {.min = 32, .max = sim::kLengthMax},
                  "tokens of the longest prompt and answer");
    model_.device.may_be_several = true;
    model_.device.declare(flags, true);
    output_.declare(flags, "the profile as one JSON line");
    flags.example("jige profile serve models/llama-3.2-1b -o step.json");
    flags.example("jige profile serve --random 15m --seconds 20 --json");
    flags.example("jige profile serve models/llama-3.1-8b --device cuda:0,cuda:1 -o step.json");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    if (model_.folder.empty() == model_.random.empty()) {
      return fail(Code::kInvalidArgument, "give one of MODEL and --random SIZE");
    }
    JIGE_DO(check_output_files({output_path_}));
    JIGE_TRY(BenchServeModel served,
             model_.load(context_, (kv_tokens_ + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens,
                         batch_tokens_, batch_requests_));
    JIGE_TRY(const sim::StepProfile profile,
             show_profiling(served, seconds_, output_.quiet || output_.json));
    const Json json = sim::step_profile_to_json(profile);
    if (!output_path_.empty()) JIGE_DO(write_file_atomic(output_path_, dump_json(json, 1) + "\n"));
    if (output_.json) {
      print_json(json);
    } else {
      print_text(report(profile));
    }
    warn_of_error(profile);
    if (!output_path_.empty()) {
      log_info("{}: {}", output_path_, counted(std::ssize(profile.cells), "cell"));
    }
    return {};
  }

 private:
  static std::string report(const sim::StepProfile& profile) {
    using enum Table::Align;
    const sim::StepTime& step = profile.step;
    std::string text = fmt::format(
        "{} on {}, {} thread{}\n", profile.subject.model.name, profile.subject.machine.processor,
        profile.subject.machine.threads, profile.subject.machine.threads == 1 ? "" : "s");
    Table times({{"rows", kRight},
                 {"next tokens, ms", kRight},
                 {"behind 1000, ms", kRight},
                 {"a prompt, ms", kRight}});
    for (const int32_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
      if (rows > step.limits.rows_max) break;
      const auto decode_s = [&](int64_t context) {
        sim::StepFeatures decode;
        for (int32_t i = 0; i < rows; ++i) decode.add(context, 1, 1);
        return step.forward_seconds(decode);
      };
      sim::StepFeatures prompt;
      prompt.add(0, rows, 1);
      const bool decodes = rows <= step.limits.sample_rows_max;
      const auto ms = [](double seconds) { return fmt::format("{:.3g}", seconds * 1e3); };
      times.row({fmt::format("{}", rows), decodes ? ms(decode_s(0)) : "",
                 decodes ? ms(decode_s(1000)) : "", ms(step.forward_seconds(prompt))});
    }
    text += times.render();
    int64_t runs = 0, disturbed = 0;
    for (const sim::StepCell& cell : profile.cells) {
      runs += cell.runs;
      disturbed += cell.disturbed;
    }
    text += fmt::format("{}, {} disturbed by other programs\n", counted(runs, "turn"), disturbed);
    Table noise({{"time of single forwards over the usual one"},
                 {"mean", kRight},
                 {"p90", kRight},
                 {"p99", kRight}});
    double begin_s = 0;
    for (const sim::NoiseGroup& group : step.noise.groups) {
      noise.row({fmt::format("of {:.3g} to {:.3g} ms", begin_s * 1e3, group.end_s * 1e3),
                 fmt::format("{:.2f}", group.mean()), fmt::format("{:.2f}", group.at(0.9)),
                 fmt::format("{:.2f}", group.at(0.99))});
      begin_s = group.end_s;
    }
    text += noise.render();
    Table errors({{"cells held out"}, {"", kRight}, {"mean error", kRight}, {"worst", kRight}});
    const auto add = [&](const std::string& kind, const sim::StepError& error) {
      errors.row({kind, fmt::format("{}", error.cells), fmt::format("{:.1f} %", 100 * error.mean),
                  fmt::format("{:+.1f} %", 100 * error.worst)});
    };
    for (const auto& [kind, error] : profile.held_out.kinds) add(kind, error);
    add("all", profile.held_out.all);
    return text + errors.render();
  }

  BenchServeModelFlags model_;
  std::string output_path_;
  double seconds_ = 60;
  int64_t batch_tokens_ = 512;
  int64_t batch_requests_ = 64;
  int64_t kv_tokens_ = 16384;
  int64_t context_ = 1024;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_profile_serve_command() {
  return std::make_unique<ProfileServeCommand>();
}

}  // namespace jige::cli

// jige bench: how fast this machine is, and Jige on it.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/counted.h"
#include "base/cpu.h"
#include "cli/bench.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/device_flags.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/layer_flags.h"
#include "cli/model_sizes.h"
#include "cli/output.h"
#include "cli/passing_note.h"
#include "cli/suggest.h"

namespace jige::cli {
namespace {

const std::vector<std::string> kSubjects = {"machine", "gemm", "attention", "inference", "train"};
// What a mistyped subject may have been: also commands that begin with "bench".
const std::vector<std::string> kWordsBehindBench = {"machine",     "gemm",       "attention",
                                                    "inference",   "train",      "serve",
                                                    "speculation", "collective", "train-schedules"};

class BenchCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Measures this machine (vector units, memory) and Jige on it: matrix products, attention, "
        "prompt processing and decoding (inference), training steps, each as a share of what the "
        "machine can do. Shares may pass 100 %: vector units are measured in f32, of which bf16 "
        "instructions do a multiple, and weights that fit into a cache are not read from memory. "
        "Medians, with the slowest and the fastest run. Other load on the machine shows. `jige "
        "bench serve` measures serving.");
    flags.texts("[WHAT]...", subjects_, "machine, gemm, attention, inference, train; all if none");
    flags.section("Model (random weights)");
    flags.choice("--size NAME", shape_.size, model_size_names(), "a Llama of this size");
    flags.text("--config FILE", config_file_, "a Hugging Face config.json instead");
    flags.choice("--dtype NAME", dtype_, {"auto", "f32", "bf16"},
                 "type of matrix products; auto: bf16 where the processor has instructions for it");
    declare_quantize(flags, quantize_);
    declare_kv_cache(flags, kv_cache_);
    flags.section("Amounts");
    flags.integer("--context N", options_.context, {.min = 1, .max = 1 << 20},
                  "tokens of a sequence in training and attention");
    flags.integer("--batch-tokens N", options_.batch_tokens, {.min = 1, .max = 1 << 20},
                  "tokens of a training step");
    flags.integer("--prompt-tokens N", options_.prompt_tokens, {.min = 1, .max = 1 << 20},
                  "length of the prompt");
    flags.integer("--new-tokens N", options_.new_tokens, {.min = 1, .max = 1 << 20},
                  "tokens that are decoded");
    flags.integer("--decode-context N", options_.decode_context, {.min = 0, .max = 1 << 20},
                  "tokens that stand before them");
    flags.number("--seconds X", options_.seconds, {.min = 0, .max = 3600},
                 "of each measurement; the machine itself is measured in no more");
    flags.toggle("--on-request", on_request_,
                 "train: a step for every line of the standard input, each measured by itself, so "
                 "that others can take turns with it");
    device_.declare(flags);
    layers_.declare(flags);
    output_.declare(flags, "one JSON line for the machine, then one a measurement");
    flags.example("jige bench");
    flags.example("jige bench train inference --size 110m --dtype bf16 --json");
  }

  Status run() override {
    output_.apply();
    note_ = PassingNote(output_.quiet);
    const InterruptScope interrupts;
    for (const std::string& subject : subjects_) {
      if (std::find(kSubjects.begin(), kSubjects.end(), subject) != kSubjects.end()) continue;
      return fail(Code::kInvalidArgument, "WHAT: \"{}\" is not one of {}{}", subject,
                  fmt::join(kSubjects, ", "), suggestion(subject, kWordsBehindBench));
    }
    if (on_request_ && subjects_ != std::vector<std::string>{"train"}) {
      return fail(Code::kInvalidArgument, "--on-request is for `jige bench train` alone");
    }
    JIGE_DO(choose_model());
    if (named("attention") && !has_attention()) {
      return fail(Code::kInvalidArgument, "WHAT: attention: no layer of {} has any", config_file_);
    }
    options_.memory_bytes_max = device_.arena_bytes_max();
    if (wanted("gemm")) JIGE_DO(check_gemm_memory(options_));
    if (wanted("attention")) JIGE_DO(check_attention_memory(options_));
    JIGE_TRY(const auto gpu, device_.gpu_index());
    if (wanted("train")) {
      JIGE_DO(check_training_memory(options_, gpu ? DeviceKind::kCuda : DeviceKind::kCpu));
    }
    JIGE_TRY(const ComputeDevices devices, device_.make());
    JIGE_TRY(options_.layers, layers_.budget(device_));
    print_head(devices.team().size());
    const MeasurementSink sink = [this](const Measurement& found) {
      note_.clear();
      print(found);
      note_.show();
    };
    MachineRates rates;
    if (on_request_) {
      options_.next_step = [] {
        std::string line;
        return static_cast<bool>(std::getline(std::cin, line));
      };
      return bench_train(devices.compute(), options_, rates, sink);
    }
    const Status measured = measure(devices.compute(), rates, sink);
    note_.clear();
    return measured;
  }

 private:
  Status measure(Device& device, MachineRates& rates, const MeasurementSink& sink) {
    // The other subjects compare with the machine, so it is always measured.
    note_.say("measuring the machine");
    JIGE_DO(bench_machine(device, options_.seconds, rates, sink));
    const std::pair<const char*, std::function<Status()>> subjects[] = {
        {"gemm", [&] { return bench_gemm(device, options_, rates, sink); }},
        {"attention", [&] { return bench_attention(device, options_, rates, sink); }},
        {"inference", [&] { return bench_inference(device, options_, sink); }},
        {"train", [&] { return bench_train(device, options_, rates, sink); }}};
    for (const auto& [name, run] : subjects) {
      if (!wanted(name)) continue;
      note_.say(fmt::format("measuring {}", name));
      JIGE_DO(run());
    }
    return {};
  }

  bool named(const std::string& subject) const {
    return std::find(subjects_.begin(), subjects_.end(), subject) != subjects_.end();
  }
  bool wanted(const std::string& subject) const {
    if (subject == "attention" && !has_attention()) return false;
    return subjects_.empty() || named(subject);
  }
  bool has_attention() const { return formats::attention_layer_count(options_.config) > 0; }

  Status choose_model() {
    if (config_file_.empty()) {
      JIGE_TRY(options_.config, make_llama_config(shape_, base_size(shape_).vocab_size));
    } else {
      JIGE_TRY(options_.config, load_config_file("--config", config_file_));
    }
    JIGE_TRY(const std::optional<DType> chosen, read_compute_dtype(dtype_));
    options_.dtype = chosen.value_or(default_training_dtype(device_.device != "cpu"));
    options_.format = read_weight_format(quantize_);
    options_.kv_dtype = read_kv_cache(kv_cache_);
    return {};
  }

  void print_head(int threads) const {
    const CpuFeatures& cpu = cpu_features();
    if (output_.json) {
      print_json(Json{{"machine", cpu.model_name},
                      {"threads", threads},
                      {"isa", isa_name(active_isa())},
                      {"version", kVersion},
                      {"build", kBuildType}});
    } else {
      print_text(fmt::format("{}, {}, {} kernels, jige {} ({})\n", cpu.model_name,
                             counted(threads, "thread"), isa_name(active_isa()), kVersion,
                             kBuildType));
    }
  }

  void print(const Measurement& found) const {
    if (output_.json) {
      print_json(measurement_json(found));
      return;
    }
    std::string line = fmt::format("  {:<13}{:>10.4g} {:<9}", found.name, found.value, found.unit);
    const bool spread = found.slowest != found.fastest;
    line += spread ? fmt::format("{:>8.4g} to {:<9.4g}", found.slowest, found.fastest)
                   : std::string(20, ' ');
    const std::string quartiles =
        found.share_low > 0
            ? fmt::format("({:.0f} to {:.0f})", 100 * found.share_low, 100 * found.share_high)
            : "";
    line += found.share > 0 ? fmt::format("{:>4.0f} % {:<13}{:<20}", 100 * found.share, quartiles,
                                          found.share_of)
                            : std::string(40, ' ');
    print_text(line + found.detail + "\n");
  }

  std::vector<std::string> subjects_;
  ModelShape shape_ = {.size = "15m"};
  std::string config_file_;
  std::string dtype_ = "auto";
  std::string quantize_ = "none";
  std::string kv_cache_ = "compute";
  BenchOptions options_;
  bool on_request_ = false;
  PassingNote note_;
  DeviceFlags device_;
  LayerFlags layers_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace jige::cli

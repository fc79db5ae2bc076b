// jige export: a checkpoint of a run as a model folder, a model folder with an adapter merged into
// it, or as a GGUF file.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/export_gguf.h"
#include "cli/export_merge.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/sweep_folder.h"
#include "train/checkpoint_export.h"

namespace jige::cli {
namespace {

class ExportCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Writes the latest complete checkpoint of a training run as an ordinary Hugging Face "
        "folder, to be generated from, served or trained on. The run may have ended, been killed, "
        "or go on beside it; it makes no difference on which devices it is. With --merge, writes a "
        "model folder with a LoRA adapter merged into it. With --gguf, writes a "
        "model folder as a GGUF file, tokenizer and chat template included, as llama.cpp and "
        "others load it: Llama, Mistral, Qwen, Gemma and others; families that it does not write "
        "are refused by name.");
    flags.text("RUN", options_.run_folder,
               "folder of a run; with --merge and --gguf, of a model or a run that "
               "ended");
    flags.text("[OUT]", options_.out_folder,
               "the folder to write; without it, of a run, RUN/exported-step-NUMBER");
    flags.integer("--step N", options_.step, {}, "the checkpoint of this step, one that is kept");
    flags.choice("--dtype NAME", dtype_, {"auto", "f32", "bf16", "f16"},
                 "type of the weights; auto: what the run writes in the end; with --merge that of "
                 "the model");
    flags.toggle("--replace", options_.replace,
                 "replace a model folder, or GGUF file, that is there already");
    flags.toggle("--adapter", options_.adapter,
                 "of a run with --lora: the adapter alone, not merged into its base");
    flags.text("--tokenizer FOLDER", options_.tokenizer_folder,
               "where the run's tokenizer is, should it have moved");
    flags.text(
        "--base FOLDER", options_.base_folder,
        "where the model is that an adapter belongs to, or that has what reads images, should it "
        "have moved");
    flags.text("--merge FOLDER", merge_.adapter,
               "write the model with this adapter, as PEFT or a run with --lora wrote it");
    flags.text("--gguf FILE", gguf_.file, "write the model to this GGUF file");
    flags.choice("--type NAME", gguf_.type, {"auto", "f32", "bf16", "f16", "q8_0", "q4_0"},
                 "type of the matrices in the GGUF file; auto: as in the folder");
    output_.declare(flags, "print one JSON object with what was written");
    flags.example("jige export runs/first");
    flags.example("jige export runs/first models/first-bf16 --dtype bf16");
    flags.example("jige export runs/first --step 2000 --replace");
    flags.example("jige export models/llama models/poet --merge adapters/poet");
    flags.example("jige export runs/first --gguf first-q8_0.gguf --type q8_0");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    options_.cancelled = &interrupt_flag();
    if (!gguf_.file.empty()) return run_gguf();
    if (gguf_.type != "auto") {
      return fail(Code::kInvalidArgument, "--type: is of GGUF files; name one with --gguf");
    }
    if (dtype_ != "auto") {
      JIGE_TRY(options_.dtype, parse_dtype(dtype_));
    }
    if (!merge_.adapter.empty()) return run_merge();
    JIGE_DO(check_run_folder(options_.run_folder));
    auto exported = train::export_checkpoint(options_);
    if (!exported) {
      if (exported.error().code == Code::kNotFound) {
        exported.error().message += sweep_note(options_.run_folder);
      }
      return tl::unexpected(std::move(exported.error()));
    }
    const train::CheckpointExport& made = *exported;
    if (output_.json) {
      print_json(Json{{"folder", made.folder},
                      {"checkpoint", made.checkpoint},
                      {"step", made.step},
                      {"dtype", dtype_info(made.dtype).name},
                      {"adapter", made.adapter}});
    } else if (!output_.quiet) {
      print_text(fmt::format("{}: {} of step {}, {}\n", made.folder,
                             made.adapter ? "the adapter" : "the model", made.step,
                             dtype_info(made.dtype).name));
    }
    return {};
  }

 private:
  Status run_merge() {
    for (const auto& [flag, given] : {std::pair{"--step", options_.step.has_value()},
                                      {"--adapter", options_.adapter},
                                      {"--tokenizer", !options_.tokenizer_folder.empty()},
                                      {"--base", !options_.base_folder.empty()}}) {
      if (!given) continue;
      return fail(Code::kInvalidArgument,
                  "{}: is of checkpoints, and --merge takes a finished model: leave it out", flag);
    }
    merge_.base = options_.run_folder;
    merge_.out = options_.out_folder;
    merge_.dtype = options_.dtype;
    merge_.replace = options_.replace;
    return merge_folders(merge_, output_);
  }
  Status run_gguf() {
    for (const auto& [flag, given] : {std::pair{"OUT", !options_.out_folder.empty()},
                                      {"--step", options_.step.has_value()},
                                      {"--dtype", dtype_ != "auto"},
                                      {"--adapter", options_.adapter},
                                      {"--tokenizer", !options_.tokenizer_folder.empty()},
                                      {"--base", !options_.base_folder.empty()},
                                      {"--merge", !merge_.adapter.empty()}}) {
      if (!given) continue;
      return fail(
          Code::kInvalidArgument,
          "{}: is of checkpoints, and --gguf writes a finished model; export the checkpoint "
          "to a folder first, and that with --gguf",
          flag);
    }
    gguf_.folder = options_.run_folder;
    gguf_.replace = options_.replace;
    return export_as_gguf(gguf_, output_);
  }

  MergeFlags merge_;
  GgufExportFlags gguf_;
  train::CheckpointExportOptions options_;
  std::string dtype_ = "auto";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace jige::cli

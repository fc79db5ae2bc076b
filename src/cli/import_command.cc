// jige import: a GGUF file as a model folder.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "formats/gguf_import.h"
#include "formats/gguf_params.h"

namespace jige::cli {
namespace {

class ImportCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(fmt::format(
        "Reads a GGUF file, quantised or not, and writes its model as an ordinary Hugging Face "
        "folder, which every other command takes: config.json, safetensors, tokenizer, chat "
        "template. Architectures (llama is also that of Mistral and Mixtral): {}.",
        formats::known_gguf_architectures()));
    flags.text("FILE", options_.file, "a GGUF file; of a model in several, any part");
    flags.text("-o,--out FOLDER", options_.folder, "the folder to write");
    flags.choice("--dtype NAME", dtype_, {"auto", "f32", "bf16", "f16"},
                 "type of the weights; auto: f32, f16 and bf16 stay, quantised ones become bf16");
    flags.text("--pre NAME", options_.pre,
               "how the tokenizer cuts words, where the file does not say so or wrongly, for "
               "example llama-bpe, qwen2 or gpt-2");
    flags.toggle("--replace", options_.replace, "replace a model folder that is there already");
    output_.declare(flags, "print one JSON object with what was written");
    flags.example("jige import llama-3.2-1b-instruct-Q4_K_M.gguf --out models/llama-3.2-1b");
    flags.example("jige import tiny-f16.gguf --out models/tiny --dtype f32 --replace");
    flags.example("jige chat models/llama-3.2-1b");
  }

  Status run() override {
    output_.apply();
    if (options_.folder.empty()) {
      return fail(Code::kInvalidArgument, "--out: name the folder to write");
    }
    const InterruptScope interrupts;
    options_.cancelled = &interrupt_flag();
    if (dtype_ != "auto") {
      JIGE_TRY(options_.dtype, parse_dtype(dtype_));
    }
    JIGE_DO(check_file("FILE", options_.file, "a GGUF file"));
    JIGE_TRY(const formats::GgufImport made, import());
    output_.json ? print_as_json(made) : print_as_text(made);
    return {};
  }

 private:
  Result<formats::GgufImport> import() {
    std::optional<Progress> progress;
    options_.on_progress = [&](uint64_t done, uint64_t total) {
      const auto whole = static_cast<int64_t>(total);
      if (!progress) progress.emplace("import", whole, output_.quiet || output_.json);
      progress->update(
          static_cast<int64_t>(done),
          fmt::format("{} of {}", format_bytes(static_cast<int64_t>(done)), format_bytes(whole)));
    };
    auto made = formats::import_gguf(options_);
    if (progress && made) progress->finish("written");
    return made;
  }

  void print_as_json(const formats::GgufImport& made) const {
    print_json(Json{{"folder", options_.folder},
                    {"family", formats::family_name(made.config.family)},
                    {"parameters", formats::parameter_count(made.config)},
                    {"dtype", dtype_info(made.config.stored_dtype).name},
                    {"stored_types", made.stored_types},
                    {"tokenizer", made.tokenizer},
                    {"tokens", made.token_count},
                    {"chat_template", made.chat_template}});
  }

  void print_as_text(const formats::GgufImport& made) const {
    if (output_.quiet) return;
    std::vector<std::string> types;
    for (const auto& [name, count] : made.stored_types) {
      types.push_back(fmt::format("{} {}", count, name));
    }
    print_text(fmt::format(
        "{}: {} of {} parameters, {} (tensors in the file: {}); tokenizer: {}, {} tokens{}\n",
        options_.folder, formats::family_name(made.config.family),
        format_count(static_cast<double>(formats::parameter_count(made.config))),
        dtype_info(made.config.stored_dtype).name, fmt::join(types, ", "), made.tokenizer,
        made.token_count, made.chat_template ? ", chat template" : ""));
  }

  formats::GgufImportOptions options_;
  std::string dtype_ = "auto";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_import_command() { return std::make_unique<ImportCommand>(); }

}  // namespace jige::cli

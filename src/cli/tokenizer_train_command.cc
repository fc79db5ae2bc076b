// jige tokenizer train: a byte-level BPE tokenizer from text.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/tokenizer_training.h"
#include "formats/checkpoint.h"

namespace jige::cli {
namespace {

class TokenizerTrainCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Trains a byte-level BPE tokenizer and writes it as a Hugging Face folder "
        "(tokenizer.json, tokenizer_config.json). Files are text, or JSONL with a \"text\", "
        "\"messages\" or \"prompt\" field; where there are messages, the folder gets a chat "
        "template. `jige train` does this by itself when it is given no tokenizer.");
    flags.texts("FILE...", training_.files, "text or JSONL to learn from");
    flags.text("-o,--out FOLDER", training_.folder, "where the tokenizer goes");
    flags.integer("--vocab-size N", training_.vocab_size, {.min = 262, .max = 1'000'000},
                  "tokens in all: 256 bytes, merges, special tokens; fewer result where the text "
                  "has no more repeated pairs");
    flags.choice("--digits HOW", digits_, {"single", "up-to-3"}, "how digits form words");
    flags.text("--text-field NAME", training_.text_field, "the JSONL field that holds plain text");
    flags.bytes("--sample SIZE", training_.sample_bytes, "text read at most, by default 512MiB");
    output_.declare(flags, "print one JSON object");
    flags.example("jige tokenizer train stories.txt --vocab-size 4096 --out tokenizer");
    flags.example("jige tokenizer train a.jsonl b.jsonl --digits up-to-3 -o tokenizer");
  }

  Status run() override {
    output_.apply();
    if (training_.folder.empty()) {
      return fail(Code::kInvalidArgument, "--out is missing: name the folder for the tokenizer");
    }
    JIGE_DO(check_folder());
    const InterruptScope interrupts;
    training_.single_digits = digits_ == "single";
    training_.quiet = output_.quiet;
    JIGE_TRY(const TokenizerTrained trained, train_tokenizer(training_));
    if (trained.cut) {
      log_info("only the first {} were read; --sample raises that",
               format_bytes(trained.text_bytes));
    }
    if (trained.vocab_size < training_.vocab_size) {
      log_info("the text gave {} tokens of the {} asked for: no other pair is repeated",
               trained.vocab_size, training_.vocab_size);
    }
    if (output_.json) {
      print_json(Json{{"folder", training_.folder},
                      {"vocab_size", trained.vocab_size},
                      {"text_bytes", trained.text_bytes},
                      {"chat_template", trained.chat}});
    }
    return {};
  }

 private:
  // Refuses a folder whose tokenizer a model or a run cannot do without.
  Status check_folder() const {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path folder = (fs::path(training_.folder) / "").parent_path();
    JIGE_DO(check_folders(training_.folder));
    const char* owner = fs::exists(folder / "config.json", error) ? "model" : nullptr;
    const fs::path run = fs::absolute(folder, error).parent_path();
    const bool of_run = folder.filename() == "tokenizer" &&
                        !formats::list_checkpoints((run / "checkpoints").string()).empty();
    if (of_run) owner = "run";
    if (!owner || !fs::exists(folder / "tokenizer.json", error)) return {};
    return fail(
        Code::kInvalidArgument,
        "{}: holds the tokenizer of a {}, which cannot be used with another; choose another "
        "folder",
        training_.folder, owner);
  }

  TokenizerTraining training_;
  std::string digits_ = "single";
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_tokenizer_train_command() {
  return std::make_unique<TokenizerTrainCommand>();
}

}  // namespace jige::cli

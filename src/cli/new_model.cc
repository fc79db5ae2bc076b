#include "cli/new_model.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "cli/input.h"
#include "cli/tokenizer_training.h"
#include "formats/checkpoint.h"
#include "text/tokenizer.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

// From its first file on, a run's folder belongs to one process.
Status hold_run(train::TrainOptions& options) {
  if (options.lock) return {};
  JIGE_TRY(train::RunLock taken, train::RunLock::take(options.out_folder));
  options.lock = std::make_shared<train::RunLock>(std::move(taken));
  return {};
}

// REQUIRES: no tokenizer is named.
Status train_run_tokenizer(const TrainFlags& flags, int64_t vocab_size, bool quiet,
                           train::TrainOptions& options) {
  const std::string folder = options.out_folder + "/tokenizer";
  options.tokenizer_folder = folder;
  std::error_code error;
  const bool there = fs::exists(fs::path(folder) / "tokenizer.json", error);
  // Rank 0 has made it for the others.
  const bool follows = options.ranks && options.ranks->rank != 0;
  if (there && follows) return {};
  if (there && !formats::list_checkpoints(options.out_folder + "/checkpoints").empty()) return {};
  // A new folder is made only when there is something to put into it.
  if (fs::exists(options.out_folder, error)) JIGE_DO(hold_run(options));
  JIGE_TRY(const TokenizerTrained trained,
           train_tokenizer({.files = options.data.files,
                            .folder = folder,
                            .vocab_size = vocab_size,
                            .text_field = options.data.text_field,
                            .skip_bad = options.data.skip_bad,
                            .quiet = quiet,
                            .before_write = [&] { return hold_run(options); }}));
  if (trained.vocab_size < vocab_size && flags.vocab_size > 0) {
    log_info("the text gave {} tokens of the {} asked for: no other pair is repeated",
             trained.vocab_size, vocab_size);
  }
  return {};
}

}  // namespace

Status prepare_new_model(const TrainFlags& flags, bool quiet, train::TrainOptions& options) {
  if (!flags.config_file.empty()) {
    JIGE_TRY(options.config, load_config_file("--config", flags.config_file));
  }
  if (!flags.tokenizer_folder.empty()) {
    JIGE_TRY(options.tokenizer_folder, find_tokenizer_folder(flags.tokenizer_folder));
  } else {
    const int64_t fallback =
        options.config ? options.config->vocab_size : base_size(flags.shape).vocab_size;
    const int64_t vocab_size = flags.vocab_size > 0 ? flags.vocab_size : fallback;
    JIGE_DO(train_run_tokenizer(flags, vocab_size, quiet, options));
  }
  if (options.config) return {};
  JIGE_TRY(const auto tokenizer, text::Tokenizer::load(options.tokenizer_folder));
  ModelShape shape = flags.shape;
  shape.context = options.context;
  JIGE_TRY(options.config, make_llama_config(shape, tokenizer.vocab_size()));
  return {};
}

}  // namespace jige::cli

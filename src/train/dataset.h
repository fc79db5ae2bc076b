// Everything a run reads: the files of a corpus as sequences, with their held-out part.
//
// Text and JSONL are tokenised into the cache first (tokenize.h), token files are checked once.
// Threads: immutable after load_dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "text/tokenizer.h"
#include "train/corpus.h"
#include "train/image_encoder.h"
#include "train/options.h"
#include "train/prompts.h"
#include "train/sequences.h"

namespace jige::train {

// How far the preparation of a file is.
struct DataProgress {
  std::string file;
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
};

struct DatasetOptions {
  DataOptions data;  // with a cache folder
  std::string tokenizer_folder;
  int64_t vocab_size = 0;  // of the model
  int64_t context = 0;
  uint64_t seed = 0;
  bool pairs = false;  // of answers (preference_encoder.h), in JSONL files
  // How images of messages become tokens, with the folder of the model that reads them; or why they
  // do not.
  std::optional<ImageEncoding> images = {};
  std::string image_folder = {};
  std::string no_images = {};
  std::function<bool(const DataProgress&)> progress;  // returns whether to go on; may be empty
};

struct Dataset {
  Corpus corpus;
  Corpus eval_corpus;  // of eval_files; empty: held_out lies in `corpus`
  std::vector<Sequence> training;
  std::vector<Sequence> held_out;   // in `held_out_corpus()`
  std::vector<uint64_t> keys;       // by training file: content, tokenizer and options
  std::vector<uint64_t> eval_keys;  // the same of eval_files
  int64_t skipped_count = 0;        // bad lines left out while tokenising just now
  // Of runs that learn from rewards, in place of corpora: a sequence is a prompt by its number, of
  // one input.
  PromptSet prompts, eval_prompts;

  const Corpus& held_out_corpus() const {
    return eval_corpus.parts().empty() ? corpus : eval_corpus;
  }
  bool has_images() const { return corpus.has_images() || eval_corpus.has_images(); }
  // Tokens that are read in one epoch, and those of them that are learned.
  int64_t input_count() const;
  int64_t learned_count() const;
  // What is held besides prompts, for as long as the run goes on: where documents end and sequences
  // begin.
  int64_t index_bytes() const;
  // Tokens of one epoch and of what is held out.
  int64_t all_input_count() const;
};

// Fails as tokenize_file, TokenFile::open and cut_sequences do.
Result<Dataset> load_dataset(const DatasetOptions& options, const text::Tokenizer& tokenizer,
                             ThreadTeam& team);

// The same of prompts with room for answers of `answer_tokens` behind them, scored by such a rule
// or, without one, otherwise. Nothing is held out but eval_files. Fails as add_prompts.
Result<Dataset> load_prompts(const DatasetOptions& options, int64_t answer_tokens,
                             std::optional<RewardRule> rule, const text::Tokenizer& tokenizer);

}  // namespace jige::train

// Trains a byte-level BPE tokenizer and writes it as an ordinary Hugging Face folder.
//
//   BpeTrainer trainer({.vocab_size = 4096, .special_tokens = {"<|bos|>", "<|eos|>"}});
//   for (…) JIGE_DO(trainer.feed(text));
//   JIGE_TRY(const TrainedBpe trained, trainer.train());
//   JIGE_DO(write_tokenizer_folder(trained, {.folder = "out", .bos_token = "<|bos|>", …}));
//
// Words come from a GPT-4/Llama-3-like split: English contractions, letters with one leading
// non-letter, digits in groups (see DigitGroups), punctuation runs with trailing newlines, white
// space. Merging repeats: take the most frequent pair of neighbouring symbols, on a tie the pair
// with the smaller ids, and make it one symbol; counts are kept up to date, not recounted.
// Ids: 0..255 the byte alphabet in its file order, then one per merge, special tokens last.
//
// The result depends only on the multiset of words, not on the order of feed() calls.
// Threads: one thread. Memory: the distinct words and their pairs, not the text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace jige::text {

enum class DigitGroups {
  kSingle,  // every digit is a word: 2024 -> 2 0 2 4; best for arithmetic in small models
  kUpTo3,   // groups of up to three from the left: 2024 -> 202 4, as Llama 3 does
};

struct BpeTrainerOptions {
  // Ids in all: 256 bytes, merges and special tokens. Fewer result where the text has no more
  // pairs.
  int32_t vocab_size = 4096;
  // Ids after all others, in this order.
  std::vector<std::string> special_tokens = {};
  DigitGroups digits = DigitGroups::kUpTo3;
  // Pairs rarer than this are not merged.
  int64_t pair_count_min = 2;
  // Words longer than this many bytes are left out of the counts.
  int32_t word_bytes_max = 256;
};

struct TrainedBpe {
  // Token texts by id in the byte-level spelling, special tokens included.
  std::vector<std::string> tokens;
  // Pairs of token texts in the order they were learned.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<std::string> special_tokens;
  std::string split_pattern;
};

class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainerOptions options);
  BpeTrainer(BpeTrainer&&) noexcept;
  BpeTrainer& operator=(BpeTrainer&&) noexcept;
  ~BpeTrainer();

  // Counts the words of one text; special tokens in it are cut out and not counted.
  Status feed(std::string_view text);
  // Learns the merges. progress(done, total) is called now and then, in merges; returning false
  // ends with kCancelled. Fails with kInvalidArgument when nothing was fed or the sizes contradict.
  Result<TrainedBpe> train(const std::function<bool(int32_t done, int32_t total)>& progress = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct TokenizerFolderOptions {
  std::string folder;
  // Each empty or one of the special tokens.
  std::string bos_token = {};
  std::string eos_token = {};
  std::string pad_token = {};
  // Whether encoding adds bos before every text.
  bool add_bos = true;
  std::string chat_template = {};
  int64_t context_tokens = 0;  // model_max_length; 0 leaves it out
};

// The text of tokenizer.json. Fails with kInvalidArgument when a named token is not special.
Result<std::string> tokenizer_json(const TrainedBpe& trained,
                                   const TokenizerFolderOptions& options);

// Writes tokenizer.json, tokenizer_config.json and special_tokens_map.json, each atomically.
Status write_tokenizer_folder(const TrainedBpe& trained, const TokenizerFolderOptions& options);

}  // namespace jige::text

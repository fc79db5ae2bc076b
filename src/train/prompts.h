// The data of runs that learn from rewards: prompts, each with what its answers are scored by.
//
//   {"prompt": text, "answer": text}
//   {"messages": [{role, content}…], "answer": text}    ends with a turn that is to be answered
//
// Tokens are those that a document {"prompt", "completion"} or {"messages"} begins with
// (document_encoder.h). "answer" may be a number; other fields, and "tools", are kept.
// Threads: immutable once loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "train/reward_rules.h"

namespace jige::train {

struct Prompt {
  std::vector<int32_t> ids;
  std::string record;  // the line, an object of JSON
  std::string answer;  // "" where there is none
  bool chat = false;
};

struct PromptSet {
  std::vector<Prompt> prompts;
  std::vector<uint64_t> keys;  // by file: of lines and tokens
  int64_t skipped_count = 0;   // bad lines left out

  // In memory.
  int64_t byte_count() const;
};

struct PromptOptions {
  int64_t tokens_max = 0;          // of a prompt
  std::optional<RewardRule> rule;  // that answers are for; none: they may be missing
  bool skip_bad = false;
  // Hears of the bytes of a file; returns whether to go on.
  std::function<bool(const std::string& file, int64_t done_bytes, int64_t total_bytes)> progress;
};

// Adds a file's prompts. Fails as RecordReader does; with file and line kCorrupt on bad JSON,
// kInvalidArgument on fields that are missing or of the wrong type, conversations that end with an
// answer, and prompts of more than tokens_max; with kInvalidArgument where there is none.
Status add_prompts(const std::string& path, const text::Tokenizer& tokenizer,
                   const PromptOptions& options, PromptSet& set);

}  // namespace jige::train

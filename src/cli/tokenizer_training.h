// Trains a byte-level BPE tokenizer from text and JSONL files and writes its folder.
//
// What is read: text files as they are; of JSONL records the text field, prompt and completion, or
// the contents of messages, read as training reads them (text/chat_content.h). Where there are
// messages, the folder gets the chat format of chat_defaults.h; a tokenizer for plain text has no
// chat template, since the model will not know one.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige::cli {

struct TokenizerTraining {
  std::vector<std::string> files;
  std::string folder;
  int64_t vocab_size = 4096;
  int64_t sample_bytes = int64_t{512} << 20;  // text read at most
  std::string text_field = "text";
  bool single_digits = true;
  bool skip_bad = false;  // leave out lines that are no text or no record, instead of failing
  bool quiet = false;
  std::function<Status()> before_write;  // if there is one, asked before the folder is written
};

struct TokenizerTrained {
  int64_t vocab_size = 0;
  int64_t text_bytes = 0;
  bool chat = false;
  bool cut = false;  // sample_bytes ended the reading
};

// Fails with kInvalidArgument on no text at all, and as the readers and before_write do; writes
// nothing then.
Result<TokenizerTrained> train_tokenizer(const TokenizerTraining& training);

}  // namespace jige::cli

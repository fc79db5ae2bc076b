// The tokenizer of a model folder as keys of a GGUF file; gguf_tokenizer.h reads them.
//
// Byte-level BPE is written with its merges and the name of how it cuts words; SentencePiece BPE,
// as Llama 2 has it in tokenizer.json, with scores from which its merges follow. Rows of the
// model's table without a token become unused ones.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "formats/gguf_writer.h"
#include "formats/model_config.h"

namespace jige::formats {

struct GgufTokenizerSummary {
  std::string kind;  // "byte-level BPE, words as llama-bpe"
  int64_t token_count = 0;
  bool chat_template = false;
};

// Fails as text::Tokenizer::load; with kUnsupported where readers of GGUF files would cut text in
// another way, naming the part of tokenizer.json; with kCorrupt where there are more tokens than
// `config` has rows.
Result<GgufTokenizerSummary> add_gguf_tokenizer(const std::string& folder,
                                                const ModelConfig& config, GgufKeys& keys);

}  // namespace jige::formats

// EmbeddingText: texts as the tokens of which an embedding is made: the prompt in front, what the
// tokenizer puts around both, and no more tokens than the model was made for.
//
//   JIGE_TRY(const EmbeddingText texts, EmbeddingText::create(tokenizer, {.prompt = "query: "}));
//   JIGE_TRY(const EmbedInput input, texts.encode("What is a lease?"));
//
// Where a text is cut, its own last tokens go: what the tokenizer puts behind every text (the token
// whose row is taken, perhaps) stays, as in Hugging Face tokenizers.
// Threads: immutable; any number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace jige::serve {

struct EmbedInput {
  std::vector<int32_t> tokens;
  int64_t prompt_count = 0;  // of them are the prompt's, with what stands in front of it
  bool truncated = false;
};

struct EmbeddingTextOptions {
  std::string prompt = {};  // put before every text
  int64_t tokens_max = 0;   // of a text with everything around it; >= 1
  bool truncate = false;    // cut longer ones, instead of failing
  std::string hint = {};    // behind "shorten it" of that failure
};

class EmbeddingText {
 public:
  // Fails as Tokenizer::encode does, and with kInvalidArgument where nothing but what the tokenizer
  // adds would be left of a text.
  static Result<EmbeddingText> create(const text::Tokenizer& tokenizer,
                                      const EmbeddingTextOptions& options);

  // Fails with kInvalidArgument on a text without tokens and one that is too long.
  Result<EmbedInput> encode(std::string_view text) const;

 private:
  EmbeddingText(const text::Tokenizer& tokenizer, const EmbeddingTextOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  text::Tokenizer tokenizer_;
  EmbeddingTextOptions options_;
  int64_t prompt_count_ = 0;
};

}  // namespace jige::serve

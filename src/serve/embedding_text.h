// EmbeddingText: texts as the tokens of which an embedding is made: the prompt in front, what the
// tokenizer puts around both, and no more tokens than the model was made for.
//
//   JIGE_TRY(const EmbeddingText texts, EmbeddingText::create(tokenizer, {.prompt = "query: "}));
//   JIGE_TRY(const EmbedInput input, texts.encode("What is a lease?"));
//
// Where a text is cut, its own last tokens go, or its first ones with those of the prompt: what the
// tokenizer puts around every text (the token whose row is taken, perhaps) stays, as in Hugging
// Face tokenizers. Ids that are given lose their last or first ones, whatever they are.
// Threads: immutable; any number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/attention.h"
#include "text/tokenizer.h"

namespace jige::serve {

struct EmbedInput {
  std::vector<int32_t> tokens;
  int64_t prompt_count = 0;  // of them are the prompt's, with what stands in front of it
  bool truncated = false;
  int32_t second_begin = ops::kFirstTypeAlone;  // as of ops::SequenceSpan
};

struct EmbeddingTextOptions {
  std::string prompt = {};  // put before every text
  int64_t tokens_max = 0;   // of a text with everything around it; >= 1
  bool truncate = false;    // cut longer ones, instead of failing
  bool cuts_left = false;   // at the beginning
  bool lowers = false;      // prompt and texts are in small letters, special tokens' texts too
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
  // A text that comes as ids: nothing is put around it. Fails likewise.
  Result<EmbedInput> take(std::vector<int32_t> ids) const;

 private:
  EmbeddingText(const text::Tokenizer& tokenizer, const EmbeddingTextOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  // A text as the tokenizer sees it.
  std::string shown(std::string_view text) const;
  // Cuts the tokens between `prefix` and `suffix` of their number, or fails.
  Status fit(EmbedInput& input, int64_t prefix, int64_t suffix) const;

  text::Tokenizer tokenizer_;
  EmbeddingTextOptions options_;
  int64_t prompt_count_ = 0;
};

}  // namespace jige::serve

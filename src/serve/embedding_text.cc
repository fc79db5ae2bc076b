#include "serve/embedding_text.h"

#include <algorithm>

#include "base/check.h"

namespace jige::serve {

Result<EmbeddingText> EmbeddingText::create(const text::Tokenizer& tokenizer,
                                            const EmbeddingTextOptions& options) {
  JIGE_CHECK(options.tokens_max >= 1, "texts of {} tokens", options.tokens_max);
  EmbeddingText made(tokenizer, options);
  const auto around = std::ssize(tokenizer.prefix_ids()) + std::ssize(tokenizer.suffix_ids());
  if (around >= options.tokens_max) {
    return fail(Code::kInvalidArgument,
                "a text may have {} tokens, and the tokenizer puts {} around each; allow more",
                options.tokens_max, around);
  }
  if (!options.prompt.empty()) {
    JIGE_TRY(const auto ids, tokenizer.encode(options.prompt, {}));
    made.prompt_count_ = std::ssize(ids) - std::ssize(tokenizer.suffix_ids());
  }
  return made;
}

Result<EmbedInput> EmbeddingText::encode(std::string_view text) const {
  EmbedInput input{.prompt_count = prompt_count_};
  JIGE_TRY(input.tokens, tokenizer_.encode(options_.prompt + std::string(text), {}));
  if (input.tokens.empty()) {
    return fail(Code::kInvalidArgument,
                "the text is empty, and the tokenizer adds nothing to it: there is nothing to make "
                "a vector of; leave it out");
  }
  const int64_t count = std::ssize(input.tokens);
  if (count <= options_.tokens_max) return input;
  if (!options_.truncate) {
    return fail(Code::kInvalidArgument, "the text has {} tokens, and {} are allowed; shorten it{}",
                count, options_.tokens_max, options_.hint);
  }
  const auto suffix = tokenizer_.suffix_ids();
  input.tokens.resize(static_cast<size_t>(options_.tokens_max));
  std::copy(suffix.begin(), suffix.end(), input.tokens.end() - std::ssize(suffix));
  input.prompt_count = std::min(prompt_count_, options_.tokens_max - std::ssize(suffix));
  input.truncated = true;
  return input;
}

}  // namespace jige::serve

#include "serve/embedding_text.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode.h"

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
    JIGE_TRY(const auto ids, tokenizer.encode(made.shown(options.prompt), {}));
    made.prompt_count_ = std::ssize(ids) - std::ssize(tokenizer.suffix_ids());
  }
  return made;
}

std::string EmbeddingText::shown(std::string_view text) const {
  if (!options_.lowers) return std::string(text);
  return text::to_lower(text::replace_invalid_utf8(text));
}

Result<EmbedInput> EmbeddingText::encode(std::string_view text) const {
  EmbedInput input{.prompt_count = prompt_count_};
  JIGE_TRY(input.tokens, tokenizer_.encode(shown(options_.prompt + std::string(text)), {}));
  if (input.tokens.empty()) {
    return fail(Code::kInvalidArgument,
                "the text is empty, and the tokenizer adds nothing to it: there is nothing to make "
                "a vector of; leave it out");
  }
  JIGE_DO(fit(input, std::ssize(tokenizer_.prefix_ids()), std::ssize(tokenizer_.suffix_ids())));
  return input;
}

Result<EmbedInput> EmbeddingText::take(std::vector<int32_t> ids) const {
  if (ids.empty()) return fail(Code::kInvalidArgument, "the list of token ids is empty");
  EmbedInput input{.tokens = std::move(ids)};
  JIGE_DO(fit(input, 0, 0));
  return input;
}

Status EmbeddingText::fit(EmbedInput& input, int64_t prefix, int64_t suffix) const {
  const int64_t excess = std::ssize(input.tokens) - options_.tokens_max;
  if (excess <= 0) return {};
  if (!options_.truncate) {
    return fail(Code::kInvalidArgument, "the text has {} tokens, and {} are allowed; shorten it{}",
                input.tokens.size(), options_.tokens_max, options_.hint);
  }
  const auto first =
      options_.cuts_left ? input.tokens.begin() + prefix : input.tokens.end() - suffix - excess;
  input.tokens.erase(first, first + excess);
  // As sentence-transformers counts it: from the beginning of what is left.
  input.prompt_count = std::min(input.prompt_count, options_.tokens_max - suffix);
  input.truncated = true;
  return {};
}

}  // namespace jige::serve

#include "serve/pair_text.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "text/post_processor.h"

namespace jige::serve {
namespace {

constexpr std::string_view kJudgeBefore =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n";
constexpr std::string_view kJudgeBehind =
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kJudgeInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

void append_ids(std::vector<int32_t>& ids, std::span<const int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

EmbeddingForm pair_form(const formats::PairConfig& config) {
  return {.pooling = config.pooling, .normalise = false, .layers = config.layers};
}

Result<PairText> PairText::create(const text::Tokenizer& tokenizer,
                                  const formats::PairConfig& config,
                                  const PairTextOptions& options) {
  JIGE_CHECK(options.tokens_max >= 1, "pairs of {} tokens", options.tokens_max);
  if (options.query.empty()) {
    return fail(Code::kInvalidArgument, "the query is empty; say what documents are wanted");
  }
  PairText made(tokenizer);
  made.options_ = options;
  if (config.join == formats::PairJoin::kQwen3) {
    JIGE_DO(made.frame_by_prompt());
  } else {
    JIGE_DO(made.frame_by_tokenizer(config));
  }
  const int64_t around = std::ssize(made.before_) + made.lead_count_ + std::ssize(made.behind_);
  if (around < options.tokens_max) return made;
  return fail(Code::kInvalidArgument,
              "the query has {} tokens with what the model puts around it, and {} are allowed for "
              "it and a document; shorten the query{}",
              around, options.tokens_max, options.hint);
}

Result<std::vector<int32_t>> PairText::ids_of(std::string_view text) const {
  return tokenizer_.encode(text, {.add_special = false, .allow_special = false});
}

Status PairText::frame_by_tokenizer(const formats::PairConfig& config) {
  if (!options_.instruction.empty()) {
    return fail(Code::kInvalidArgument,
                "the model takes no instruction; leave it out, or say it in the query");
  }
  const text::PairFrame* frame = tokenizer_.pair_frame();
  if (!frame) {
    return fail(Code::kUnsupported,
                "tokenizer.json does not say how two texts become one (field \"pair\" of its "
                "post_processor: the first text, then the second, with token types 0 and then 1); "
                "take the tokenizer that belongs to the model");
  }
  before_ = frame->before;
  JIGE_TRY(const std::vector<int32_t> query, ids_of(options_.query));
  append_ids(before_, query);
  if (frame->second_from && config.token_types > 1) {
    second_begin_ = static_cast<int32_t>(before_.size() + *frame->second_from);
  }
  append_ids(before_, frame->between);
  behind_ = frame->behind;
  return {};
}

Status PairText::frame_by_prompt() {
  const std::string_view instruction =
      options_.instruction.empty() ? kJudgeInstruction : std::string_view(options_.instruction);
  JIGE_TRY(before_, tokenizer_.encode(kJudgeBefore, {.add_special = false}));
  JIGE_TRY(behind_, tokenizer_.encode(kJudgeBehind, {.add_special = false}));
  lead_ = fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: ", instruction, options_.query);
  JIGE_TRY(const std::vector<int32_t> lead, ids_of(lead_));
  lead_count_ = std::ssize(lead);
  return {};
}

Result<EmbedInput> PairText::encode(std::string_view document) const {
  JIGE_TRY(std::vector<int32_t> text, ids_of(lead_ + std::string(document)));
  EmbedInput input{.second_begin = second_begin_};
  const int64_t room = options_.tokens_max - std::ssize(before_) - std::ssize(behind_);
  if (std::ssize(text) > room) {
    if (!options_.truncate) {
      return fail(Code::kInvalidArgument,
                  "query and document have {} tokens with what the model puts around them, and {} "
                  "are allowed; shorten the document{}",
                  std::ssize(text) + options_.tokens_max - room, options_.tokens_max,
                  options_.hint);
    }
    text.resize(static_cast<size_t>(room));
    input.truncated = true;
  }
  input.tokens = before_;
  append_ids(input.tokens, text);
  append_ids(input.tokens, behind_);
  return input;
}

}  // namespace jige::serve

#include "serve/answer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "ops/token_score.h"

namespace jige::serve {
namespace {

// Takes a decoder past the beginning of a text, where families with a mark for spaces drop the
// first one. A token of the prompt does that, and what it shows is passed over.
void go_behind(std::span<const int32_t> prompt, const text::Tokenizer& tokenizer,
               text::StreamDecoder& decoder) {
  constexpr size_t kTokensMax = 64;
  for (size_t i = 1; i <= std::min(prompt.size(), kTokensMax); ++i) {
    const int32_t id = prompt[prompt.size() - i];
    // A token of half a character would leave its half to the answer.
    text::StreamDecoder trial(tokenizer, {.skip_special = true});
    const auto shown = trial.push(id);
    if (!shown || shown->empty() || !trial.flush().empty()) continue;
    JIGE_CHECK(decoder.push(id).has_value(), "token {} was known a moment ago", id);
    return;
  }
}

}  // namespace

std::vector<int32_t> end_ids(const text::Tokenizer& tokenizer, const formats::ModelConfig& config) {
  std::vector<int32_t> ids = tokenizer.eos_ids();
  ids.insert(ids.end(), config.eos_ids.begin(), config.eos_ids.end());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Error told_of_weights(Error error) {
  if (error.code != Code::kInternal) return error;
  return {.code = Code::kCorrupt,
          .message =
              "the model's weights hold NaN, infinity, or numbers too large to compute "
              "with: " +
              error.message};
}

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopId:
    case FinishReason::kStopString:
    case FinishReason::kComplete:
      return "stop";
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "length";
}

Status validate(const AnswerOptions& options) {
  if (options.tokens_max < 1) {
    return fail(Code::kInvalidArgument, "tokens to generate are {}; it must be at least 1",
                options.tokens_max);
  }
  if (options.tokens_min < 0 || options.tokens_min > options.tokens_max) {
    return fail(Code::kInvalidArgument,
                "the least number of tokens to generate is {}; it must be in 0..{}, the most",
                options.tokens_min, options.tokens_max);
  }
  return ops::validate(options.sampling);
}

Answer::Answer(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt,
               AnswerOptions options)
    : tokenizer_(tokenizer),
      prompt_(prompt),
      options_(std::move(options)),
      own_bias_count_(options_.sampling.logit_bias.size()),
      rng_(derive_key(options_.seed, "sampling", static_cast<uint64_t>(options_.choice))),
      decoder_(std::in_place, tokenizer, text::DecodeOptions{.skip_special = true}),
      matcher_(options_.stop_strings, options_.include_stop_string),
      reasoning_(options_.reasoning) {
  if (ops::has_penalty(options_.sampling)) seen_.add_prompt(prompt_);
  if (options_.constraint) cursor_.emplace(options_.constraint);
  if (options_.continues_text || cursor_) go_behind(prompt_, tokenizer_, *decoder_);
  if (options_.tokens_min == 0) return;
  for (const int32_t id : options_.stop_ids) {
    options_.sampling.logit_bias.push_back({id, -INFINITY});
  }
}

void Answer::draw(std::span<const float> logits) {
  JIGE_CHECK(!done_, "an answer of {} tokens is complete", tokens_.size());
  if (options_.tokens_max == 0) return;
  const size_t bias_count = options_.sampling.logit_bias.size();
  forbid_rows();
  if (cursor_) {
    sampled_ = draw_constrained(logits);
  } else {
    std::span<const uint64_t> allowed;
    if (options_.allowed) allowed = *options_.allowed;
    sampled_ =
        ops::sample(logits, options_.sampling, prompt_, tokens_, rng_, options_.top_count, allowed);
  }
  if (options_.logprobs_as_losses && sampled_ && sampled_->token >= 0) {
    sampled_->logprob = ops::score_token(logits, sampled_->token, 0).logprob;
  }
  options_.sampling.logit_bias.resize(bias_count);
}

ops::RowDraw Answer::row_draw(int32_t ahead) const {
  const bool plain = options_.top_count == 0 && options_.tokens_max > 0 && !cursor_ &&
                     !options_.logprobs_as_losses && !options_.allowed &&
                     options_.forbidden_rows.empty();
  if (!plain) return {};
  // What comes before a row behind a guess is not known.
  if (ahead > 0 && ops::has_penalty(options_.sampling)) return {};
  Rng rng = rng_;
  for (int32_t i = 0; i < ahead; ++i) rng.uniform();
  return ops::row_draw(options_.sampling, rng.uniform(), seen_.all(), options_.logprobs);
}

void Answer::take_drawn(int32_t token, float logprob) {
  JIGE_CHECK(!done_, "an answer of {} tokens is complete", tokens_.size());
  rng_.uniform();  // as ops::sample does
  sampled_ = ops::SampledToken{.token = token, .logprob = logprob};
}

void Answer::forbid_rows() {
  for (const std::vector<int32_t>& row : options_.forbidden_rows) {
    const size_t before = row.size() - 1;
    if (before > tokens_.size() ||
        !std::equal(row.begin(), row.end() - 1, tokens_.end() - static_cast<int64_t>(before))) {
      continue;
    }
    options_.sampling.logit_bias.push_back({row.back(), -INFINITY});
  }
}

Status Answer::find_allowed() {
  if (reasoning_.is_inside()) {
    allow_reasoning();
  } else {
    JIGE_DO(allow_constrained());
  }
  for (size_t i = 0; options_.allowed && i < allowed_.size(); ++i) {
    allowed_[i] &= i < options_.allowed->size() ? (*options_.allowed)[i] : 0;
  }
  return {};
}

Result<ops::SampledToken> Answer::draw_constrained(std::span<const float> logits) {
  JIGE_DO(find_allowed());
  if (std::ranges::all_of(allowed_, [](uint64_t word) { return word == 0; })) {
    if (cursor_->accepts()) return ops::SampledToken{};
    return fail(Code::kInvalidArgument,
                "behind {} tokens no token of the model's vocabulary goes on with what the answer "
                "is constrained to",
                tokens_.size());
  }
  return ops::sample(logits, options_.sampling, prompt_, tokens_, rng_, options_.top_count,
                     allowed_);
}

// All but what would end the answer, and what would bring text behind the tag with the tag's end.
void Answer::allow_reasoning() {
  const grammar::TokenTrie& tokens = options_.constraint->trie();
  const auto count = static_cast<int32_t>(tokens.vocab_size());
  allowed_.assign(tokens.vocab_size() / 64 + 1, ~uint64_t{0});
  allowed_.back() = (uint64_t{1} << (count % 64)) - 1;
  for (const int32_t id : options_.stop_ids) allow(id, false);
  const std::string_view rest = reasoning_.rest_of_close();
  if (rest.empty()) return;
  for (int32_t id = 0; id < count; ++id) {
    const std::string_view text = tokens.text(id);
    if (text.size() > rest.size() && text.starts_with(rest)) allow(id, false);
  }
}

Status Answer::allow_constrained() {
  JIGE_TRY(const grammar::TokenSet set, cursor_->allowed());
  allowed_ = *set;
  for (const int32_t id : options_.stop_ids) allow(id, cursor_->accepts());
  if (!tokens_.empty() || !reasoning_.at_start()) return {};
  if (const auto open = tokenizer_.token_to_id(text::kReasoningOpen)) allow(*open, true);
  return {};
}

void Answer::allow(int32_t token, bool allowed) {
  const auto word = static_cast<size_t>(token) / 64;
  if (word >= allowed_.size()) allowed_.resize(word + 1);
  const uint64_t bit = uint64_t{1} << (token % 64);
  allowed_[word] = allowed ? allowed_[word] | bit : allowed_[word] & ~bit;
}

Status Answer::follow_token() {
  const bool was_inside = reasoning_.is_inside();
  const bool was_open = was_inside || reasoning_.at_start();
  if (was_open) {
    reasoning_.push(text_);
    if (reasoning_.is_opened()) reasoning_count_ = std::ssize(tokens_);
  }
  if (!cursor_ || was_inside) return {};
  if (!reasoning_.is_inside()) return cursor_->advance(last_drawn_);
  cursor_.emplace(options_.constraint);  // it begins behind the reasoning
  return {};
}

Result<AnswerPiece> Answer::accept() {
  JIGE_CHECK(!done_, "an answer of {} tokens is complete", tokens_.size());
  if (!sampled_) return tl::unexpected(sampled_.error());
  if (options_.tokens_max == 0) {
    finish_as(FinishReason::kLength);
    return AnswerPiece{};
  }
  if (sampled_->token < 0) {
    finish_as(FinishReason::kComplete);
    return AnswerPiece{};
  }
  last_drawn_ = sampled_->token;
  ++drawn_count_;
  if (std::ranges::find(options_.stop_ids, last_drawn_) != options_.stop_ids.end()) {
    finish_as(FinishReason::kStopId);
    return AnswerPiece{};
  }
  tokens_.push_back(last_drawn_);
  if (ops::has_penalty(options_.sampling)) seen_.add_generated(last_drawn_);
  JIGE_TRY(text_, text_of(last_drawn_));
  JIGE_DO(follow_token());
  const auto count = static_cast<int64_t>(tokens_.size());
  if (count > options_.tokens_min) {
    text_ = matcher_.push(text_);
  } else if (count == options_.tokens_min) {
    options_.sampling.logit_bias.resize(own_bias_count_);  // stop ids are allowed from now on
  }
  if (matcher_.matched()) {
    finish_as(FinishReason::kStopString);
  } else if (cursor_ && !reasoning_.is_inside() && cursor_->is_last()) {
    finish_as(FinishReason::kComplete);
  } else if (count >= options_.tokens_max) {
    finish_as(FinishReason::kLength);
  } else if (static_cast<int64_t>(prompt_.size()) + count >= options_.context_max) {
    finish_as(FinishReason::kContextFull);
  }
  return AnswerPiece{
      .token = last_drawn_, .text = text_, .logprob = sampled_->logprob, .top = sampled_->top};
}

// A model may have more rows than its tokenizer has tokens; those have no text.
Result<std::string> Answer::text_of(int32_t token) {
  if (token >= tokenizer_.vocab_size()) return std::string();
  if (!decoder_ && !cursor_) return std::string();  // nobody looks at it
  if (std::ranges::find(options_.shown_ids, token) != options_.shown_ids.end()) {
    return (decoder_ ? decoder_->flush() : "") + tokenizer_.id_to_token(token).value_or("");
  }
  if (decoder_) return decoder_->push(token);
  if (tokenizer_.is_special(token)) return std::string();
  return std::string(options_.constraint->trie().text(token));
}

void Answer::cancel() {
  if (!done_) finish_as(FinishReason::kCancelled);
}

void Answer::complete() {
  if (!done_) finish_as(FinishReason::kComplete);
}

void Answer::finish_as(FinishReason reason) {
  done_ = true;
  finish_ = reason;
}

std::string Answer::end() {
  if (matcher_.matched()) return {};
  std::string rest = matcher_.push(decoder_->flush());
  rest += matcher_.flush();
  return rest;
}

}  // namespace jige::serve

// Answer: one answer in the making. It turns rows of logits into tokens and text and knows when the
// answer is complete; who runs the model does not matter.
//
//   Answer answer(tokenizer, prompt, {.tokens_max = 100, .stop_ids = {2}});
//   do {
//     JIGE_TRY(const AnswerPiece piece, answer.take(logits_behind_the_last_token));
//     …show piece.text…
//   } while (!answer.done());
//   …show answer.end()…
//
// The tokens depend on the logits, the prompt and the options only: choice i of a seed draws from a
// stream of its own, whatever else is being answered.
// Threads: one at a time; several answers may draw() at once, each on a thread of its own. The
// tokenizer and the prompt must outlive the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "formats/model_config.h"
#include "grammar/constraint.h"
#include "ops/sampling.h"
#include "serve/seen_tokens.h"
#include "serve/stop_matcher.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"

namespace jige::serve {

// kComplete: the constraint lets nothing follow, or no answer was wanted in the first place.
enum class FinishReason { kStopId, kStopString, kComplete, kLength, kContextFull, kCancelled };
inline constexpr int kFinishReasonCount = 6;
// "stop", "stop", "stop", "length", "length", "cancelled": as APIs name them.
std::string_view finish_reason_name(FinishReason reason);

// The tokens that end an answer: those of the tokenizer's files and of the model's own.
std::vector<int32_t> end_ids(const text::Tokenizer& tokenizer, const formats::ModelConfig& config);

// What an answer failed with; where no token can be drawn from its logits (kInternal), said of the
// weights, as kCorrupt: sums of finite ones are finite unless they are too large.
Error told_of_weights(Error error);

struct AnswerOptions {
  ops::SamplingParams sampling;
  uint64_t seed = 0;
  int32_t choice = 0;                     // which of the seed's streams
  int64_t tokens_max = 256;               // new ones, at most; 0: none, and nothing is drawn
  int64_t tokens_min = 0;                 // nothing stops the answer before
  int64_t context_max = INT64_MAX;        // prompt and answer together
  std::vector<int32_t> stop_ids;          // end the answer and are not part of it
  std::vector<std::string> stop_strings;  // likewise, looked for behind the first tokens_min tokens
  bool include_stop_string = false;       // it is part of the text after all
  bool logprobs = true;                   // log-probabilities of tokens are wanted
  // They have the bits of the losses that training and Scorer compute (ops/token_score.h).
  bool logprobs_as_losses = false;
  int top_count = 0;               // alternatives reported for each token
  std::vector<int32_t> shown_ids;  // special tokens whose names are part of the text
  // The answer goes on with the prompt's text: a space that parts the two is shown.
  bool continues_text = false;
  // What the answer may be; null: anything. Stop ids are then drawn where it may end, and nothing
  // of its text is dropped.
  std::shared_ptr<grammar::Constraint> constraint;
  std::shared_ptr<const grammar::TokenBits> allowed;  // tokens that may be drawn; null: all
  // Rows of tokens that do not come in an answer: behind all but the last, the last is not drawn.
  std::vector<std::vector<int32_t>> forbidden_rows;
  // Reasoning is counted, and `constraint` holds behind it: stop ids cannot come in it then, it
  // ends with a token that brings nothing behind its tag, and an answer may open it where the tag
  // is a token. REQUIRES: tags that are special tokens are among shown_ids.
  text::ReasoningStart reasoning = text::ReasoningStart::kNone;
};

// Fails with kInvalidArgument on limits that contradict each other or ask for no token, and as
// ops::validate does.
Status validate(const AnswerOptions& options);

// One new token. `text` is what can be shown now: empty while half a character or a possible
// beginning of a stop string is held back.
struct AnswerPiece {
  int32_t token = -1;  // -1: no token, only text (the rest, at the end)
  std::string_view text;
  float logprob = 0;
  std::span<const ops::TokenLogProb> top;
};

class Answer {
 public:
  // REQUIRES: validate(options), but for tokens_max 0; prompt.size() < options.context_max.
  Answer(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt, AnswerOptions options);

  // Chooses the next token from the logits behind the last one. REQUIRES: !done().
  void draw(std::span<const float> logits);
  // How the token behind the next `ahead` ones is found where its logits are: of kind kHost where
  // more is wanted of these, or they are changed first.
  ops::RowDraw row_draw(int32_t ahead = 0) const;
  // draw() of what was found by row_draw(), with its log-probability where that is wanted.
  // REQUIRES: !done().
  void take_drawn(int32_t token, float logprob);
  // Makes what was drawn part of the answer. The piece is valid until the next call; it has no
  // token when a stop id was met. Fails as ops::sample and grammar::ConstraintCursor do, and with
  // kInvalidArgument where no token can go on with the constraint. REQUIRES: draw(), !done().
  Result<AnswerPiece> accept();
  // Both.
  Result<AnswerPiece> take(std::span<const float> logits) {
    draw(logits);
    return accept();
  }
  // Whether more than the logits says which token comes: penalties, biases, tokens and rows that
  // are forbidden, a constraint.
  bool has_rules() const;
  bool has_constraint() const { return cursor_.has_value(); }
  // How it may go on, to guess by: an answer with the same rules, that has no text but what the
  // rules look at and takes the likeliest tokens. Tokenizer and prompt must outlive it, too.
  // REQUIRES: !done().
  Answer ahead() const;
  // Of an answer ahead: takes a token that the answer may have and goes on behind; else false, and
  // nothing may follow. REQUIRES: !done().
  bool follow(int32_t token);
  // The same with the token that it would take from these logits, which is told.
  std::optional<int32_t> guess(std::span<const float> logits);
  // The token that has to come: the only one that may or, where all that may are beginnings of one,
  // the longest of them. Nothing where there is a choice, or the answer may end. REQUIRES: !done().
  struct Forced {
    int32_t token = -1;
    bool only = false;  // no other one may come
  };
  std::optional<Forced> forced();
  // Ends an unfinished answer as cancelled.
  void cancel();
  // Ends one of which no token is wanted.
  void complete();
  // The text still held back; once, after the end.
  std::string end();

  bool done() const { return done_; }
  // Why it ended. REQUIRES: done().
  FinishReason finish() const { return finish_; }
  // Without the stop id.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // What was drawn last, a stop id too: what the model is to be run with next.
  int32_t last_drawn() const { return last_drawn_; }
  // Tokens drawn, a stop id among them.
  int64_t drawn_count() const { return drawn_count_; }
  // Tokens up to the end of the reasoning, its tags among them.
  int64_t reasoning_count() const { return reasoning_count_; }
  // What ended it, for finish kStopId and kStopString.
  int32_t stop_id() const { return finish_ == FinishReason::kStopId ? last_drawn_ : -1; }
  const std::string& stop_string() const { return matcher_.matched_stop(); }
  // What was drawn last, with its log-probability. REQUIRES: take() has succeeded.
  const ops::SampledToken& last_sampled() const { return *sampled_; }

 private:
  struct Ahead {};
  Answer(const Answer& answer, Ahead);
  bool goes_on();
  Result<std::string> text_of(int32_t token);
  // What may come next of a constrained answer, to allowed_.
  Status find_allowed();
  Result<ops::SampledToken> draw_constrained(std::span<const float> logits);
  void forbid_rows();
  void allow_reasoning();
  Status allow_constrained();
  void allow(int32_t token, bool allowed);
  // Takes in the last token, whose text text_ is.
  Status follow_token();
  void finish_as(FinishReason reason);

  const text::Tokenizer& tokenizer_;
  std::span<const int32_t> prompt_;
  AnswerOptions options_;
  // Of options_.sampling.logit_bias; behind them: stop ids, while they are forbidden.
  size_t own_bias_count_;
  Rng rng_;
  std::optional<text::StreamDecoder> decoder_;  // none: an answer ahead
  StopMatcher matcher_;
  std::vector<int32_t> tokens_;
  SeenTokens seen_;                    // where they are penalised
  Result<ops::SampledToken> sampled_;  // token -1: the constraint is at its end
  text::ReasoningParser reasoning_;
  int64_t reasoning_count_ = 0;
  std::optional<grammar::ConstraintCursor> cursor_;
  grammar::TokenBits allowed_;  // of the token that is being drawn
  std::string text_;
  int32_t last_drawn_ = -1;
  int64_t drawn_count_ = 0;
  bool done_ = false;
  FinishReason finish_ = FinishReason::kLength;
};

}  // namespace jige::serve

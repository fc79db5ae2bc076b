#include "serve/live_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace jige::serve {
namespace {

static_assert(plan::kBaseAdapter == model::kNoAdapter);

AnswerOptions answer_options(const EngineRequest& request, std::span<const int32_t> eos_ids,
                             int64_t context_max, int32_t choice) {
  AnswerOptions options{.sampling = request.sampling,
                        .seed = request.seed,
                        .choice = choice,
                        .tokens_max = request.tokens_max,
                        .tokens_min = request.tokens_min,
                        .context_max = context_max,
                        .stop_ids = request.stop_ids,
                        .stop_strings = request.stop_strings,
                        .include_stop_string = request.include_stop_string,
                        .logprobs = request.logprobs,
                        .logprobs_as_losses = request.logprobs_as_losses,
                        .top_count = request.top_count,
                        .shown_ids = request.shown_ids,
                        .continues_text = request.continues_text,
                        .constraint = request.constraint,
                        .allowed = request.allowed,
                        .forbidden_rows = request.forbidden_rows,
                        .reasoning = request.reasoning};
  if (!request.ignore_eos) {
    options.stop_ids.insert(options.stop_ids.end(), eos_ids.begin(), eos_ids.end());
  }
  return options;
}

std::shared_ptr<const GivenTable> given_table(const EngineRequest& request) {
  if (request.given.empty()) return nullptr;
  return std::make_shared<const GivenTable>(request.given, request.prompt);
}

}  // namespace

LiveRequest::LiveRequest(Submission submission, const text::Tokenizer& tokenizer,
                         std::span<const int32_t> eos_ids, int64_t context_max,
                         EngineHistograms& histograms)
    : id_(submission.id),
      request_(std::move(submission.request)),
      sink_(std::move(submission.sink)),
      submit_ns_(submission.submit_ns),
      context_max_(context_max),
      histograms_(histograms),
      given_(given_table(request_)),
      tokens_(given_ ? given_->tokens(request_.prompt) : std::vector<int32_t>()) {
  if (request_.vector) {
    pooler_.emplace(request_.vector->form, prompt_tokens(), request_.vector->prompt_count);
    pooled_end_ = pooler_->first();
    context_max = INT64_MAX;  // no answer needs room behind the prompt
  }
  choices_.reserve(static_cast<size_t>(request_.choice_count));
  for (int32_t i = 0; i < request_.choice_count; ++i) {
    choices_.push_back(
        {.answer = Answer(tokenizer, prompt(), answer_options(request_, eos_ids, context_max, i))});
  }
}

plan::RequestSpec LiveRequest::spec() const {
  const int64_t room = context_max_ - prompt_tokens();
  int32_t cached_max = request_.prompt_top_count ? 0 : INT32_MAX;
  if (pooler_) cached_max = static_cast<int32_t>(pooler_->first());
  // With no token asked for, the prompt's last one has a place to be run to.
  const int64_t tokens_max = pooler_ ? 0 : std::clamp<int64_t>(request_.tokens_max, 1, room);
  return {
      .id = id_,
      .prompt = request_.prompt,
      .max_new_tokens = static_cast<int32_t>(tokens_max),
      .fork_count = request_.choice_count - 1,
      .priority = request_.priority,
      .tenant = request_.tenant,
      .cache_salt = request_.cache_salt,
      .cached_max = cached_max,
      .adapter = request_.adapter,
      .whole_runs = given_ ? given_->mutual_runs(request_.prompt) : std::vector<plan::TokenRun>()};
}

RequestRow LiveRequest::row() const {
  RequestRow row{.id = id_,
                 .prompt_tokens = prompt_tokens(),
                 .computed_tokens = computed_tokens_,
                 .tokens_max = request_.tokens_max,
                 .choice_count = request_.choice_count,
                 .preemptions = preemptions_,
                 .priority = request_.priority,
                 .tenant = request_.tenant,
                 .adapter = request_.adapter};
  for (const Choice& choice : choices_) row.generated_tokens += std::ssize(choice.answer.tokens());
  if (is_preempted_) {
    row.state = RequestRow::State::kPreempted;
  } else if (got_first_token()) {
    row.state = RequestRow::State::kDecode;
  } else if (begun()) {
    row.state = RequestRow::State::kPrefill;
  }
  return row;
}

void LiveRequest::begin(int64_t cached_tokens, int64_t now_ns) {
  begin_ns_ = now_ns;
  cached_tokens_ = cached_tokens;
  histograms_.queue_seconds.observe(seconds_between(submit_ns_, now_ns));
  histograms_.prompt_tokens.observe(static_cast<double>(prompt_tokens()));
  if (request_.prompt_top_count) prompt_scores_.resize(request_.prompt.size() - 1);
}

void LiveRequest::computed(int32_t choice, int64_t computed_tokens) {
  is_preempted_ = false;
  if (choice > 0) return;
  ++iterations_;
  computed_tokens_ = computed_tokens;
}

void LiveRequest::preempted() {
  ++preemptions_;
  is_preempted_ = true;
}

BatchRunner::RowRange LiveRequest::wanted_range(const plan::WorkItem& item) const {
  const int64_t end = pooler_ ? pooler_->end() : std::ssize(prompt_scores_);
  const int64_t left = end - item.context_count;
  const int64_t done = (pooler_ ? pooled_end_ : scored_count_) - item.context_count;
  if (item.request != id_ || left <= 0) return {};
  return {.begin = static_cast<int32_t>(std::max<int64_t>(done, 0)),
          .end = static_cast<int32_t>(std::min(left, std::ssize(item.tokens)))};
}

void LiveRequest::score(int64_t position, std::span<const float> logits) {
  const auto at = static_cast<size_t>(position);
  prompt_scores_[at] =
      ops::score_token(logits, request_.prompt[at + 1], request_.prompt_top_count.value_or(0));
}

Status LiveRequest::take_score(int64_t position) {
  JIGE_CHECK(position == scored_count_, "request {}: the score at {} comes behind {}", id_,
             position, scored_count_);
  const float logprob = prompt_scores_[static_cast<size_t>(position)].logprob;
  if (!std::isfinite(logprob)) {
    return jige::fail(
        Code::kCorrupt,
        "the model's weights hold NaN, infinity, or numbers too large to compute with: the "
        "log-probability of token {} of the prompt is {}",
        position + 1, logprob);
  }
  ++scored_count_;
  return {};
}

void LiveRequest::pool(int64_t position, std::span<const float> row) {
  JIGE_CHECK(position == pooled_end_, "request {}: the row at {} comes behind {}", id_, position,
             pooled_end_);
  pooler_->add(position, row);
  ++pooled_end_;
}

Status LiveRequest::finish_vector(int64_t now_ns) {
  JIGE_CHECK(pooled_end_ == pooler_->end(), "request {}: {} of {} rows were taken", id_,
             pooled_end_, pooler_->end());
  JIGE_TRY(const std::vector<float> vector, pooler_->finish());
  mark_first_result(now_ns);
  choices_.front().answer.complete();
  sink_->on_vector(vector);
  return {};
}

void LiveRequest::tell_prompt() {
  JIGE_CHECK(scored_count_ == prompt_tokens() - 1, "request {}: {} of {} tokens are scored", id_,
             scored_count_, prompt_tokens());
  sink_->on_prompt(prompt_scores_);
  prompt_scores_ = {};
}

void LiveRequest::drafted(int64_t count, int64_t accepted) {
  drafted_tokens_ += count;
  accepted_tokens_ += accepted;
}

TokenSequence LiveRequest::tokens(int32_t choice) const {
  return {prompt(), answer(choice).tokens()};
}

int64_t LiveRequest::tokens_left(int32_t choice) const {
  return std::min(request_.tokens_max, context_max_ - prompt_tokens()) -
         std::ssize(answer(choice).tokens());
}

const Answer& LiveRequest::answer(int32_t choice) const {
  return choices_[static_cast<size_t>(choice)].answer;
}

void LiveRequest::draw(int32_t choice, std::span<const float> logits) {
  choices_[static_cast<size_t>(choice)].answer.draw(logits);
}

void LiveRequest::take_drawn(int32_t choice, int32_t token, float logprob) {
  choices_[static_cast<size_t>(choice)].answer.take_drawn(token, logprob);
}

Status LiveRequest::take(int32_t index, int64_t now_ns) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  JIGE_TRY(const AnswerPiece piece, choice.answer.accept());
  if (first_token_ns_ == 0) {
    mark_first_result(now_ns);
    if (request_.prompt_top_count) tell_prompt();
  }
  if (choice.last_token_ns > 0) {
    histograms_.inter_token_seconds.observe(seconds_between(choice.last_token_ns, now_ns));
  }
  choice.last_token_ns = now_ns;
  if (piece.token >= 0) sink_->on_piece(index, piece);
  return {};
}

void LiveRequest::mark_first_result(int64_t now_ns) {
  first_token_ns_ = now_ns;
  histograms_.first_token_seconds.observe(seconds_between(submit_ns_, now_ns));
  histograms_.prefill_seconds.observe(seconds_between(begin_ns_, now_ns));
}

void LiveRequest::cancel() {
  for (Choice& choice : choices_) choice.answer.cancel();
}

void LiveRequest::end_choice(int32_t index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  JIGE_CHECK(choice.answer.done() && !choice.over, "choice {} of request {} cannot end", index,
             id_);
  choice.over = true;
  ++over_count_;
  finish_ = choice.answer.finish();
  const std::string rest = choice.answer.end();
  if (!rest.empty()) sink_->on_piece(index, {.text = rest});
  ChoiceEnd end{.choice = index,
                .finish = finish_,
                .generated_tokens = std::ssize(choice.answer.tokens()),
                .stop_id = choice.answer.stop_id(),
                .stop_string = choice.answer.stop_string()};
  if (finish_ == FinishReason::kStopId) {
    end.stop_logprob = choice.answer.last_sampled().logprob;
    end.stop_top = choice.answer.last_sampled().top;
  }
  sink_->on_choice(end);
}

RequestReport LiveRequest::report(int64_t now_ns) const {
  RequestReport report{.prompt_tokens = prompt_tokens(),
                       .cached_tokens = cached_tokens_,
                       .drafted_tokens = drafted_tokens_,
                       .accepted_tokens = accepted_tokens_,
                       .preemptions = preemptions_,
                       .iterations = iterations_};
  for (const Choice& choice : choices_) {
    report.generated_tokens += std::ssize(choice.answer.tokens());
    report.reasoning_tokens += choice.answer.reasoning_count();
  }
  // A phase that was not reached took no time; the one that was cut off took the rest.
  const int64_t begin_ns = begun() ? begin_ns_ : now_ns;
  const int64_t first_ns = got_first_token() ? first_token_ns_ : now_ns;
  report.queue_seconds = seconds_between(submit_ns_, begin_ns);
  report.prefill_seconds = seconds_between(begin_ns, first_ns);
  report.decode_seconds = seconds_between(first_ns, now_ns);
  return report;
}

void LiveRequest::finish(int64_t now_ns) {
  JIGE_CHECK(all_over(), "request {} is not over", id_);
  const RequestReport done = report(now_ns);
  histograms_.total_seconds.observe(done.total_seconds());
  if (got_first_token() && !pooler_) histograms_.decode_seconds.observe(done.decode_seconds);
  histograms_.generated_tokens.observe(static_cast<double>(done.generated_tokens));
  sink_->on_done(done);
}

void LiveRequest::set_error(Error error) {
  if (!error_) error_ = std::move(error);
}

void LiveRequest::fail() {
  JIGE_CHECK(error_, "request {} has not failed", id_);
  sink_->on_failed(*error_);
}

}  // namespace jige::serve

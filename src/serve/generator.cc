#include "serve/generator.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "serve/context_hint.h"

namespace jige::serve {
namespace {

// The next turn of a chat begins with this prompt but for its last tokens, which open the answer.
constexpr size_t kBeforeAnswer = 16;
// The name of the one sequence that there is.
constexpr plan::RequestId kSequence = 0;

}  // namespace

// What one generate() call carries along.
struct Generator::Run {
  std::span<const int32_t> prompt;
  const GivenTable& given;
  std::span<const int32_t> tokens;  // the prompt with a token for each given row
  const GenerateOptions& options;
  const PieceCallback& callback;
  Generation out;
  StopWatch watch;
  Answer answer;

  bool cancelled() const {
    return options.cancelled && options.cancelled->load(std::memory_order_relaxed);
  }
};

double GenerationStats::prefill_tokens_per_s() const {
  const auto count = static_cast<double>(prompt_tokens - reused_tokens);
  return prefill_seconds > 0 ? count / prefill_seconds : 0;
}

double GenerationStats::decode_tokens_per_s() const {
  const auto count = static_cast<double>(generated_tokens - 1);
  return decode_seconds > 0 ? count / decode_seconds : 0;
}

Generator::Generator(model::InferenceModel& model, const text::Tokenizer& tokenizer,
                     int32_t adapter, DraftModel* draft_model)
    : model_(model), tokenizer_(tokenizer), cached_(model, adapter), draft_model_(draft_model) {}

AnswerOptions Generator::answer_options(const GenerateOptions& options) const {
  return {.sampling = options.sampling,
          .seed = options.seed,
          .choice = options.choice,
          .tokens_max = options.tokens_max,
          .context_max = context_max(),
          .stop_ids = options.stop_ids,
          .stop_strings = options.stop_strings,
          .logprobs = options.logprobs,
          .top_count = options.top_count,
          .shown_ids = options.shown_ids,
          .continues_text = options.continues_text,
          .constraint = options.constraint,
          .reasoning = options.reasoning};
}

Status Generator::check(std::span<const int32_t> prompt, const GenerateOptions& options,
                        const GivenTable& given) const {
  const auto prompt_count = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) {
    return fail(Code::kInvalidArgument, "the prompt is empty; give at least one token");
  }
  if (prompt_count >= context_max()) {
    return fail(Code::kInvalidArgument,
                "the prompt has {} tokens and the context holds {}; shorten the prompt{}",
                prompt_count, context_max(),
                context_hint(context_max(), cached_.model_context_max()));
  }
  if (options.chunk_tokens < 1) {
    return fail(Code::kInvalidArgument, "tokens of a chunk are {}; it must be at least 1",
                options.chunk_tokens);
  }
  JIGE_DO(given.check({.vocab_size = model_.config().vocab_size,
                       .width = model_.config().hidden_size,
                       .turns_by_places = model_.turns_by_places(),
                       .layer_count = model_.config().layer_count}));
  JIGE_DO(given.check_mutual(prompt, model_.sizes().batch_tokens_max));
  JIGE_DO(validate(options.drafts));
  return validate(answer_options(options));
}

Result<Generation> Generator::generate(std::span<const int32_t> prompt,
                                       const GenerateOptions& options,
                                       const PieceCallback& callback) {
  const GivenTable given(options.given, prompt);
  JIGE_DO(check(prompt, options, given));
  const std::vector<int32_t> tokens = given.tokens(prompt);
  Run run{.prompt = prompt,
          .given = given,
          .tokens = tokens,
          .options = options,
          .callback = callback,
          .answer = Answer(tokenizer_, tokens, answer_options(options))};
  JIGE_TRY(const std::span<const float> logits, prefill(run));
  if (!logits.empty()) JIGE_DO(decode(run, logits));
  finish(run);
  return std::move(run.out);
}

size_t Generator::marked_place(size_t prompt_count) const {
  return cached_.marks() && prompt_count > kBeforeAnswer ? prompt_count - kBeforeAnswer : 0;
}

// Empty logits mean that the run was cancelled.
Result<std::span<const float>> Generator::prefill(Run& run) {
  // The last token is run again in any case: its logits are what the answer starts from.
  cached_.keep_common(run.prompt, run.prompt.size() - 1);
  begin_drafts(run);
  run.out.stats.prompt_tokens = static_cast<int64_t>(run.prompt.size());
  run.out.stats.reused_tokens = static_cast<int64_t>(cached_.size());
  const auto chunk =
      static_cast<size_t>(std::min(run.options.chunk_tokens, model_.sizes().batch_tokens_max));
  const std::vector<plan::TokenRun> whole = run.given.mutual_runs(run.prompt);
  const size_t mark = marked_place(run.prompt.size());
  if (mark > 0 && cached_.size() >= mark) cached_.mark();
  std::span<const float> logits;
  while (cached_.size() < run.prompt.size()) {
    if (run.cancelled()) {
      run.answer.cancel();
      return std::span<const float>();
    }
    const auto rest = run.prompt.subspan(cached_.size());
    const bool before_mark = cached_.size() < mark;
    const size_t until = before_mark ? mark - cached_.size() : rest.size();
    const int32_t count = plan::uncut_count_at_least(whole, static_cast<int32_t>(cached_.size()),
                                                     static_cast<int32_t>(std::min(chunk, until)));
    const auto part = rest.first(static_cast<size_t>(count));
    JIGE_TRY(logits, cached_.extend(part, part.size() == rest.size() ? 1 : 0, run.given));
    if (before_mark && cached_.size() == mark) cached_.mark();
  }
  run.out.stats.prefill_seconds = run.watch.seconds();
  return logits;
}

// Samples one token and shows its text; the last one where the run was cancelled meanwhile.
Status Generator::take_token(Run& run, const model::LogitRows& rows, size_t row) {
  if (const int32_t token = rows.token(row); token >= 0) {
    run.answer.take_drawn(token, rows.logprob(row));
  } else {
    run.answer.draw(rows.row(row));
  }
  Result<AnswerPiece> taken = run.answer.accept();
  if (!taken) return tl::unexpected(told_of_weights(taken.error()));
  JIGE_TRY(const AnswerPiece piece, std::move(taken));
  if (run.answer.drawn_count() == 1) run.out.stats.first_token_seconds = run.watch.seconds();
  run.out.text += piece.text;
  if (run.callback && piece.token >= 0) run.callback(piece);
  if (!run.answer.done() && run.cancelled()) run.answer.cancel();
  return {};
}

Status Generator::decode(Run& run, std::span<const float> logits) {
  JIGE_DO(take_token(run, {.logits = logits, .columns = logits.size()}, 0));
  while (!run.answer.done()) {
    const std::span<const int32_t> piece = next_piece(run);
    const StopWatch watch;
    draws_.clear();
    for (int32_t row = 0; row < std::ssize(piece); ++row) {
      draws_.push_back(run.answer.row_draw(row));
    }
    const auto rows_run = static_cast<int64_t>(cached_.again_count() + piece.size());
    JIGE_TRY(const model::LogitRows rows, cached_.extend_drawn(piece, draws_, run.given));
    if (drafts_) drafts_->add_step(rows_run, watch.seconds(), piece.size() > 1 ? 1 : 0);
    size_t right = 1;  // tokens of the piece that are the sequence's
    for (;; ++right) {
      JIGE_DO(take_token(run, rows, right - 1));
      if (run.answer.done() || right == piece.size()) break;
      if (run.answer.last_drawn() != piece[right]) break;
    }
    cached_.take_back(piece.size() - right);
    run.out.stats.drafted_tokens += std::ssize(piece) - 1;
    run.out.stats.accepted_tokens += static_cast<int64_t>(right) - 1;
    ++run.out.stats.decode_steps;
    if (!drafts(run)) continue;
    run.out.stats.guesses.add(drafts_->sources(kSequence, std::ssize(piece) - 1),
                              static_cast<int64_t>(right) - 1);
  }
  return {};
}

bool Generator::drafts(const Run& run) const {
  return run.options.drafts.tokens_max > 0 && cached_.goes_back();
}

void Generator::begin_drafts(const Run& run) {
  if (drafts(run) && (!drafts_ || drafts_->options() != run.options.drafts)) {
    const int64_t rows = std::min(model_.sizes().logit_rows_max, model_.sizes().batch_tokens_max);
    drafts_ = std::make_unique<EngineDrafts>(run.options.drafts, 1, context_max(), rows,
                                             draft_model_, state_costs(model_));
  }
  if (drafts_) drafts_->begin_again(kSequence);
}

std::span<const int32_t> Generator::next_piece(Run& run) {
  piece_.assign(1, run.answer.last_drawn());
  if (!drafts(run)) return piece_;
  const TokenSequence tokens{run.tokens, run.answer.tokens()};
  drafts_->follow(
      kSequence, tokens,
      std::min(run.options.tokens_max - std::ssize(tokens.generated),
               context_max() - static_cast<int64_t>(tokens.size())),
      {.answer = &run.answer, .again_count = static_cast<int32_t>(cached_.again_count())});
  drafts_->decide([&](plan::RequestId, std::span<const int32_t> draft, int32_t) {
    piece_.insert(piece_.end(), draft.begin(), draft.end());
  });
  return piece_;
}

void Generator::finish(Run& run) {
  GenerationStats& stats = run.out.stats;
  stats.generated_tokens = run.answer.drawn_count();
  if (stats.generated_tokens > 0) {
    stats.decode_seconds = run.watch.seconds() - stats.first_token_seconds;
  }
  run.out.finish = run.answer.finish();
  run.out.tokens = run.answer.tokens();
  const std::string rest = run.answer.end();
  if (rest.empty()) return;
  run.out.text += rest;
  if (run.callback) run.callback({.text = rest});
}

}  // namespace jige::serve

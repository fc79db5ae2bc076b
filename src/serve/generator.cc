#include "serve/generator.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "serve/context_hint.h"

namespace jige::serve {
namespace {

// Sums of finite weights are finite unless they are too large: it is the folder that is at fault.
tl::unexpected<Error> unusable(const std::string& reason) {
  return fail(Code::kCorrupt,
              "the model's weights hold NaN, infinity, or numbers too large to compute with: {}",
              reason);
}

}  // namespace

// What one generate() call carries along.
struct Generator::Run {
  std::span<const int32_t> prompt;
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

Generator::Generator(model::InferenceModel& model, const text::Tokenizer& tokenizer)
    : model_(model), tokenizer_(tokenizer), cached_(model) {}

AnswerOptions Generator::answer_options(const GenerateOptions& options) const {
  return {.sampling = options.sampling,
          .seed = options.seed,
          .choice = options.choice,
          .tokens_max = options.tokens_max,
          .context_max = context_max(),
          .stop_ids = options.stop_ids,
          .stop_strings = options.stop_strings,
          .top_count = options.top_count,
          .continues_text = options.continues_text,
          .constraint = options.constraint};
}

Status Generator::check(std::span<const int32_t> prompt, const GenerateOptions& options) const {
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
  return validate(answer_options(options));
}

Result<Generation> Generator::generate(std::span<const int32_t> prompt,
                                       const GenerateOptions& options,
                                       const PieceCallback& callback) {
  JIGE_DO(check(prompt, options));
  Run run{.prompt = prompt,
          .options = options,
          .callback = callback,
          .answer = Answer(tokenizer_, prompt, answer_options(options))};
  JIGE_TRY(const std::span<const float> logits, prefill(run));
  if (!logits.empty()) JIGE_DO(decode(run, logits));
  finish(run);
  return std::move(run.out);
}

// Empty logits mean that the run was cancelled.
Result<std::span<const float>> Generator::prefill(Run& run) {
  // The last token is run again in any case: its logits are what the answer starts from.
  cached_.keep_common(run.prompt, run.prompt.size() - 1);
  run.out.stats.prompt_tokens = static_cast<int64_t>(run.prompt.size());
  run.out.stats.reused_tokens = static_cast<int64_t>(cached_.size());
  const auto chunk =
      static_cast<size_t>(std::min(run.options.chunk_tokens, model_.sizes().batch_tokens_max));
  std::span<const float> logits;
  while (cached_.size() < run.prompt.size()) {
    if (run.cancelled()) {
      run.answer.cancel();
      return std::span<const float>();
    }
    const auto rest = run.prompt.subspan(cached_.size());
    const auto part = rest.first(std::min(chunk, rest.size()));
    JIGE_TRY(logits, cached_.extend(part, part.size() == rest.size()));
  }
  run.out.stats.prefill_seconds = run.watch.seconds();
  return logits;
}

// Samples one token and shows its text.
Status Generator::take_token(Run& run, std::span<const float> logits) {
  Result<AnswerPiece> taken = run.answer.take(logits);
  if (!taken && taken.error().code == Code::kInternal) return unusable(taken.error().message);
  JIGE_TRY(const AnswerPiece piece, std::move(taken));
  if (run.answer.drawn_count() == 1) run.out.stats.first_token_seconds = run.watch.seconds();
  run.out.text += piece.text;
  if (run.callback && piece.token >= 0) run.callback(piece);
  return {};
}

Status Generator::decode(Run& run, std::span<const float> logits) {
  for (;;) {
    JIGE_DO(take_token(run, logits));
    if (!run.answer.done() && run.cancelled()) run.answer.cancel();
    if (run.answer.done()) return {};
    const int32_t token = run.answer.last_drawn();
    JIGE_TRY(logits, cached_.extend(std::span(&token, 1), true));
  }
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

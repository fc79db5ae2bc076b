#include "serve/generator.h"

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"
#include "serve/stop_matcher.h"

namespace jige::serve {

// What one generate() call carries along.
struct Generator::Run {
  std::span<const int32_t> prompt;
  const GenerateOptions& options;
  const PieceCallback& callback;
  Generation out;
  StopWatch watch;
  Rng rng;
  text::StreamDecoder decoder;
  StopMatcher matcher;

  bool cancelled() const {
    return options.cancelled && options.cancelled->load(std::memory_order_relaxed);
  }
};

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopId:
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kLength:
    case FinishReason::kContextFull:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "length";
}

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

Status Generator::check(std::span<const int32_t> prompt, const GenerateOptions& options) const {
  const auto prompt_count = static_cast<int64_t>(prompt.size());
  if (prompt.empty()) {
    return fail(Code::kInvalidArgument, "the prompt is empty; give at least one token");
  }
  if (prompt_count >= context_max()) {
    return fail(Code::kInvalidArgument,
                "the prompt has {} tokens and the context holds {}; shorten the prompt or load the "
                "model with a longer context",
                prompt_count, context_max());
  }
  if (options.tokens_max < 1 || options.chunk_tokens < 1) {
    return fail(Code::kInvalidArgument,
                "tokens to generate ({}) and per chunk ({}) must be at least 1", options.tokens_max,
                options.chunk_tokens);
  }
  return ops::validate(options.sampling);
}

Result<Generation> Generator::generate(std::span<const int32_t> prompt,
                                       const GenerateOptions& options,
                                       const PieceCallback& callback) {
  JIGE_DO(check(prompt, options));
  Run run{.prompt = prompt,
          .options = options,
          .callback = callback,
          .rng = Rng(derive_key(options.seed, "sampling")),
          .decoder = text::StreamDecoder(tokenizer_, {.skip_special = true}),
          .matcher = StopMatcher(options.stop_strings)};
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
      run.out.finish = FinishReason::kCancelled;
      return std::span<const float>();
    }
    const auto rest = run.prompt.subspan(cached_.size());
    const auto part = rest.first(std::min(chunk, rest.size()));
    JIGE_TRY(logits, cached_.extend(part, part.size() == rest.size()));
  }
  run.out.stats.prefill_seconds = run.watch.seconds();
  return logits;
}

// Samples one token and shows its text; false when the answer is complete.
Result<bool> Generator::take_token(Run& run, std::span<const float> logits) {
  const GenerateOptions& options = run.options;
  JIGE_TRY(const ops::SampledToken sampled,
           ops::sample(logits, options.sampling, run.prompt, run.out.tokens, run.rng,
                       options.top_count));
  GenerationStats& stats = run.out.stats;
  if (++stats.generated_tokens == 1) stats.first_token_seconds = run.watch.seconds();
  const auto& stops = options.stop_ids;
  if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end()) {
    run.out.finish = FinishReason::kStopId;
    return false;
  }
  run.out.tokens.push_back(sampled.token);
  // A model may have more rows than its tokenizer has tokens; those have no text.
  std::string text;
  if (sampled.token < tokenizer_.vocab_size()) {
    JIGE_TRY(text, run.decoder.push(sampled.token));
  }
  text = run.matcher.push(text);
  run.out.text += text;
  if (run.callback) {
    run.callback(
        {.token = sampled.token, .text = text, .logprob = sampled.logprob, .top = sampled.top});
  }
  if (run.matcher.matched()) {
    run.out.finish = FinishReason::kStopString;
    return false;
  }
  return true;
}

Status Generator::decode(Run& run, std::span<const float> logits) {
  for (;;) {
    JIGE_TRY(const bool goes_on, take_token(run, logits));
    if (!goes_on) return {};
    run.out.finish = FinishReason::kLength;
    if (static_cast<int64_t>(run.out.tokens.size()) >= run.options.tokens_max) return {};
    run.out.finish = FinishReason::kContextFull;  // the newest token is not in the cache yet
    if (static_cast<int64_t>(cached_.size()) + 1 >= context_max()) return {};
    run.out.finish = FinishReason::kCancelled;
    if (run.cancelled()) return {};
    const int32_t token = run.out.tokens.back();
    JIGE_TRY(logits, cached_.extend(std::span(&token, 1), true));
  }
}

void Generator::finish(Run& run) {
  GenerationStats& stats = run.out.stats;
  if (stats.generated_tokens > 0) {
    stats.decode_seconds = run.watch.seconds() - stats.first_token_seconds;
  }
  if (run.matcher.matched()) return;
  std::string rest = run.matcher.push(run.decoder.flush());
  rest += run.matcher.flush();
  if (rest.empty()) return;
  run.out.text += rest;
  if (run.callback) run.callback({.text = rest});
}

}  // namespace jige::serve

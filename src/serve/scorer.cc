#include "serve/scorer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "serve/context_hint.h"

namespace jige::serve {
namespace {

double ratio(double sum, int64_t count) { return count > 0 ? sum / static_cast<double>(count) : 0; }

template <typename Value>
int64_t index_of_max(std::span<const ChoiceScore> scores, Value value) {
  const auto best = std::max_element(
      scores.begin(), scores.end(),
      [&](const ChoiceScore& a, const ChoiceScore& b) { return value(a) < value(b); });
  return best - scores.begin();
}

}  // namespace

double TokenScores::sum() const { return std::accumulate(logprobs.begin(), logprobs.end(), 0.0); }

double ChoiceScore::per_token() const { return ratio(logprob, token_count); }
double ChoiceScore::per_byte() const { return ratio(logprob, byte_count); }

Scorer::Scorer(model::InferenceModel& model, int32_t adapter)
    : model_(model), cached_(model, adapter) {
  JIGE_CHECK(model.sizes().scores, "a Scorer needs a model loaded with scores");
}

Status Scorer::check(std::span<const int32_t> tokens, size_t first) const {
  if (tokens.size() < 2) {
    return fail(Code::kInvalidArgument, "{} token(s) have no probability; give at least two",
                tokens.size());
  }
  if (first < 1 || first >= tokens.size()) {
    return fail(Code::kInvalidArgument, "the first scored token is {}; it must be in 1..{}", first,
                tokens.size() - 1);
  }
  // The last token is a target only.
  if (static_cast<int64_t>(tokens.size()) - 1 > cached_.context_max()) {
    return fail(Code::kInvalidArgument,
                "the text has {} tokens and the context holds {}; shorten it{}", tokens.size(),
                cached_.context_max(),
                context_hint(cached_.context_max(), cached_.model_context_max()));
  }
  if (tokens.back() < 0) {  // as a target it would mean: no score here
    return fail(Code::kInvalidArgument, "token id {} is negative", tokens.back());
  }
  return {};
}

Result<TokenScores> Scorer::score(std::span<const int32_t> tokens, size_t first) {
  JIGE_DO(check(tokens, first));
  const std::span<const int32_t> inputs = tokens.first(tokens.size() - 1);
  const size_t kept = cached_.keep_common(inputs, first - 1);
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  std::fill_n(targets.begin(), first - 1, -1);
  TokenScores scores;
  scores.tokens.assign(tokens.begin(), tokens.end());
  const auto chunk = static_cast<size_t>(model_.sizes().batch_tokens_max);
  const size_t mark = cached_.marks() ? first - 1 : 0;  // another choice may follow there
  for (size_t begin = kept; begin < inputs.size(); begin = cached_.size()) {
    const size_t end = begin < mark ? mark : inputs.size();
    const size_t count = std::min(chunk, end - begin);
    JIGE_TRY(const std::span<const float> losses,
             cached_.extend_scored(inputs.subspan(begin, count),
                                   std::span(targets).subspan(begin, count)));
    for (size_t i = begin < first - 1 ? first - 1 - begin : 0; i < losses.size(); ++i) {
      if (!std::isfinite(losses[i])) {
        return fail(Code::kCorrupt,
                    "the model's weights hold NaN, infinity, or numbers too large to compute with: "
                    "the log-probability of token {} of the text is {}",
                    begin + i + 1, -losses[i]);
      }
      scores.logprobs.push_back(-losses[i]);
    }
    if (begin < mark && cached_.size() == mark) cached_.mark();
  }
  return scores;
}

Result<TokenScores> Scorer::score_text(const text::Tokenizer& tokenizer, std::string_view text) {
  JIGE_TRY(const std::vector<int32_t> tokens, tokenizer.encode(text, {}));
  return score(tokens);
}

Result<ChoiceResult> Scorer::choose(const text::Tokenizer& tokenizer, std::string_view context,
                                    std::span<const std::string> choices) {
  if (choices.empty()) return fail(Code::kInvalidArgument, "there are no choices to score");
  JIGE_TRY(const std::vector<int32_t> context_ids, tokenizer.encode(context, {}));
  ChoiceResult result;
  for (const std::string& choice : choices) {
    JIGE_TRY(const std::vector<int32_t> ids, tokenizer.encode(std::string(context) + choice, {}));
    const auto differs =
        std::mismatch(context_ids.begin(), context_ids.end(), ids.begin(), ids.end()).second;
    // The first scored token needs one before it.
    const size_t first = std::max<size_t>(static_cast<size_t>(differs - ids.begin()), 1);
    if (first >= ids.size()) {
      return fail(Code::kInvalidArgument, "choice \"{}\" adds no token to its context", choice);
    }
    JIGE_TRY(const TokenScores scores, score(ids, first));
    result.scores.push_back({.logprob = scores.sum(),
                             .token_count = static_cast<int64_t>(scores.logprobs.size()),
                             .byte_count = static_cast<int64_t>(choice.size())});
  }
  result.best = index_of_max(result.scores, [](const auto& s) { return s.logprob; });
  result.best_per_token = index_of_max(result.scores, [](const auto& s) { return s.per_token(); });
  result.best_per_byte = index_of_max(result.scores, [](const auto& s) { return s.per_byte(); });
  return result;
}

}  // namespace jige::serve

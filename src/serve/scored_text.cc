#include "serve/scored_text.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace jige::serve {
namespace {

double ratio(double sum, int64_t count) { return count > 0 ? sum / static_cast<double>(count) : 0; }

template <typename Value>
int64_t index_of_max(const std::vector<ChoiceScore>& scores, Value value) {
  const auto best = std::max_element(
      scores.begin(), scores.end(),
      [&](const ChoiceScore& a, const ChoiceScore& b) { return value(a) < value(b); });
  return best - scores.begin();
}

}  // namespace

double TokenScores::sum() const { return std::accumulate(logprobs.begin(), logprobs.end(), 0.0); }

double ChoiceScore::per_token() const { return ratio(logprob, token_count); }
double ChoiceScore::per_byte() const { return ratio(logprob, byte_count); }

Result<ScoredText> continued_text(const text::Tokenizer& tokenizer,
                                  std::span<const int32_t> context, std::string_view whole) {
  ScoredText text;
  JIGE_TRY(text.tokens, tokenizer.encode(whole, {}));
  const auto differs =
      std::mismatch(context.begin(), context.end(), text.tokens.begin(), text.tokens.end()).second;
  // The first scored token needs one before it.
  text.first = std::max<size_t>(static_cast<size_t>(differs - text.tokens.begin()), 1);
  return text;
}

ChoiceResult compare_choices(std::vector<ChoiceScore> scores) {
  ChoiceResult result{.scores = std::move(scores)};
  result.best = index_of_max(result.scores, [](const auto& s) { return s.logprob; });
  result.best_per_token = index_of_max(result.scores, [](const auto& s) { return s.per_token(); });
  result.best_per_byte = index_of_max(result.scores, [](const auto& s) { return s.per_byte(); });
  return result;
}

}  // namespace jige::serve

#include "serve/scorer.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

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

Scorer::Scorer(model::InferenceModel& model) : model_(model) {
  JIGE_CHECK(model.sizes().scores, "a Scorer needs a model loaded with scores");
  blocks_.resize(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

Status Scorer::check_length(size_t token_count) const {
  const int64_t context =
      std::min(model_.context_max(), model_.sizes().kv_block_count * ops::kKvBlockTokens);
  if (token_count < 2) {
    return fail(Code::kInvalidArgument, "{} token(s) have no probability; give at least two",
                token_count);
  }
  // The last token is a target only.
  if (static_cast<int64_t>(token_count) - 1 > context) {
    return fail(
        Code::kInvalidArgument,
        "the text has {} tokens and the context holds {}; shorten it or load the model with a "
        "longer context",
        token_count, context);
  }
  return {};
}

Status Scorer::run(std::span<const int32_t> tokens, std::span<const int32_t> targets,
                   int64_t cached, std::vector<float>& losses) {
  const auto chunk = static_cast<size_t>(model_.sizes().batch_tokens_max);
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const size_t count = std::min(chunk, tokens.size() - begin);
    const ops::SequenceSpan sequence{
        .row_begin = 0,
        .row_count = static_cast<int32_t>(count),
        .context_count = static_cast<int32_t>(cached + static_cast<int64_t>(begin)),
        .blocks = blocks_.data()};
    JIGE_TRY(const std::span<const float> part,
             model_.losses({.tokens = tokens.subspan(begin, count),
                            .sequences = std::span(&sequence, 1),
                            .logit_rows = {}},
                           targets.subspan(begin, count)));
    losses.insert(losses.end(), part.begin(), part.end());
  }
  return {};
}

Result<TokenScores> Scorer::score(std::span<const int32_t> tokens) {
  JIGE_DO(check_length(tokens.size()));
  if (tokens.back() < 0) {  // as a target it would mean: no score here
    return fail(Code::kInvalidArgument, "token id {} is negative", tokens.back());
  }
  TokenScores scores;
  scores.tokens.assign(tokens.begin(), tokens.end());
  JIGE_DO(run(tokens.first(tokens.size() - 1), tokens.subspan(1), 0, scores.logprobs));
  for (float& value : scores.logprobs) value = -value;
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
  std::vector<int32_t> cached;  // what the cache holds: shared beginnings are run once
  for (const std::string& choice : choices) {
    JIGE_TRY(const std::vector<int32_t> ids, tokenizer.encode(std::string(context) + choice, {}));
    const auto differs =
        std::mismatch(context_ids.begin(), context_ids.end(), ids.begin(), ids.end()).second -
        ids.begin();
    // The first scored token needs one before it.
    const size_t first = std::max<size_t>(static_cast<size_t>(differs), 1);
    if (first >= ids.size()) {
      return fail(Code::kInvalidArgument, "choice \"{}\" adds no token to its context", choice);
    }
    JIGE_DO(check_length(ids.size()));
    const std::span<const int32_t> inputs = std::span(ids).first(ids.size() - 1);
    const auto common = static_cast<size_t>(
        std::mismatch(cached.begin(), cached.end(), inputs.begin(), inputs.end()).first -
        cached.begin());
    const size_t begin = std::min(common, first - 1);
    std::vector<int32_t> targets(ids.begin() + static_cast<std::ptrdiff_t>(begin) + 1, ids.end());
    std::fill_n(targets.begin(), first - 1 - begin, -1);
    std::vector<float> losses;
    JIGE_DO(run(inputs.subspan(begin), targets, static_cast<int64_t>(begin), losses));
    cached.assign(inputs.begin(), inputs.end());
    ChoiceScore score{.token_count = static_cast<int64_t>(ids.size() - first),
                      .byte_count = static_cast<int64_t>(choice.size())};
    for (const float loss : losses) score.logprob -= loss;
    result.scores.push_back(score);
  }
  result.best = index_of_max(result.scores, [](const auto& s) { return s.logprob; });
  result.best_per_token = index_of_max(result.scores, [](const auto& s) { return s.per_token(); });
  result.best_per_byte = index_of_max(result.scores, [](const auto& s) { return s.per_byte(); });
  return result;
}

}  // namespace jige::serve

// An answer ahead: what Answer has for those who guess how it goes on.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "serve/answer.h"

namespace jige::serve {
namespace {

// More tokens than this are not beginnings of one.
constexpr int kForcedTokensMax = 64;

bool has_token(std::span<const uint64_t> bits, int32_t token) {
  const auto word = static_cast<size_t>(token) / 64;
  return word < bits.size() && (bits[word] >> (token % 64) & 1) != 0;
}

}  // namespace

Answer::Answer(const Answer& answer, Ahead)
    : tokenizer_(answer.tokenizer_),
      prompt_(answer.prompt_),
      options_(answer.options_),
      own_bias_count_(answer.own_bias_count_),
      rng_(answer.rng_),
      matcher_({}),
      tokens_(answer.tokens_),
      reasoning_(answer.reasoning_),
      cursor_(answer.cursor_),
      last_drawn_(answer.last_drawn_) {
  options_.sampling.temperature = 0;
  options_.top_count = 0;
}

bool Answer::has_rules() const {
  return cursor_ || options_.allowed || !options_.forbidden_rows.empty() ||
         !options_.sampling.logit_bias.empty() || ops::has_penalty(options_.sampling);
}

Answer Answer::ahead() const {
  JIGE_CHECK(!done_, "an answer of {} tokens is complete", tokens_.size());
  return {*this, Ahead{}};
}

bool Answer::follow(int32_t token) {
  if (cursor_ && (!find_allowed() || !has_token(allowed_, token))) return false;
  if (!cursor_ && options_.allowed && !has_token(*options_.allowed, token)) return false;
  std::vector<ops::LogitBias>& biases = options_.sampling.logit_bias;
  const size_t bias_count = biases.size();
  forbid_rows();
  const bool forbidden = std::ranges::any_of(biases, [token](const ops::LogitBias& one) {
    return one.token == token && std::isinf(one.bias);
  });
  biases.resize(bias_count);
  if (forbidden) return false;
  take_drawn(token, 0);
  return goes_on();
}

std::optional<int32_t> Answer::guess(std::span<const float> logits) {
  draw(logits);
  if (!goes_on()) return std::nullopt;
  return last_drawn_;
}

// With what was drawn.
bool Answer::goes_on() {
  const auto taken = accept();
  if (!taken) done_ = true;
  return !done_;
}

std::optional<Answer::Forced> Answer::forced() {
  if (!cursor_ || reasoning_.is_inside() || !find_allowed()) return std::nullopt;
  const grammar::TokenTrie& tokens = options_.constraint->trie();
  int count = 0;
  int32_t longest = -1;
  for (size_t word = 0; word < allowed_.size(); ++word) {
    count += std::popcount(allowed_[word]);
    if (count > kForcedTokensMax) return std::nullopt;
    for (uint64_t bits = allowed_[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<int32_t>(word * 64) + std::countr_zero(bits);
      if (tokens.text(token).empty()) return std::nullopt;  // what ends the answer, or a tag
      if (longest < 0 || tokens.text(token).size() > tokens.text(longest).size()) longest = token;
    }
  }
  for (size_t word = 0; word < allowed_.size(); ++word) {
    for (uint64_t bits = allowed_[word]; bits != 0; bits &= bits - 1) {
      const auto token = static_cast<int32_t>(word * 64) + std::countr_zero(bits);
      if (!tokens.text(longest).starts_with(tokens.text(token))) return std::nullopt;
    }
  }
  if (longest < 0) return std::nullopt;
  return Forced{.token = longest, .only = count == 1};
}

}  // namespace jige::serve

#include "serve/speculator.h"

#include <algorithm>

namespace jige::serve {

using plan::GuessSource;

Speculator::Speculator(int64_t tokens_max) : finder_(tokens_max) {
  copy_.reserve(kDraftTokensMax);
  for (GuessRow* row : {&row_, &other_}) {
    row->tokens.reserve(kDraftTokensMax);
    row->sources.reserve(kDraftTokensMax);
  }
}

int64_t Speculator::bytes_for(int64_t tokens_max) {
  const size_t guess_bytes = 3 * sizeof(int32_t) + 2 * sizeof(GuessSource);
  return DraftFinder::bytes_for(tokens_max) + kDraftTokensMax * static_cast<int64_t>(guess_bytes);
}

void Speculator::clear(double model_chance) {
  finder_.clear();
  trust_ = plan::GuessTrust(model_chance);
  followed_ = 0;
  row_.clear();
  other_.clear();
  of_model_ = {};
}

// Guesses for tokens that have not come do not count.
void Speculator::judge(const GuessRow& row, const TokenSequence& tokens, bool copies_alone) {
  const size_t known = std::min(row.size(), tokens.size() - followed_);
  for (size_t i = 0; i < known; ++i) {
    const GuessSource source = row.sources[i];
    const bool right = tokens[followed_ + i] == row.tokens[i];
    if (!copies_alone || plan::is_copy(source)) trust_.judge(source, right);
    if (!copies_alone && source == GuessSource::kModel) {
      of_model_.hits += right ? 1 : 0;
      of_model_.missed = !right;
    }
    if (!right) return;
  }
}

void Speculator::follow(const TokenSequence& tokens) {
  of_model_ = {};
  judge(row_, tokens, /*copies_alone=*/false);
  judge(other_, tokens, /*copies_alone=*/true);
  finder_.follow(tokens);
  followed_ = tokens.size();
  row_.clear();
  other_.clear();
}

std::span<const int32_t> Speculator::copy(const TokenSequence& tokens, int32_t count) {
  copy_.clear();
  if (finder_.equal_tokens() > 0 && count > 0) finder_.draft(tokens, count, copy_);
  return copy_;
}

void Speculator::note(const GuessRow& row, const GuessRow& other) {
  row_ = row;
  other_ = other;
}

}  // namespace jige::serve

#include "serve/speculator.h"

#include <algorithm>

namespace jige::serve {

void Speculator::clear() {
  finder_.clear();
  trust_ = {};
  followed_ = 0;
  guesses_.clear();
}

void Speculator::follow(const TokenSequence& tokens) {
  const size_t known = std::min(guesses_.size(), tokens.size() - followed_);
  int32_t hits = 0;
  bool missed = false;
  for (size_t i = 0; i < known && !missed; ++i) {
    missed = tokens[followed_ + i] != guesses_[i];
    hits += missed ? 0 : 1;
  }
  if (known > 0) trust_.judge(guess_level_, hits, missed);
  finder_.follow(tokens);
  followed_ = tokens.size();
  guesses_.clear();
  guess_level_ = finder_.level();
  if (guess_level_ >= 0) finder_.draft(tokens, 1, guesses_);
}

DraftWish Speculator::wish(int32_t count_max) const {
  if (finder_.level() < 0) return {};
  return {.chance = trust_.chance(finder_.level()), .count_max = count_max};
}

std::span<const int32_t> Speculator::draft(const TokenSequence& tokens, int32_t count) {
  draft_.clear();
  if (count == 0) return draft_;
  finder_.draft(tokens, count, draft_);
  guesses_ = draft_;
  return draft_;
}

}  // namespace jige::serve

#include "serve/speculator.h"

#include <algorithm>

namespace jige::serve {

namespace {

// A few misses say little yet.
constexpr double kFirstTrials = 4;
// Of what a constraint forces: where several tokens spell it, the longest is what models say.
constexpr double kForcedChance = 0.9;

// How guesses for what follows `followed` tokens turned out; those for tokens that have not come do
// not count.
Speculator::Judgement judged(std::span<const int32_t> guesses, const TokenSequence& tokens,
                             size_t followed) {
  Speculator::Judgement judgement;
  const size_t known = std::min(guesses.size(), tokens.size() - followed);
  for (size_t i = 0; i < known && !judgement.missed; ++i) {
    judgement.missed = tokens[followed + i] != guesses[i];
    judgement.hits += judgement.missed ? 0 : 1;
  }
  return judgement;
}

}  // namespace

void Speculator::clear(double model_chance) {
  finder_.clear();
  trust_ = {};
  followed_ = 0;
  guesses_.clear();
  model_rate_ = HitRate(model_chance, kFirstTrials);
  model_guesses_.clear();
  forced_rate_ = HitRate(kForcedChance, kFirstTrials);
  forced_guesses_.clear();
  of_model_ = {};
}

void Speculator::follow(const TokenSequence& tokens) {
  const Judgement of_text = judged(guesses_, tokens, followed_);
  if (guess_level_ >= 0) trust_.judge(guess_level_, of_text.hits, of_text.missed);
  of_model_ = judged(model_guesses_, tokens, followed_);
  model_rate_.judge(of_model_.hits, of_model_.missed);
  const Judgement of_forced = judged(forced_guesses_, tokens, followed_);
  forced_rate_.judge(of_forced.hits, of_forced.missed);
  finder_.follow(tokens);
  followed_ = tokens.size();
  model_guesses_.clear();
  forced_guesses_.clear();
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
  if (count > 0) finder_.draft(tokens, count, draft_);
  guesses_ = draft_;
  return draft_;
}

void Speculator::note_forced(std::span<const int32_t> tokens) {
  forced_guesses_.assign(tokens.begin(), tokens.end());
}

void Speculator::note_model_draft(std::span<const int32_t> guesses) {
  model_guesses_.assign(guesses.begin(), guesses.end());
}

}  // namespace jige::serve

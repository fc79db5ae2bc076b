// Speculator: the drafts of one sequence, and how they turned out.
//
//   speculator.follow({prompt, generated});                 // whenever tokens have come
//   const DraftWish wish = speculator.wish(count_max);      // share_step() sets its count
//   const auto draft = speculator.draft(wish.count);        // run behind the last token
//
// Guesses come from the text itself; those of a draft model (draft_model.h) and what a constraint
// forces (Answer::forced) it is told.
//
// A draft is verified by the model itself: it runs the last token and the draft as one piece, every
// row is drawn from as if it were the only one, and the first token that differs from its guess
// ends the step. A row's logits are the same bits however tokens are grouped into steps, so what
// comes out is what would come without drafts.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serve/draft_finder.h"
#include "serve/draft_policy.h"

namespace jige::serve {

class Speculator {
 public:
  explicit Speculator(int64_t tokens_max) : finder_(tokens_max) {
    for (std::vector<int32_t>* list : {&draft_, &guesses_, &model_guesses_, &forced_guesses_}) {
      list->reserve(kDraftTokensMax);
    }
  }
  // What a speculator of such sequences takes.
  static int64_t bytes_for(int64_t tokens_max) {
    return DraftFinder::bytes_for(tokens_max) +
           4 * kDraftTokensMax * static_cast<int64_t>(sizeof(int32_t));
  }

  // Forgets the sequence, so that another can begin, for which a draft model is taken to be right
  // with this chance.
  void clear(double model_chance = kModelChance);
  // Takes in new tokens and judges the last guesses by them. REQUIRES: as DraftFinder::follow.
  void follow(const TokenSequence& tokens);
  // How the draft model's last guesses turned out in follow().
  struct Judgement {
    int32_t hits = 0;
    bool missed = false;
  };
  const Judgement& of_model() const { return of_model_; }
  // What may be drafted from the text now: up to `count_max` guesses, none where nothing was found.
  DraftWish wish(int32_t count_max) const;
  // Of what was found: an index of kDraftOrders, -1 for nothing.
  int32_t level() const { return finder_.level(); }
  // The first `count` guesses, valid until the next call. REQUIRES: up to wish().count_max, tokens
  // as in follow().
  std::span<const int32_t> draft(const TokenSequence& tokens, int32_t count);

  // A constraint forces these, which are judged whether they are run or not.
  void note_forced(std::span<const int32_t> tokens);
  double forced_chance() const { return forced_rate_.chance(); }

  // How likely a guess of the draft model is.
  double model_chance() const { return model_rate_.chance(); }
  // It guesses these.
  void note_model_draft(std::span<const int32_t> guesses);

 private:
  DraftFinder finder_;
  DraftTrust trust_;
  size_t followed_ = 0;
  std::vector<int32_t> draft_;
  // Of what follows the tokens seen so far: the draft, or one guess that nothing is run for.
  std::vector<int32_t> guesses_;
  int32_t guess_level_ = -1;
  HitRate model_rate_;
  std::vector<int32_t> model_guesses_;
  HitRate forced_rate_;
  std::vector<int32_t> forced_guesses_;
  Judgement of_model_;
};

}  // namespace jige::serve

// Speculator: the drafts of one sequence, and how they turned out.
//
//   speculator.follow({prompt, generated});                 // whenever tokens have come
//   const DraftWish wish = speculator.wish(count_max);      // share_step() sets its count
//   const auto draft = speculator.draft(wish.count);        // run behind the last token
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
    draft_.reserve(kDraftTokensMax);
    guesses_.reserve(kDraftTokensMax);
  }
  // What a speculator of such sequences takes.
  static int64_t bytes_for(int64_t tokens_max) {
    return DraftFinder::bytes_for(tokens_max) +
           2 * kDraftTokensMax * static_cast<int64_t>(sizeof(int32_t));
  }

  // Forgets the sequence, so that another can begin.
  void clear();
  // Takes in new tokens and judges the last guesses by them. REQUIRES: as DraftFinder::follow.
  void follow(const TokenSequence& tokens);
  // What may be drafted now: up to `count_max` guesses, none where nothing was found.
  DraftWish wish(int32_t count_max) const;
  // The first `count` guesses, valid until the next call. REQUIRES: up to wish().count_max, tokens
  // as in follow().
  std::span<const int32_t> draft(const TokenSequence& tokens, int32_t count);

 private:
  DraftFinder finder_;
  DraftTrust trust_;
  size_t followed_ = 0;
  std::vector<int32_t> draft_;
  // Of what follows the tokens seen so far: the draft, or one guess that nothing is run for.
  std::vector<int32_t> guesses_;
  int32_t guess_level_ = -1;
};

}  // namespace jige::serve

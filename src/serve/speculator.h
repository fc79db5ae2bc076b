// Speculator: what is guessed for one sequence, and how it turned out.
//
//   speculator.follow({prompt, generated});                   // whenever tokens have come
//   const auto copy = speculator.copy(tokens, count_max);     // what the text may go on with
//   speculator.note(row);                                     // what is guessed now
//   speculator.trust().chance(source)                         // how likely such guesses are
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

#include "plan/guess_policy.h"
#include "serve/draft_finder.h"
#include "serve/draft_options.h"
#include "serve/guess_row.h"

namespace jige::serve {

class Speculator {
 public:
  explicit Speculator(int64_t tokens_max);
  // What a speculator of such sequences takes.
  static int64_t bytes_for(int64_t tokens_max);

  // Forgets the sequence, so that another can begin, for which a draft model is taken to be right
  // with this chance.
  void clear(double model_chance = plan::kModelChance);
  // Takes in new tokens and judges the last guesses by them, whether they were run or not: those
  // before the first wrong one, and that one. REQUIRES: as DraftFinder::follow.
  void follow(const TokenSequence& tokens);
  // How the draft model's last guesses turned out in follow().
  struct Judgement {
    int32_t hits = 0;
    bool missed = false;
  };
  const Judgement& of_model() const { return of_model_; }
  const plan::GuessTrust& trust() const { return trust_; }

  // The next `count` tokens, if the text goes on as it did where it had the same tokens before:
  // valid until the next call, empty where it did not. REQUIRES: tokens as in follow().
  std::span<const int32_t> copy(const TokenSequence& tokens, int32_t count);
  // REQUIRES: copy() was not empty.
  plan::GuessSource copy_source() const { return plan::copy_source(finder_.equal_tokens()); }

  // These may come next. Of `other`, which were not chosen, copies are judged, too.
  void note(const GuessRow& row, const GuessRow& other = {});
  // The sources of the row that was noted last.
  std::span<const plan::GuessSource> sources() const { return row_.sources; }

 private:
  void judge(const GuessRow& row, const TokenSequence& tokens, bool copies_alone);

  DraftFinder finder_;
  plan::GuessTrust trust_;
  size_t followed_ = 0;
  std::vector<int32_t> copy_;
  GuessRow row_;
  GuessRow other_;
  Judgement of_model_;
};

}  // namespace jige::serve

// How many tokens to draft: what a draft is likely to bring, against what it costs.
//
// A step of the model over R rows takes about base + slope · R seconds; slope / (base + slope · R)
// is the *price* of one more row, as a share of the step. Reading the weights is the base, so the
// price is small while a step is bound by memory and nears 1 / R where it is bound by arithmetic.
// A step of S sequences brings S tokens, and with drafts G more: the i-th guess of a draft brings
// one if it and those before it are right, p^i for a chance p each. One more row delays S + G
// tokens by its price, so it raises tokens a second while
//   p^i > (S + G) · price(R).
// Guesses are taken while they promise a quarter more and at least a fifth of a token, the
// likeliest first. Then the last are dropped until no sequence is slower by more than a tenth: one
// that gets nothing itself may see the step lengthened by a ninth, one that expects g tokens more
// by as much as these make up for.
//
// Both sides are measured while the system works: base and slope by a line through the last steps'
// rows and seconds, p by comparing guesses with what came, drafted or not, which costs nothing.
// These numbers decide how fast an answer comes, never what it is.
// Threads: values; one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "serve/draft_finder.h"

namespace jige::serve {

inline constexpr int32_t kDraftTokensMax = 64;  // of one draft
// With the token before them as many rows of logits as a model has unless more are asked for.
inline constexpr int32_t kDraftTokensAuto = 7;  // where the policy chooses

struct DraftOptions {
  int32_t tokens_max = 0;  // of a draft; 0: none are made
  // The policy chooses how many are worth it; else every draft is as long as it may be.
  bool adaptive = true;
};
// "0..64" is what tokens_max may be. Fails with kInvalidArgument.
Status validate(const DraftOptions& options);

// The time of a step by its rows.
class StepCost {
 public:
  void add(int64_t rows, double seconds);
  // Of one more row than `rows`, as a share of the step.
  double price(int64_t rows) const;

 private:
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_rows_ = 0, rows_seconds_ = 0;  // sums
  double slope_ = -1;  // seconds a row, as last seen; below 0: not yet
};

// How often guesses of one sequence came true, by level.
class DraftTrust {
 public:
  DraftTrust();
  // `hits` guesses in a row came true, and then one did not, or none was left.
  void judge(int32_t level, int32_t hits, bool missed);
  double chance(int32_t level) const;

 private:
  struct Record {
    double hits = 0, trials = 0;
  };
  std::array<Record, kDraftLevelCount> records_;
};

// A sequence that could have a draft.
struct DraftWish {
  double chance = 0;      // of each guess
  int32_t count_max = 0;  // guesses there are and may be
  int32_t count = 0;      // of them that are worth it: the result
};
// Shares a step among the drafts of its sequences. The step has a row each of `sequences`
// sequences, of which some may have no wish, and `room` more may be added.
void share_step(std::span<DraftWish> wishes, const StepCost& cost, int64_t sequences, int64_t room);

}  // namespace jige::serve

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
// Guesses of a draft model cost a step of it besides, which makes the next guess of all sequences
// that it guesses for: these are taken together, those for whom it is worth most, where all that
// they promise exceeds the prices of their rows and of that step.
//
// Both sides are measured while the system works: base and slope by a line through the last steps'
// rows and seconds, p by comparing guesses with what came, those of the text also where they were
// not drafted, which costs nothing.
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
  bool operator==(const DraftOptions&) const = default;
};
// "0..64" is what tokens_max may be. Fails with kInvalidArgument.
Status validate(const DraftOptions& options);

// The time of a step by its rows.
class StepCost {
 public:
  void add(int64_t rows, double seconds);
  // Of one more row than `rows`, as a share of the step.
  double price(int64_t rows) const;
  // Of a step; 0 until one was seen.
  double seconds(int64_t rows) const;
  // Whether enough steps were seen to go by.
  bool known() const { return weight_ > 3; }

 private:
  double slope() const;

  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_rows_ = 0, rows_seconds_ = 0;  // sums
  double slope_ = -1;  // seconds a row, as last seen; below 0: not yet
};

// How often guesses came true; the last count most.
class HitRate {
 public:
  // Begins as if so many trials had come out with `chance`; of all about `trials_kept` count.
  explicit HitRate(double chance = 0, double trials = 1, double trials_kept = 20)
      : hits_(chance * trials), trials_(trials), trials_kept_(trials_kept) {}
  // `hits` guesses in a row came true, and then one did not, or none was left.
  void judge(int32_t hits, bool missed);
  double chance() const { return hits_ / trials_; }

 private:
  double hits_;
  double trials_;
  double trials_kept_;
};

// Of a draft model that nothing is known about.
inline constexpr double kModelChance = 0.6;

// How often guesses from the text of one sequence came true, by level.
class DraftTrust {
 public:
  DraftTrust();
  // As HitRate does.
  void judge(int32_t level, int32_t hits, bool missed);
  double chance(int32_t level) const { return rates_[static_cast<size_t>(level)].chance(); }

 private:
  std::array<HitRate, kDraftLevelCount> rates_;
};

// Guesses less likely than this are not taken, whatever they cost: they bring little even where
// rows cost nothing, and what they cost is an estimate.
inline constexpr double kDraftChanceLeast = 0.2;

// A sequence that could have a draft.
struct DraftWish {
  double chance = 0;      // of each guess
  int32_t count_max = 0;  // guesses there are and may be
  bool by_model = false;  // they are the draft model's
  bool forced = false;    // a constraint's (Answer::forced)
  bool invests = false;   // has none for now, since the draft model reads what it is to go on from
  int32_t count = 0;      // of them that are worth it: the result
  // Tokens that so many guesses bring.
  double gain_of(int32_t guesses) const;
};
// Shares a step among the drafts of its sequences. The step has a row each of `sequences`
// sequences, of which some may have no wish, and `room` more may be added. `model_cost` is that of
// the draft model's steps, where there is one; until one was seen they are taken for nothing.
void share_step(std::span<DraftWish> wishes, const StepCost& cost, int64_t sequences, int64_t room,
                const StepCost& model_cost = {});

// Whether a draft model may read so many tokens of a sequence, at `row_seconds` each, before it
// guesses: where they take less than it can save of the rest of the answer, whose tokens take
// `token_seconds` each. True while either time is not known (0).
bool worth_reading(int64_t missing, double row_seconds, double token_seconds, int64_t tokens_left);

}  // namespace jige::serve

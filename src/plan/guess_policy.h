// Which tokens to guess, and how many: what guesses are likely to bring, against what they cost.
//
// Guesses of a sequence are a row of tokens behind its last one, of several sources: what its rules
// force, copies of its own text, and what a draft model says. Each comes true with a chance that is
// learned for its source; a guess brings a token if it and those before it are right, so it is
// worth the product of their chances.
//
// A step of S sequences brings S tokens, and with guesses G more. One more row delays S + G tokens
// by its price (guess_costs.h), so a guess worth v raises tokens a second while
//   v > (S + G) · price.
// Guesses are taken while they promise a quarter more and at least a fifth of a token, the
// likeliest first. Then the last are dropped until no sequence is slower by more than a tenth: one
// that gets nothing itself may see the step lengthened by a ninth, one that expects g tokens more
// by as much as these make up for.
//
// A model with recurrent layers cannot go back behind a wrong guess: its state is kept as it is
// before the guesses, unless all are certain, and tokens that were right but came before a wrong
// one run again in the next step (serve_scheduler.h). So the first guess that is not certain costs
// that copy, and the k-th one, beside its own row, k - 1 rows with the chance that it is the first
// to be wrong. What the copy costs is counted in bytes: it is worth it for all guesses that it is
// made for together.
//
// What is forced or copied is there for nothing. A guess of a draft model costs a step of it
// besides, which makes the next guess of all sequences that it guesses for: these are taken
// together, those for whom it is worth most, where all that they promise exceeds the prices of
// their rows and of that step. Others may join a step that is made anyway.
//
// These numbers decide how fast an answer comes, never what it is.
// Threads: values; one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/guess_costs.h"

namespace jige::plan {

// kOnly: the one token that may come, which is certain. kForced: of several that may come all are
// beginnings of this one. Copies of what followed the same tokens before: eight or more of them,
// four, two.
enum class GuessSource : int8_t { kOnly, kForced, kLongCopy, kCopy, kShortCopy, kModel };
inline constexpr size_t kGuessSourceCount = 6;
// Of a copy behind so many equal tokens, two at least.
GuessSource copy_source(size_t equal_tokens);
inline bool is_copy(GuessSource source) {
  return source >= GuessSource::kLongCopy && source <= GuessSource::kShortCopy;
}

// What sources are called where they are counted: "forced", "copied", "model".
enum class GuessKind : int8_t { kForced, kCopied, kModel };
inline constexpr size_t kGuessKindCount = 3;
inline constexpr std::array<std::string_view, kGuessKindCount> kGuessKindNames = {
    "forced", "copied", "model"};
GuessKind kind_of(GuessSource source);
inline std::string_view guess_kind_name(GuessKind kind) {
  return kGuessKindNames[static_cast<size_t>(kind)];
}

// A row of GuessCounts, for those who show them.
struct GuessKindCounts {
  std::string_view name;
  int64_t guessed = 0;
  int64_t right = 0;
};

// Tokens that were guessed and run, and those of them that were right, by kind.
struct GuessCounts {
  std::array<int64_t, kGuessKindCount> guessed = {};
  std::array<int64_t, kGuessKindCount> right = {};
  // The first `right_count` of these were right.
  void add(std::span<const GuessSource> sources, int64_t right_count);
  void add(const GuessCounts& other);
  std::array<GuessKindCounts, kGuessKindCount> by_kind() const;
  bool operator==(const GuessCounts&) const = default;
};

// Of a draft model that nothing is known about.
inline constexpr double kModelChance = 0.6;
// Guesses less likely than this are not taken, whatever they cost: they bring little even where
// rows cost nothing, and what they cost is an estimate.
inline constexpr double kGuessChanceLeast = 0.2;

// How often guesses of one sequence came true, by source.
class GuessTrust {
 public:
  // A draft model's are taken to come true with this chance, until some were seen.
  explicit GuessTrust(double model_chance = kModelChance);
  // The next guess of this source was right, or wrong.
  void judge(GuessSource source, bool right);
  // 1 for kOnly.
  double chance(GuessSource source) const { return rates_[static_cast<size_t>(source)].chance(); }

 private:
  std::array<HitRate, kGuessSourceCount> rates_;
};

// A sequence that could have guesses: those that are there, in order, and behind all of them some
// of the draft model.
struct GuessWish {
  std::vector<double> known;  // the chance of each
  int32_t certain_count = 0;  // of these, the first ones, which are certain to come
  int32_t again_count = 0;    // tokens that it runs again in any case, beside its next one
  int32_t model_max = 0;
  double model_chance = 0;
  bool invests = false;  // has few for now, since the draft model reads what it is to go on from
  // The result: guesses that are worth it. Some of the model only behind all that are known.
  int32_t known_count = 0;
  int32_t model_count = 0;

  int32_t count() const { return known_count + model_count; }
  int32_t count_max() const { return static_cast<int32_t>(known.size()) + model_max; }
  // Whether its state is kept before so many guesses.
  bool needs_spare(int32_t guesses) const { return guesses > certain_count; }
  double chance(int32_t guess) const {
    const auto at = static_cast<size_t>(guess);
    return at < known.size() ? known[at] : model_chance;
  }
  // Tokens that so many guesses bring.
  double gain_of(int32_t guesses) const;
};

// What guesses cost besides where a model has recurrent layers.
struct StateCosts {
  bool there = false;
  double spare_price = 0;           // to keep a state, as a share of a step of one row
  int64_t spare_count = INT64_MAX;  // sequences whose states can be kept
  // Rows that run again if the guess behind so many others is the first to be wrong, times the
  // chance that it is.
  double rows_again(const GuessWish& wish, int32_t guess, double value) const {
    const double chance = wish.chance(guess);
    return there && chance > 0 ? guess * value * (1 / chance - 1) : 0;
  }
};

// Shares a step among the guesses of its sequences. The step has a row each of `sequences`
// sequences, of which some may have no wish, those that run again, and `room` more may be added.
// `model_cost` is that of the draft model's steps, where there is one; until one was seen they are
// taken for nothing.
void share_step(std::span<GuessWish> wishes, const StepCost& cost, int64_t sequences, int64_t room,
                const StepCost& model_cost = {}, const StateCosts& states = {});
// The same whatever it costs: as many as there is room for, in the order of the wishes.
void fill_step(std::span<GuessWish> wishes, int64_t room, const StateCosts& states = {});

// By how much a step of so many sequences brings more tokens a second with these guesses, as many
// as are best, each of the model at the share of its step that a sequence has: 1 where none are
// worth it.
double best_speedup(const GuessWish& wish, const StepCost& cost, int64_t sequences,
                    const StepCost& model_cost = {}, const StateCosts& states = {});

// Whether a draft model may read so many tokens of a sequence, at `row_seconds` each, before it
// guesses: where they take less than it can save of the rest of the answer, whose tokens take
// `token_seconds` each. True while either time is not known (0).
bool worth_reading(int64_t missing, double row_seconds, double token_seconds, int64_t tokens_left);

}  // namespace jige::plan

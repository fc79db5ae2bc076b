// EngineDrafts: what is guessed for the sequences of an engine, or of a generator, and what steps
// cost.
//
// After a step every sequence that goes on is followed; decide() then shares the next step among
// the guesses they could have (plan/guess_policy.h). There are as many speculators as sequences run
// at once, all made at the start; a sequence that comes when none is free has no guesses.
//
// What is guessed behind a sequence:
// 1. What its constraint forces (Answer::forced), which needs no model.
// 2. Behind that, a copy of the text as far as the answer's rules go with it, what is forced in
//    between included, or else what the draft model says (draft_model.h). Where costs decide, the
//    one that promises more tokens a second; else a copy behind four equal tokens or more that has
//    been right at least half of the time lately.
// 3. Where the draft model guesses, what is forced behind a guess of it follows without running it.
// Nothing is guessed that an answer may not have.
//
// Before it guesses the draft model reads what it lacks, up to one forward of it a step, those
// first that lack least; who still lacks something has copies in that step. Of sequences that lack
// the same block, one reads it and the others wait, to find it known. Where costs decide, it is not
// run for sequences that it guesses badly, nor where nobody gains, nor to read more than the rest
// of an answer can make up for. A model whose forward has failed is not run again.
//
// Where a model has recurrent layers, only so many sequences have guesses that are not certain as
// states can be kept for, and what runs again takes rows from guesses (plan/guess_policy.h).
// Invariant: memory is bytes_for() and the model's from construction on, but for a few words a
// sequence and, while it is decided, what an answer's rules take. Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "plan/serve_scheduler.h"
#include "serve/draft_model.h"
#include "serve/draft_options.h"
#include "serve/speculator.h"

namespace jige::serve {

// What guesses of such a model cost besides their rows: where it has states, to keep one is to
// write it, which brings it into the caches first, and a step reads all weights, and reads and
// writes its own.
plan::StateCosts state_costs(const model::InferenceModel& model);

class EngineDrafts {
 public:
  // For `sequences` at once of up to `tokens_max` tokens, in steps that sample from up to
  // `sample_rows_max` rows and run as many tokens. A draft model must outlive this; it is cleared.
  EngineDrafts(const DraftOptions& options, int64_t sequences, int64_t tokens_max,
               int64_t sample_rows_max, DraftModel* model = nullptr,
               const plan::StateCosts& states = {});
  static int64_t bytes_for(const DraftOptions& options, int64_t sequences, int64_t tokens_max);

  bool enabled() const { return options_.tokens_max > 0; }
  const DraftOptions& options() const { return options_; }
  // What else is known of a sequence.
  struct Beside {
    const Answer* answer = nullptr;  // that it is; null: one without rules
    uint64_t cache_salt = 0;         // of known prefixes
    int32_t again_count = 0;         // tokens that it runs again beside its next one
  };
  // A sequence goes on behind these tokens, for up to `tokens_left` more. The tokens, and the
  // answer, must stay as they are until decide().
  void follow(plan::RequestId sequence, const TokenSequence& tokens, int64_t tokens_left,
              const Beside& beside);
  void follow(plan::RequestId sequence, const TokenSequence& tokens, int64_t tokens_left) {
    follow(sequence, tokens, tokens_left, {});
  }
  // It does not; unknown ones are ignored.
  void forget(plan::RequestId sequence);
  // Another text begins under this name.
  void begin_again(plan::RequestId sequence);
  // The drafts of those followed since the last call, none of them empty, of which the first
  // `certain_count` guesses are certain to come. With states so many sequences may have others.
  using Tell = std::function<void(plan::RequestId sequence, std::span<const int32_t> draft,
                                  int32_t certain_count)>;
  void decide(const Tell& tell, int64_t spare_count = INT64_MAX);
  // What the last decide() has spent on the draft model.
  double model_seconds() const { return model_seconds_; }
  // Of the draft model, since the start.
  DraftModel::Counts model_counts() const { return model_counts_; }
  // A step of next tokens and drafts alone has taken so long, in which so many states were kept.
  void add_step(int64_t rows, double seconds, int64_t spares = 0) {
    cost_.add(rows, seconds / (1 + states_.spare_price * static_cast<double>(spares)));
  }
  // Of the first `count` guesses of a sequence's last draft. REQUIRES: it had so many, and was not
  // followed since.
  std::span<const plan::GuessSource> sources(plan::RequestId sequence, int64_t count) const;

 private:
  struct Followed {
    plan::RequestId sequence;
    Speculator* speculator;
    TokenSequence tokens;
    int64_t tokens_left;
    Beside beside;
    int32_t count_max;        // guesses that there is room for
    GuessRow known = {};      // what is forced first, then a copy where there is one
    size_t forced_count = 0;  // of known, in front of the copy
    std::unique_ptr<Answer> ahead = nullptr;  // behind these, where it has rules
    int32_t model_max = 0;                    // guesses that the draft model could make behind them
    bool by_model = false;                    // it is to guess
    int64_t piece = 0;                        // that it is to read
    const GuessRow* told = nullptr;           // by decide(); null: its part of `known`
  };

  // Finds out what is known.
  void guess_known(Followed& one) const;
  // How many guesses the draft model could make.
  int32_t model_room(const Followed& one);
  bool may_read(const Followed& one) const;
  plan::StepCost model_cost() const;
  plan::GuessWish wish_of(const Followed& one, bool by_model) const;
  bool prefers_copy(const Followed& one) const;
  void share();
  // Gives the draft model's rows to those it was chosen for; those it can do nothing for now may
  // have copies. Whether anybody may.
  bool settle();
  // Who is to be run by the draft model.
  std::vector<size_t> chosen_by_missing();
  void run_model();

  const DraftOptions options_;
  const int64_t sample_rows_max_;
  DraftModel* model_;
  plan::HitRate model_rate_;  // of all sequences
  int64_t begun_count_ = 0;
  int64_t trial_steps_ = 0;  // left
  double model_seconds_ = 0;
  DraftModel::Counts model_counts_;
  std::vector<std::unique_ptr<Speculator>> free_;
  std::map<plan::RequestId, std::unique_ptr<Speculator>> used_;
  plan::StepCost cost_;
  plan::StateCosts states_;
  // Since the last decide().
  int64_t sequences_ = 0;    // with and without a speculator
  int64_t again_count_ = 0;  // tokens that they run again
  std::vector<Followed> followed_;
  std::vector<plan::GuessWish> wishes_;  // of followed_
  std::vector<DraftModel::Work> works_;
};

}  // namespace jige::serve

// EngineDrafts: what is drafted for the sequences of an engine, or of a generator, and what steps
// cost.
//
// After a step every sequence that goes on is followed; decide() then shares the next step among
// the drafts they could have (draft_policy.h). There are as many speculators as sequences run at
// once, all made at the start; a sequence that comes when none is free has no drafts.
//
// Of an answer with rules (Answer::has_rules) nothing is guessed that it may not have, and what its
// constraint forces is a guess of its own, which goes before those that promise less.
//
// With a draft model (draft_model.h) a draft is a copy of the text where its last four tokens were
// found, which costs nothing, else the model's, else a copy behind the last two. Before it guesses
// the model reads what it lacks, up to one forward of it a step, those first that lack least; who
// still lacks something has no guesses of it in that step. Of sequences that lack the same block,
// one reads it and the others wait, to find it known. Where the policy decides, it is not run
// for sequences that it guesses badly, nor where nobody gains, nor to read more than the rest of an
// answer can make up for. A model whose forward has failed is not run again.
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
#include "serve/speculator.h"

namespace jige::serve {

class EngineDrafts {
 public:
  // For `sequences` at once of up to `tokens_max` tokens, in steps that sample from up to
  // `sample_rows_max` rows and run as many tokens. A draft model must outlive this; it is cleared.
  EngineDrafts(const DraftOptions& options, int64_t sequences, int64_t tokens_max,
               int64_t sample_rows_max, DraftModel* model = nullptr);
  static int64_t bytes_for(const DraftOptions& options, int64_t sequences, int64_t tokens_max);

  bool enabled() const { return options_.tokens_max > 0; }
  const DraftOptions& options() const { return options_; }
  // What else is known of a sequence.
  struct Beside {
    const Answer* answer = nullptr;  // that it is; null: one without rules
    uint64_t cache_salt = 0;         // of known prefixes
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
  // The drafts of those followed since the last call, none of them empty.
  using Tell = std::function<void(plan::RequestId sequence, std::span<const int32_t> draft)>;
  void decide(const Tell& tell);
  // What the last decide() has spent on the draft model.
  double model_seconds() const { return model_seconds_; }
  // Of the draft model, since the start.
  DraftModel::Counts model_counts() const { return model_counts_; }
  // A step of next tokens and drafts alone has taken so long.
  void add_step(int64_t rows, double seconds) { cost_.add(rows, seconds); }

 private:
  struct Followed {
    plan::RequestId sequence;
    Speculator* speculator;
    TokenSequence tokens;
    int64_t tokens_left;
    Beside beside;
    int32_t count_max;  // guesses that there is room for
    int64_t piece = 0;  // that the draft model is to read
    std::vector<int32_t> forced = {};
    DraftWish without_model = {};             // of the text, or what is forced
    std::unique_ptr<Answer> ahead = nullptr;  // where the draft model guesses by it
    bool has_rules() const { return beside.answer && beside.answer->has_rules(); }
  };

  // What may be copied from the text, or the constraint forces.
  static DraftWish text_wish(const Followed& one);
  static DraftWish forced_wish(Followed& one);
  // What the draft model could guess.
  DraftWish model_wish(const Followed& one);
  bool may_read(const Followed& one);
  void share();
  // Gives the draft model's rows to those it was chosen for; those it can do nothing for now may
  // have guesses of the text. Whether anybody may.
  bool settle();
  // Who is to be run by the draft model.
  std::vector<size_t> chosen_by_missing();
  void run_model();

  const DraftOptions options_;
  const int64_t sample_rows_max_;
  DraftModel* model_;
  HitRate model_rate_;  // of all sequences
  int64_t begun_count_ = 0;
  int64_t trial_steps_ = 0;  // left
  double model_seconds_ = 0;
  DraftModel::Counts model_counts_;
  std::vector<std::unique_ptr<Speculator>> free_;
  std::map<plan::RequestId, std::unique_ptr<Speculator>> used_;
  StepCost cost_;
  // Since the last decide().
  int64_t sequences_ = 0;  // with and without a speculator
  std::vector<Followed> followed_;
  std::vector<DraftWish> wishes_;  // of followed_
  std::vector<DraftModel::Work> works_;
};

}  // namespace jige::serve

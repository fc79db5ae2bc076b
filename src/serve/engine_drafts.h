// EngineDrafts: what is drafted for the sequences of an engine, or of a generator, and what steps
// cost.
//
// After a step every sequence that goes on is followed; decide() then shares the next step among
// the drafts they could have (draft_policy.h). There are as many speculators as sequences run at
// once, all made at the start; a sequence that comes when none is free has no drafts.
//
// With a draft model (draft_model.h) a draft is a copy of the text where its last four tokens were
// found, which costs nothing, else the model's, else a copy behind the last two. Before it guesses
// the model reads what it lacks, up to one forward of it a step, those first that lack least; who
// still lacks something has no guesses of it in that step. Where the policy decides, it is not run
// for sequences that it guesses badly, nor where nobody gains, nor to read more than the rest of an
// answer can make up for. A model whose forward has failed is not run again.
// Invariant: memory is bytes_for() and the model's from construction on, but for a few words a
// sequence. Threads: the engine's.
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
  // A sequence goes on behind these tokens, for up to `tokens_left` more. The tokens must stay as
  // they are until decide().
  void follow(plan::RequestId sequence, const TokenSequence& tokens, int64_t tokens_left);
  // It does not; unknown ones are ignored.
  void forget(plan::RequestId sequence);
  // Another text begins under this name, with `kept` tokens of the one before.
  void begin_again(plan::RequestId sequence, size_t kept);
  // The drafts of those followed since the last call, none of them empty.
  using Tell = std::function<void(plan::RequestId sequence, std::span<const int32_t> draft)>;
  void decide(const Tell& tell);
  // What the last decide() has spent on the draft model.
  double model_seconds() const { return model_seconds_; }
  // A step of next tokens and drafts alone has taken so long.
  void add_step(int64_t rows, double seconds) { cost_.add(rows, seconds); }

 private:
  struct Followed {
    plan::RequestId sequence;
    Speculator* speculator;
    TokenSequence tokens;
    int64_t tokens_left;
    int32_t count_max;  // guesses that there is room for
    int64_t piece = 0;  // that the draft model is to read
  };

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

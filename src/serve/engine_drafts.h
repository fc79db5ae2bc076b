// EngineDrafts: what an engine drafts for its sequences, and what its steps cost.
//
// After a step every sequence that goes on is followed; decide() then shares the next step among
// the drafts they could have (draft_policy.h). There are as many speculators as sequences run at
// once, all made at the start; a sequence that comes when none is free has no drafts.
// Invariant: memory is bytes_for() from construction on, but for a few words a sequence.
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "plan/serve_scheduler.h"
#include "serve/speculator.h"

namespace jige::serve {

class EngineDrafts {
 public:
  // For `sequences` at once of up to `tokens_max` tokens, in steps that sample from up to
  // `sample_rows_max` rows and run as many tokens.
  EngineDrafts(const DraftOptions& options, int64_t sequences, int64_t tokens_max,
               int64_t sample_rows_max);
  static int64_t bytes_for(const DraftOptions& options, int64_t sequences, int64_t tokens_max);

  bool enabled() const { return options_.tokens_max > 0; }
  // A sequence goes on behind these tokens, for up to `tokens_left` more. The tokens must stay as
  // they are until decide().
  void follow(plan::RequestId sequence, const TokenSequence& tokens, int64_t tokens_left);
  // It does not; unknown ones are ignored.
  void forget(plan::RequestId sequence);
  // The drafts of those followed since the last call, none of them empty.
  using Tell = std::function<void(plan::RequestId sequence, std::span<const int32_t> draft)>;
  void decide(const Tell& tell);
  // A step of next tokens and drafts alone has taken so long.
  void add_step(int64_t rows, double seconds) { cost_.add(rows, seconds); }

 private:
  struct Followed {
    plan::RequestId sequence;
    Speculator* speculator;
    TokenSequence tokens;
  };

  const DraftOptions options_;
  const int64_t sample_rows_max_;
  std::vector<std::unique_ptr<Speculator>> free_;
  std::map<plan::RequestId, std::unique_ptr<Speculator>> used_;
  StepCost cost_;
  // Since the last decide().
  int64_t sequences_ = 0;  // with and without a speculator
  std::vector<Followed> followed_;
  std::vector<DraftWish> wishes_;
};

}  // namespace jige::serve

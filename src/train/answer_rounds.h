// Answers to prompts, drawn and scored, for a step or a measurement: by one process, or by several
// ranks, prompt i by rank i modulo their number, each with its own engine, weights and program.
// Then all ranks have all answers and rewards, so that who learns from an answer need not be who
// drew it.
//
// Each rank starts a program of its own where one scores: answers are scored where they were drawn
// as soon as they are, as many at once as there are ranks, and their texts stay there.
//
// Invariant: what comes of a round depends on the weights, the order and what scores, never on the
// number of ranks. A round that is left, on any rank, is left by all.
// Threads: one thread at a time; all ranks call the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "comm/async_group.h"
#include "train/options.h"
#include "train/rewards.h"
#include "train/rollout.h"

namespace jige::train {

struct RoundOrder {
  std::vector<const Prompt*> prompts;
  uint64_t key = 0;   // of the seeds of their answers
  int64_t group = 1;  // answers to each
  DrawOptions draw;
  int64_t step = 0;  // which the program is told
  // Asked now and then, on this thread, whether to leave it. Empty: never.
  std::function<bool()> should_leave;
};

struct AnswerRound {
  std::vector<AnswerGroup> groups;  // by prompt; texts are where they were drawn
  std::vector<double> rewards;      // of all answers, group by group
  double draw_seconds = 0;          // of the rank that took longest, as the next
  double score_seconds = 0;
  double wait_seconds = 0;  // of this rank, for the others
};

class AnswerRounds {
 public:
  // The options must outlive it. REQUIRES: options.grpo.
  AnswerRounds(const TrainOptions& options, int64_t vocab_size);

  // Nothing where it was left. Fails as AnswerSource::draw and Rewards::score, and as soon as
  // another rank has failed, with its error. REQUIRES: AnswerSource::attach(), a prompt.
  Result<std::optional<AnswerRound>> run(const RoundOrder& order);
  // Ends the program.
  void end() { scorer_.end(); }

 private:
  // Of this rank's prompts; false where it is to be left.
  Result<bool> make_own(const RoundOrder& order, AnswerRound& round);
  Status draw_and_score(const RoundOrder& order, const GoOn& go_on, AnswerRound& round);
  // Gives the others what this rank made and takes what they made; false where one has left.
  Result<bool> share(bool stays, AnswerRound& round);
  bool is_own(size_t prompt) const;

  const GrpoOptions& grpo_;
  int64_t vocab_size_;
  comm::AsyncGroup* group_ = nullptr;  // null: this process alone
  Rewards scorer_;
};

}  // namespace jige::train

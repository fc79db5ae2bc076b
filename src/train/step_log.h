// The log of a run: one JSON record a line, so that a script can follow it.
//
//   {"kind": "start", …}  options, versions, machine, memory plan
//   {"kind": "step", "step", "loss", "lr", "grad_norm", …}
//   where rows are skipped, steps have "weight_gradient_share": what was computed of the weight
//     gradients that may be skipped, as a part of their work (row_gate.h)
//   of models with experts steps have also "expert_busiest", "expert_busiest_mean" (expert_use.h)
//     and, with a loss for unequal use, "balance_loss", which "loss" is without
//   {"kind": "eval", "step", "loss", "perplexity", "learned", "best", …}   best: of all so far
//   with pairs of answers, steps and evaluations (there without perplexity) have also
//     "pairs", "margin", "accuracy", "chosen_logprob", "rejected_logprob" (train/preference.h)
//   of runs that learn from rewards, both have "answers", "reward", "reward_spread", "full_share",
//     "answer_tokens" and "cut_share", evaluations of greedy answers and without a loss; steps also
//     "groups", "silent_share", "length_reward" where lengths count, "clipped_share", "kl" where
//     there is a reference, "logprob_gap", "draw_s", "score_s" and "learn_s" (train/reward_means.h)
//   {"kind": "checkpoint", "step", "path"}   {"kind": "end", "best_step", "model_step", …}
// Numbers are written so that they read back with the same bits; what is not finite is null.
// A checkpoint remembers size(): a run that continues cuts the log there, so that every step has
// one record, whenever the run was killed. Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

class StepLog {
 public:
  // Opens a log for writing at `keep_bytes`; what is behind is cut off. A shorter file is continued
  // at its end. Fails with kIo or kNotFound.
  static Result<StepLog> open(const std::string& path, int64_t keep_bytes);
  StepLog(StepLog&& other) noexcept;
  StepLog& operator=(StepLog&& other) noexcept;
  ~StepLog();

  // Appends one record as a line. Fails with kExhausted on a full disk, kIo.
  Status write(const Json& record);
  // Brings what was written to the disk.
  Status sync();
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  StepLog(std::string path, int fd, int64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

// The last record of a log; null where there is none, or one that cannot be read.
Json last_record(const std::string& path);

}  // namespace jige::train

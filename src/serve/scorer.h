// Scorer: log-probabilities of given tokens of many texts, in packed forwards.
//
//   Scorer scorer(model);
//   const auto keep = [&](size_t text, Result<std::vector<float>> logprobs) -> Status { … };
//   JIGE_DO(scorer.score_all(texts, keep));
//
// Beginnings that texts share are run once (plan/score_planner.h), with the head on the rows that
// are scored alone. What a text gets does not depend on the others: on a CPU it has the same bits
// as alone. On a GPU attention sums in another order where a sequence has few rows in a forward.
// Threads: one at a time; the cancellation flag may be set from anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "plan/score_planner.h"
#include "serve/scored_text.h"
#include "text/tokenizer.h"

namespace jige::serve {

// Sums over all that a scorer ran.
struct ScoreCounts {
  int64_t text_tokens = 0;      // that would be run if each text were run by itself
  int64_t computed_tokens = 0;  // that were run
  int64_t forwards = 0;
  int64_t copied_blocks = 0;  // of the cache, where texts part within one
};

class Scorer {
 public:
  // The model must have been loaded with `scores` and must outlive the scorer, which uses all of
  // its cache and runs with one of its adapters, or with none. REQUIRES: model.sizes().scores.
  explicit Scorer(model::InferenceModel& model, int32_t adapter = model::kNoAdapter);

  // Fails with kInvalidArgument on fewer than two tokens, more than the context holds, `first` not
  // in 1 … size - 1, ids out of range, or rows that are none of the model's.
  Status check(const ScoredText& text) const;

  // Called once for each text, with the log-probabilities of its tokens from `first` on, as soon as
  // they are there: nearly in the order of the texts. kCorrupt where they are no numbers.
  using DoneCallback = std::function<Status(size_t text, Result<std::vector<float>> logprobs)>;
  // Fails as check() does, before anything is run, as the callback does, as InferenceModel does,
  // and with kCancelled once `cancelled` is set. REQUIRES: less than 2^31 tokens in all.
  Status score_all(std::span<const ScoredText> texts, const DoneCallback& done,
                   const std::atomic<bool>* cancelled = nullptr);

  // One text alone: its tokens from `first` on.
  Result<TokenScores> score(std::span<const int32_t> tokens, size_t first = 1);
  // With the tokens the tokenizer puts around it.
  Result<TokenScores> score_text(const text::Tokenizer& tokenizer, std::string_view text);

  const ScoreCounts& counts() const { return counts_; }

 private:
  int64_t context_max() const;
  // Tables of texts without given rows are empty.
  Status run(const plan::ScoreForward& forward, std::span<const GivenTable> tables,
             std::vector<float>& by_slot);

  model::InferenceModel& model_;
  const int32_t adapter_;
  ScoreCounts counts_;
};

}  // namespace jige::serve

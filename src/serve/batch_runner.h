// BatchRunner: runs a scheduler's batch on a model, in as many forwards as the model's limits need.
//
// An iteration of the scheduler may be larger than one forward: whole prompts under the orca and
// static policies, more decodes than the model has rows of logits. Bits do not depend on the cut. A
// draft stays together with the token before it. Items of one adapter run next to each other, the
// base's first, so that their rows are one range.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "plan/serve_scheduler.h"
#include "serve/roofline.h"

namespace jige::serve {

class BatchRunner {
 public:
  // The items that sample in one forward and their rows of logits one behind the other,
  // sample_rows() of each; valid during the call.
  using LogitsCallback =
      std::function<void(std::span<const size_t> items, std::span<const float> logits)>;

  // The model must outlive the runner.
  explicit BatchRunner(model::InferenceModel& model);

  // Copies blocks, runs every item and hands out the logits of those that sample, forward by
  // forward. Fails as InferenceModel::forward does; logits of earlier forwards have been handed
  // out then.
  Status run(const plan::Batch& batch, const LogitsCallback& on_logits);
  // Bytes and operations of the last run, as far as it got.
  const RooflineSample& work() const { return work_; }

 private:
  // Whether `count` tokens and the rows that are sampled from fit beside what waits.
  bool fits(int64_t count, int64_t sample_rows) const;
  // In what order the items of a batch run.
  std::span<const size_t> order(const plan::Batch& batch);
  void add(const plan::Batch& batch, size_t item, int32_t begin, int32_t count);
  Status forward(const LogitsCallback& on_logits);

  model::InferenceModel& model_;
  RooflineModel roofline_;
  RooflineSample work_;
  std::vector<int32_t> tokens_;
  std::vector<ops::SequenceSpan> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<size_t> logit_items_;
  std::vector<int32_t> adapters_;  // of sequences_
  std::vector<size_t> order_;      // of a batch's items
};

}  // namespace jige::serve

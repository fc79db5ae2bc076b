// BatchRunner: runs a scheduler's batch on a model, in as many forwards as the model's limits need.
//
// plan/forward_cut.h says how it is cut; bits do not depend on that.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "plan/forward_cut.h"
#include "plan/serve_scheduler.h"
#include "serve/roofline.h"

namespace jige::serve {

class BatchRunner {
 public:
  // Rows that are wanted besides those that are sampled from: tokens [begin, end) of an item. Of a
  // model for embeddings none is sampled from, and what is wanted are rows behind the final norm.
  struct RowRange {
    int32_t begin = 0;
    int32_t end = 0;
  };
  struct WantedRow {
    size_t item;
    int32_t index;  // of the item's token
  };
  // The items that sample in one forward and their rows one behind the other, sample_rows() of
  // each, or none of a model for embeddings; valid during the call.
  using RowsCallback =
      std::function<void(std::span<const size_t> items, const model::LogitRows& rows)>;
  struct Readers {
    RowsCallback sampled;
    // How the token behind one of an item's sample_rows() can be drawn on the device; null: no way.
    std::function<ops::RowDraw(const plan::WorkItem& item, int32_t row)> row_draw = {};
    // Both or none. Of one forward, `wanted` comes before `sampled`, as often as the model's rows
    // of logits make it necessary.
    std::function<RowRange(const plan::WorkItem& item)> wanted_range = {};
    std::function<void(std::span<const WantedRow> rows, std::span<const float> values)> wanted = {};
  };

  // The model must outlive the runner.
  explicit BatchRunner(model::InferenceModel& model);

  // Copies blocks and states, runs every item and hands out the logits that are wanted, forward by
  // forward. Fails as InferenceModel::forward does; logits of earlier forwards have been handed out
  // then.
  Status run(const plan::Batch& batch, const Readers& readers);
  // Bytes and operations of the last run, as far as it got.
  const RooflineSample& work() const { return work_; }

 private:
  void add(const Readers& readers, const plan::Batch& batch, const plan::ForwardPart& part);
  void add_wanted(const Readers& readers, const plan::Batch& batch, const plan::ForwardPart& part);
  Status forward(const Readers& readers);
  // Logits of rows of the last forward or, of a model for embeddings, the rows themselves.
  Result<std::span<const float>> values_of(std::span<const int32_t> rows);
  Status read_logits(const Readers& readers);

  model::InferenceModel& model_;
  const bool embeds_;
  RooflineModel roofline_;
  RooflineSample work_;
  std::vector<int32_t> tokens_;
  std::vector<ops::SequenceSpan> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<size_t> logit_items_;
  std::vector<ops::RowDraw> draws_;   // of logit_rows_
  std::vector<int32_t> wanted_rows_;  // of the forward
  std::vector<WantedRow> wanted_;     // what they are
  std::vector<int32_t> adapters_;     // of sequences_
  std::vector<size_t> order_;         // of a batch's items
};

}  // namespace jige::serve

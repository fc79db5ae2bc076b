// BatchRunner: runs a scheduler's batches on a model, each in as many forwards as the model's
// limits need.
//
//   JIGE_DO(runner.begin(batch, readers));  // others may be begun, up to the model's forwards_max
//   JIGE_DO(runner.finish(readers));        // of the batch that was begun first
//
// plan/forward_cut.h says how a batch is cut; bits do not depend on that. Of a batch in several
// forwards all but the last are over when it is begun.
// Invariant: a batch is under way from a begin() that succeeds to the finish() that ends it,
// whether that succeeds or not. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "plan/forward_cut.h"
#include "plan/serve_scheduler.h"
#include "serve/given_rows.h"
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
    // Where an item's tokens of the second type begin (ops::SequenceSpan); null: nowhere.
    std::function<int32_t(const plan::WorkItem& item)> second_begin = {};
    // What stands in an item's prompt in place of tokens, or null; null: nothing.
    std::function<std::shared_ptr<const GivenTable>(const plan::WorkItem& item)> given = {};
    // Both or none. Of one forward, `wanted` comes before `sampled`, as often as the model's rows
    // of logits make it necessary.
    std::function<RowRange(const plan::WorkItem& item)> wanted_range = {};
    std::function<void(std::span<const WantedRow> rows, std::span<const float> values)> wanted = {};
  };

  // The model must outlive the runner.
  explicit BatchRunner(model::InferenceModel& model);

  // Copies blocks and states and begins to run every item; hands out the logits that are wanted of
  // all forwards but the last. Fails as InferenceModel::forward does; logits of earlier forwards
  // have been handed out then.
  Status begin(const plan::Batch& batch, const Readers& readers);
  // Hands out those of the last forward of the batch that was begun first. The readers are of that
  // batch. Fails likewise.
  Status finish(const Readers& readers);
  // Bytes and operations of the last batch that was finished or failed, as far as it got.
  const RooflineSample& work() const { return work_; }

 private:
  // What runs in a forward, and what is wanted of it.
  struct Forward {
    std::vector<int32_t> tokens;
    std::vector<ops::SequenceSpan> sequences;
    std::vector<int32_t> logit_rows;
    std::vector<size_t> logit_items;
    std::vector<ops::RowDraw> draws;   // of logit_rows
    std::vector<int32_t> wanted_rows;  // of the forward
    std::vector<WantedRow> wanted;     // what they are
    std::vector<int32_t> adapters;     // of sequences
    PlacedRows given;
    std::vector<const model::ImagePlaces*> places;          // of sequences, or null
    bool has_places = false;                                // one of them has
    std::vector<std::shared_ptr<const GivenTable>> tables;  // that hold them while they are read
    int32_t number = -1;                                    // the model's, while it is under way
    RooflineSample work = {};                               // of its batch so far
    void clear();
  };
  using ForwardRef = std::unique_ptr<Forward>;

  ForwardRef take();
  void give_back(ForwardRef forward);
  static void add(Forward& forward, const Readers& readers, const plan::Batch& batch,
                  const plan::ForwardPart& part);
  static void add_wanted(Forward& forward, const Readers& readers, const plan::Batch& batch,
                         const plan::ForwardPart& part);
  Status begin_forward(Forward& forward);
  // Waits for it and hands out what is wanted; it is empty then.
  Status end_forward(Forward& forward, const Readers& readers);
  // Logits of rows of the last forward or, of a model for embeddings, the rows themselves.
  Result<std::span<const float>> values_of(std::span<const int32_t> rows);
  Status read_logits(Forward& forward, const Readers& readers);

  model::InferenceModel& model_;
  const bool embeds_;
  RooflineModel roofline_;
  RooflineSample work_;
  std::deque<ForwardRef> under_way_;  // of each batch its last
  std::vector<ForwardRef> free_;      // so that their memory is kept
  std::vector<size_t> order_;         // of a batch's items
};

}  // namespace jige::serve

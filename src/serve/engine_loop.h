// EngineLoop: what the engine's thread does, turn after turn: take events, begin a batch and end
// the one that was begun first, publish.
//
// With one batch in flight an iteration is a turn. With more, batches begin until as many are under
// way; then the first ends before another begins, so they end in the order in which they began.
// Invariants between turns: fewer batches than options.batches_in_flight are under way, and those
// are the scheduler's in flight; every choice that is not over is the scheduler's, or will be
// forked from its first choice; the scheduler knows no other requests, but for those that were
// cancelled or failed while they were under way, until their batch ends. Threads: one, from
// construction on; inbox, board and histograms are shared with others.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "model/inference.h"
#include "serve/batch_runner.h"
#include "serve/engine.h"
#include "serve/engine_drafts.h"
#include "serve/inbox.h"
#include "serve/live_request.h"
#include "serve/recorded_scheduler.h"
#include "serve/status_board.h"

namespace jige::serve {

class EngineLoop {
 public:
  struct Shared {
    const EngineOptions& options;
    Inbox& inbox;
    StatusBoard& board;
    EngineHistograms& histograms;
    // Before a batch runs: what its items run may be cut to their last tokens, for measurements of
    // steps behind a cache that somebody has filled.
    std::function<void(plan::Batch&)> prepare = {};
  };

  EngineLoop(model::InferenceModel& model, const text::Tokenizer& tokenizer,
             std::vector<int32_t> eos_ids, RecordedScheduler scheduler, Shared shared);

  // Turns, until the inbox says stop; what is left then is cancelled.
  void run();
  // One turn; false where the inbox says stop. Waits for an event where nothing is to be done.
  bool turn();

 private:
  using Requests = std::map<RequestId, std::unique_ptr<LiveRequest>>;

  // Events.
  void take_events();
  void arrive(Submission submission);
  void cancel(RequestId id);
  void cancel_all();
  void change_plan(PlanChange change);

  // Iterations.
  struct UnderWay {
    plan::Batch batch;
    StopWatch watch;
    std::vector<plan::SampledNext> sampled = {};
  };
  void iterate();
  // False where the scheduler has nothing to begin.
  bool begin_next();
  // Whether batches can run. Layers that are lost are brought back first, while requests wait, or
  // all requests fail.
  bool layers_are_there();
  void begin(const plan::Batch& batch);
  Status begin_forwards(UnderWay& one);
  void end_first();
  void fail_all(const Error& error);
  // They must not outlive `one`.
  BatchRunner::Readers readers_of(UnderWay& one);
  // Scores tokens of prompts from the rows of logits in front of them.
  void score(const plan::Batch& batch, std::span<const BatchRunner::WantedRow> rows,
             std::span<const float> logits);
  // Gives rows to the vectors that are made of them, and tells those that are complete.
  void pool(const plan::Batch& batch, std::span<const BatchRunner::WantedRow> rows,
            std::span<const float> values);
  void finish_vectors(UnderWay& one, std::span<const size_t> items);
  // An item that samples: its rows of logits, and what came of those before `row`.
  struct Sampling {
    const plan::WorkItem* item;
    model::LogitRows rows;  // of the item and those behind it
    plan::SampledNext next;
    int32_t row = 0;
    bool goes_on = true;  // the next row is behind tokens that have come
  };
  // How the token behind one of an item's rows is drawn on the device.
  ops::RowDraw row_draw(const plan::WorkItem& item, int32_t row);
  // Draws and takes the next tokens of the items that sample, from their rows: the first row of
  // all, then the second of those whose first guess has come true, and so on.
  void sample(UnderWay& one, std::span<const size_t> items, const model::LogitRows& rows);
  void count_drafts(const Sampling& sampling, LiveRequest& live);
  void add_draws(const Sampling& sampling);
  void draw_all();
  // Calls `one` for 0 … count - 1, on the threads that draw where there are several.
  void share(int64_t count, const std::function<void(int64_t)>& one);
  void take_drawn(Sampling& sampling);
  // Takes one token; true when the choice goes on.
  bool take(LiveRequest& live, int32_t choice);
  void settle(const UnderWay& one);
  // Drafts for those who have sampled and go on.
  void draft(std::span<const plan::SampledNext> sampled);
  void draft_behind(RequestId sequence);
  // Its requests fail; where layers were lost, those alone that have got a part of its results:
  // the others run it again.
  void lose(const UnderWay& one, const Error& error);
  void account(const UnderWay& one, bool lost);

  // Endings. What the scheduler lets go of is collected in over_ and settled at the end of a turn.
  void drop_sequences(const LiveRequest& live);
  // What a request with bad logits has left in the cache may be what made them bad.
  void discard_sequences(const LiveRequest& live);
  void fail(LiveRequest& live);
  void end_over();
  void finish(LiveRequest& live);
  void forget(const LiveRequest& live);
  // Whether requests are still those of the plan.
  void look_for_drift(const LiveRequest& live);
  void publish();

  // The request that a sequence is a choice of; null when it is gone.
  LiveRequest* find(RequestId sequence);
  LiveRequest& live_of(RequestId sequence);

  const text::Tokenizer& tokenizer_;
  const std::vector<int32_t> eos_ids_;
  model::LayersBeyond* const beyond_;  // may be null
  const int64_t context_max_;
  const bool embeds_;  // the model gives rows for vectors, and no logits
  Shared shared_;
  RecordedScheduler scheduler_;
  BatchRunner runner_;
  EngineDrafts drafts_;
  std::optional<plan::DriftDetector> drift_;  // where there is a plan
  Requests requests_;
  int64_t not_begun_count_ = 0;
  std::deque<UnderWay> under_way_;  // in the order in which they began
  StopWatch since_end_;             // of the last batch that ended

  // Of the current turn; members, so that their memory is kept.
  Inbox::Events events_;
  std::vector<Sampling> samplings_;
  std::vector<RequestId> over_;
  std::vector<RequestId> touched_;
  struct Draw {
    LiveRequest* live;
    int32_t choice;
    std::span<const float> logits;  // or empty
    int32_t token = -1;             // that was drawn on the device
    float logprob = 0;              // its own, where it is wanted
  };
  std::vector<Draw> draws_;
  std::vector<std::vector<float>> spoiled_;  // logits with injected faults
  StatusBoard::Turn turn_;
};

}  // namespace jige::serve

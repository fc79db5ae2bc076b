// Writes a checkpoint beside the passes of the next step.
//
// Masters and moments change only in updates, so a thread of its own can write them as they are
// while gradients are computed; whoever is about to change them waits. No copy is made.
//
//   JIGE_DO(task.start(request, identity, state, parts, std::move(streams)));
//   …  task.wait_written();  optimizer.step(…)      // in the way of an update
//   JIGE_TRY(auto written, task.finish());          // once a step: what has become of it
//
// Invariant: one write at a time; the newest complete checkpoint stays in use until it is over.
// Threads: wait_written() from any thread; the rest from the trainer's.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/result.h"
#include "train/optimizer.h"
#include "train/report.h"
#include "train/run_state.h"

namespace jige::train {

class CheckpointTask {
 public:
  CheckpointTask() = default;
  ~CheckpointTask();
  CheckpointTask(const CheckpointTask&) = delete;
  CheckpointTask& operator=(const CheckpointTask&) = delete;

  // Begins to write. The optimizer and what it points to must stay until it is over, and the gate;
  // `shown`, which may be null, is set until then. With moments of their own (shared_state.h) ranks
  // send while it writes: the caller does nothing else until finish(). REQUIRES: nothing is under
  // way.
  void start(SaveRequest request, std::shared_ptr<const Json> identity, RunState state,
             SavedParts parts, model::OwnNodeStreams streams, std::atomic<bool>* shown = nullptr);
  bool under_way() const { return thread_.joinable(); }
  // Returns when no parameter is read any more.
  void wait_written() const;
  // Waits and says what was written, once; nothing where nothing was. Fails as save_checkpoint.
  Result<std::optional<CheckpointInfo>> finish();

 private:
  std::thread thread_;
  std::atomic<bool> writing_{false};
  Status status_;
  CheckpointInfo info_;
};

}  // namespace jige::train

#include "train/checkpoint_task.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "formats/checkpoint.h"

namespace jige::train {

CheckpointTask::~CheckpointTask() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointTask::start(SaveRequest request, std::shared_ptr<const Json> identity,
                           RunState state, SavedParts parts, model::OwnNodeStreams streams,
                           std::atomic<bool>* shown) {
  JIGE_CHECK(!under_way(), "a checkpoint of step {} while another is written", state.step);
  info_ = {.step = state.step, .folder = request.run_folder};
  writing_ = true;
  if (shown) *shown = true;
  thread_ = std::thread([this, shown, request = std::move(request), identity = std::move(identity),
                         state, parts = std::move(parts), streams = std::move(streams)] {
    const StopWatch watch;
    status_ = save_checkpoint(request, *identity, state, parts, streams.get());
    info_.seconds = watch.seconds();
    if (shown) *shown = false;
    writing_ = false;
    writing_.notify_all();
  });
}

void CheckpointTask::wait_written() const { writing_.wait(true); }

Result<std::optional<CheckpointInfo>> CheckpointTask::finish() {
  if (!under_way()) return std::nullopt;
  thread_.join();
  if (status_) return info_;
  Error error = std::move(status_.error());
  status_ = {};
  return with_context(std::move(error), "the checkpoint of step {} was not written; {}", info_.step,
                      formats::list_checkpoints(info_.folder).empty()
                          ? "there is none before it"
                          : "the one before it stays good");
}

}  // namespace jige::train

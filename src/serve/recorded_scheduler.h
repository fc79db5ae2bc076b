// RecordedScheduler: a ServeScheduler whose every event and decision goes to an event log, if there
// is one. All that changes its state passes through here, so a log cannot miss anything.
//
// Threads: none; one caller.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/serve_scheduler.h"
#include "plan/serve_settings.h"
#include "serve/event_log.h"

namespace jige::serve {

class RecordedScheduler {
 public:
  // `log` may be null.
  RecordedScheduler(const plan::ServeSchedulerOptions& options, std::unique_ptr<EventLog> log);

  Status arrive(plan::RequestSpec spec);
  void draft(plan::RequestId request, std::span<const int32_t> tokens, int32_t certain_count = 0);
  std::optional<plan::Batch> next_batch();
  std::vector<plan::RequestId> complete(plan::BatchId batch,
                                        std::span<const plan::SampledNext> sampled);
  std::vector<plan::RequestId> lose(plan::BatchId batch);
  void lose_caches();
  std::vector<plan::RequestId> cancel(plan::RequestId request);
  void discard(plan::RequestId request);
  void change(const plan::ServeSettings& settings);

  const plan::ServeScheduler& state() const { return scheduler_; }

 private:
  plan::ServeScheduler scheduler_;
  std::unique_ptr<EventLog> log_;
};

}  // namespace jige::serve

// StatusBoard: what the engine's thread makes known and others read.
//
// The engine publishes once an iteration; readers get a copy. Nobody holds the lock while a model
// runs or a sink is called, so that a health check never waits for what it checks.
// Threads: arrived, refused, forget_adapter, snapshot, settings and wait_idle from any thread;
// publish from the engine's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "serve/engine_status.h"
#include "serve/roofline.h"

namespace jige::serve {

class StatusBoard {
 public:
  // One turn of the engine.
  struct Turn {
    EngineCounters counters;  // requests received, refused and by adapter are not the engine's
    std::vector<RequestRow> changed;
    std::vector<RequestId> over;
    std::optional<RooflineSample> iteration;  // if one was run
    bool iteration_lost = false;
    bool layers_lost = false;
    int64_t running_sequences = 0;
    int64_t preempted_sequences = 0;
    int64_t kv_blocks_live = 0;
    int64_t kv_blocks_cached = 0;
    int64_t kv_evictions = 0;
    std::optional<plan::DriftState> drift;
    std::shared_ptr<const plan::RecentLoad> recent_load;
    plan::ServeSettings settings;
  };

  StatusBoard(int64_t kv_blocks, double stall_seconds_max, const plan::ServeSettings& settings);

  // A request is about to be queued at `now_ns`.
  void arrived(const RequestRow& row, int64_t now_ns);
  // It was not taken after all, or never got to arrived() (id 0).
  void refused(RequestId id);
  // An adapter is gone: it is counted no more.
  void forget_adapter(int32_t number);
  // As many sequences run in the turn that begins.
  void running(int64_t sequences);
  void publish(const Turn& turn, int64_t now_ns);

  // Without what the inbox knows: accepting, the waiting counts, retry_after_seconds.
  EngineStatus snapshot(bool with_requests, int64_t now_ns) const;
  plan::ServeSettings settings() const;
  // Requests finished in a busy second, of late; 0: not measured yet.
  double requests_per_s() const;
  // Waits until no request is left: true, or false when the time is up.
  bool wait_idle(double seconds_max);

 private:
  struct Entry {
    RequestRow row;
    int64_t arrived_ns = 0;
  };

  const double stall_seconds_max_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  EngineStatus status_;
  RecentWork recent_;
  std::map<RequestId, Entry> entries_;
  int64_t requests_received_ = 0;
  int64_t requests_refused_ = 0;
  std::map<int32_t, int64_t> requests_by_adapter_;
  int64_t lost_in_a_row_ = 0;
  int64_t start_ns_;
  int64_t busy_since_ns_ = 0;  // the last iteration's end, or later the first arrival
};

}  // namespace jige::serve

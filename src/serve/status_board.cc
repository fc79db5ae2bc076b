#include "serve/status_board.h"

#include <chrono>

#include "base/clock.h"

namespace jige::serve {
namespace {

constexpr int64_t kLostIterationsMax = 3;  // in a row, until the engine counts as stalled

int64_t finished_count(const EngineCounters& counters) {
  int64_t count = counters.requests_failed;
  for (const int64_t finished : counters.requests_finished) count += finished;
  return count;
}

}  // namespace

std::string_view request_state_name(RequestRow::State state) {
  switch (state) {
    case RequestRow::State::kWaiting:
      return "waiting";
    case RequestRow::State::kPrefill:
      return "prefill";
    case RequestRow::State::kDecode:
      return "decode";
    case RequestRow::State::kPreempted:
      return "preempted";
  }
  return "waiting";
}

StatusBoard::StatusBoard(int64_t kv_blocks, double stall_seconds_max,
                         const plan::ServeSettings& settings)
    : stall_seconds_max_(stall_seconds_max), start_ns_(RealClock().now_ns()) {
  status_.kv_blocks = kv_blocks;
  status_.settings = settings;
}

void StatusBoard::arrived(const RequestRow& row, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  ++requests_received_;
  if (row.adapter != model::kNoAdapter) ++requests_by_adapter_[row.adapter];
  if (entries_.empty()) busy_since_ns_ = now_ns;
  entries_.emplace(row.id, Entry{row, now_ns});
}

void StatusBoard::refused(RequestId id) {
  const std::lock_guard lock(mutex_);
  ++requests_refused_;
  if (id == 0) {
    ++requests_received_;
    return;
  }
  entries_.erase(id);
  if (entries_.empty()) idle_.notify_all();
}

void StatusBoard::forget_adapter(int32_t number) {
  const std::lock_guard lock(mutex_);
  requests_by_adapter_.erase(number);
}

void StatusBoard::running(int64_t sequences) {
  const std::lock_guard lock(mutex_);
  status_.running_sequences = sequences;
}

void StatusBoard::publish(const Turn& turn, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const int64_t finished = finished_count(turn.counters) - finished_count(status_.counters);
  status_.counters = turn.counters;
  status_.running_sequences = turn.running_sequences;
  status_.preempted_sequences = turn.preempted_sequences;
  status_.layers_lost = turn.layers_lost;
  status_.kv_blocks_live = turn.kv_blocks_live;
  status_.kv_blocks_cached = turn.kv_blocks_cached;
  status_.kv_evictions = turn.kv_evictions;
  status_.drift = turn.drift;
  status_.recent_load = turn.recent_load;
  status_.settings = turn.settings;
  if (turn.iteration) {
    const RooflineSample& work = *turn.iteration;
    busy_since_ns_ = now_ns;
    lost_in_a_row_ = turn.iteration_lost ? lost_in_a_row_ + 1 : 0;
    status_.last_iteration_tokens = work.tokens;
    status_.last_iteration_seconds = work.seconds;
    status_.total.bytes += work.bytes;
    status_.total.flops += work.flops;
    status_.total.seconds += work.seconds;
    status_.total.tokens += work.tokens;
    recent_.add(work, finished);
  }
  for (const RequestRow& row : turn.changed) {
    const auto entry = entries_.find(row.id);
    if (entry != entries_.end()) entry->second.row = row;
  }
  for (const RequestId id : turn.over) entries_.erase(id);
  if (entries_.empty()) idle_.notify_all();
}

EngineStatus StatusBoard::snapshot(bool with_requests, int64_t now_ns) const {
  const std::lock_guard lock(mutex_);
  EngineStatus status = status_;
  status.counters.requests_received = requests_received_;
  status.counters.requests_refused = requests_refused_;
  status.counters.requests_by_adapter = requests_by_adapter_;
  status.recent = recent_.sum();
  status.service_requests_per_s = recent_.requests_per_s();
  status.uptime_seconds = seconds_between(start_ns_, now_ns);
  if (!entries_.empty()) status.seconds_since_iteration = seconds_between(busy_since_ns_, now_ns);
  status.stalled =
      status.seconds_since_iteration > stall_seconds_max_ || lost_in_a_row_ >= kLostIterationsMax;
  if (!with_requests) return status;
  for (const auto& [id, entry] : entries_) {
    status.requests.push_back(entry.row);
    status.requests.back().age_seconds = seconds_between(entry.arrived_ns, now_ns);
  }
  return status;
}

plan::ServeSettings StatusBoard::settings() const {
  const std::lock_guard lock(mutex_);
  return status_.settings;
}

double StatusBoard::requests_per_s() const {
  const std::lock_guard lock(mutex_);
  return recent_.requests_per_s();
}

bool StatusBoard::wait_idle(double seconds_max) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::duration<double>(seconds_max),
                        [&] { return entries_.empty(); });
}

}  // namespace jige::serve

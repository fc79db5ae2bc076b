#include "base/threads.h"

#include <immintrin.h>

#include <algorithm>

#include "base/check.h"

namespace jige {
namespace {

// Loops follow each other within microseconds in a model step, so a worker looks for the next one
// this many times before it parks. Short, since the machine may be shared.
constexpr int kSpinCount = 2000;

// Which team's loop body this thread runs, and as which of its workers.
struct Running {
  const void* team = nullptr;
  int worker = 0;
};
thread_local Running running;

// Marks this thread as running a body, and restores what it ran before.
class RunningScope {
 public:
  RunningScope(const void* team, int worker) : before_(running) { running = {team, worker}; }
  ~RunningScope() { running = before_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  Running before_;
};

}  // namespace

ThreadTeam::ThreadTeam(int thread_count) {
  JIGE_CHECK(thread_count >= 1, "a team needs a thread, not {}", thread_count);
  shares_ = std::make_unique<Share[]>(static_cast<size_t>(thread_count));
  workers_.reserve(static_cast<size_t>(thread_count) - 1);
  for (int worker = 1; worker < thread_count; ++worker) {
    workers_.emplace_back([this, worker] { worker_main(worker); });
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_.store(true);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadTeam::run(int64_t count, int64_t grain, RangeFunction function, void* context) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (running.team == this) {  // nested: the team is busy with the outer loop
    function(context, 0, count, running.worker);
    return;
  }
  const std::lock_guard<std::mutex> turn(turn_mutex_);
  if (workers_.empty() || count <= grain) {
    const RunningScope scope(this, 0);
    function(context, 0, count, 0);
    return;
  }
  // About four ranges a thread: enough to even out unequal ones, few enough to cost nothing.
  const int64_t range_count = std::min<int64_t>((count + grain - 1) / grain, 4 * size());
  const int64_t chunk = ((count + range_count - 1) / range_count + grain - 1) / grain * grain;
  loop_ = Loop{function, context, count, chunk};
  const int64_t chunks = (count + chunk - 1) / chunk;
  for (int worker = 0; worker < size(); ++worker) {
    Share& share = shares_[static_cast<size_t>(worker)];
    share.next.store(chunks * worker / size() * chunk, std::memory_order_relaxed);
    share.end = chunks * (worker + 1) / size() * chunk;
  }
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(loop_, 0);
  for (int spin = 0;; ++spin) {
    const int pending = pending_.load(std::memory_order_acquire);
    if (pending == 0) break;
    if (spin < kSpinCount) {
      _mm_pause();
    } else {
      pending_.wait(pending, std::memory_order_acquire);
    }
  }
}

void ThreadTeam::work(const Loop& loop, int worker) {
  const RunningScope scope(this, worker);
  for (int i = 0; i < size(); ++i) {
    Share& share = shares_[static_cast<size_t>((worker + i) % size())];
    for (;;) {
      const int64_t begin = share.next.fetch_add(loop.chunk, std::memory_order_relaxed);
      if (begin >= share.end) break;
      loop.function(loop.context, begin, std::min(begin + loop.chunk, loop.count), worker);
    }
  }
}

void ThreadTeam::worker_main(int worker) {
  uint64_t seen = 0;
  for (;;) {
    uint64_t generation = seen;
    for (int spin = 0; spin < kSpinCount; ++spin) {
      generation = generation_.load(std::memory_order_acquire);
      if (generation != seen) break;
      _mm_pause();
    }
    while (generation == seen) {
      generation_.wait(seen, std::memory_order_acquire);
      generation = generation_.load(std::memory_order_acquire);
    }
    seen = generation;
    if (stopping_.load()) return;
    work(loop_, worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_all();
  }
}

}  // namespace jige

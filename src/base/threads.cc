#include "base/threads.h"

#include <immintrin.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace jige {
namespace {

// Loops follow each other within microseconds in a model step, so a worker looks for the next one
// this many times before it parks. Short, since the machine may be shared.
constexpr int kSpinCount = 2000;
// A range is this part of what is left of a share: long pieces first, as processors like them.
constexpr int64_t kPartOfShare = 4;
constexpr uint32_t kOpen = 1U << 31;

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
  loop_ = Loop{function, context, count, grain};
  const int64_t grains = (count + grain - 1) / grain;
  for (int worker = 0; worker < size(); ++worker) {
    Share& share = shares_[static_cast<size_t>(worker)];
    share.next.store(grains * worker / size() * grain, std::memory_order_relaxed);
    share.end = grains * (worker + 1) / size() * grain;
  }
  members_.store(kOpen, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work(0);
  close_and_wait();
}

bool ThreadTeam::join() {
  uint32_t members = members_.load(std::memory_order_relaxed);
  while ((members & kOpen) != 0) {
    if (members_.compare_exchange_weak(members, members + 1, std::memory_order_acquire)) {
      return true;
    }
  }
  return false;
}

void ThreadTeam::leave() {
  if (members_.fetch_sub(1, std::memory_order_release) == 1) members_.notify_one();
}

// What the members wrote is visible to the caller afterwards.
void ThreadTeam::close_and_wait() {
  uint32_t members = members_.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
  for (int spin = 0; members != 0; ++spin) {
    if (spin < kSpinCount) {
      _mm_pause();
    } else {
      members_.wait(members, std::memory_order_acquire);
    }
    members = members_.load(std::memory_order_acquire);
  }
}

std::pair<int64_t, int64_t> ThreadTeam::Share::take(int64_t grain) {
  int64_t begin = next.load(std::memory_order_relaxed);
  for (;;) {
    if (begin >= end) return {begin, begin};
    const int64_t grains = std::max<int64_t>((end - begin) / grain / kPartOfShare, 1);
    const int64_t stop = begin + grains * grain;
    if (next.compare_exchange_weak(begin, stop, std::memory_order_relaxed)) return {begin, stop};
  }
}

void ThreadTeam::work(int worker) {
  const Loop loop = loop_;
  const RunningScope scope(this, worker);
  for (int i = 0; i < size(); ++i) {
    Share& share = shares_[static_cast<size_t>((worker + i) % size())];
    for (auto [begin, end] = share.take(loop.grain); begin < end;
         std::tie(begin, end) = share.take(loop.grain)) {
      loop.function(loop.context, begin, std::min(end, loop.count), worker);
    }
  }
}

void ThreadTeam::worker_main(int worker) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t generation = seen;
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
    if (!join()) continue;
    work(worker);
    leave();
  }
}

}  // namespace jige

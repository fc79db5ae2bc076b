// A fixed team of threads that runs one parallel loop at a time: the compute team of a CPU device.
//
// Invariants: (1) the caller takes part, so a team of one has no thread of its own.
//             (2) every index of a loop is run exactly once, before parallel_for returns.
//             (3) which thread runs an index is unspecified; results may not depend on it.
// A thread starts with its own share of the indices, the same part of every loop, so that loops
// over the same rows, one after the other, find in its caches what it left there; whoever is done
// with its share goes on with those of the others. Ranges become smaller towards the end of a
// share, so that threads of unequal speed are done at about the same time. A thread that sleeps is
// called but not waited for: when it comes after all indices were taken, it leaves the loop alone.
// Threads: parallel_for may be called from any thread; calls from several threads take turns. A
// call from inside a body of the same team runs inline, with the worker index of that body; one
// from a body of another team takes its turn, so two teams must not call each other in a circle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace jige {

class ThreadTeam {
 public:
  // REQUIRES: thread_count >= 1.
  explicit ThreadTeam(int thread_count);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(begin, end, worker) over disjoint ranges that cover [0, count). A range is a multiple
  // of `grain` long, but for the last. `worker` in [0, size()) names the running thread, for
  // scratch.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    run(
        count, grain,
        [](void* context, int64_t begin, int64_t end, int worker) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using RangeFunction = void (*)(void* context, int64_t begin, int64_t end, int worker);

  struct Loop {
    RangeFunction function = nullptr;
    void* context = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
  };
  // What is left of a thread's share of a loop: [next, end), in whole grains.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;

    // Takes the next range, in whole grains; empty when nothing is left.
    std::pair<int64_t, int64_t> take(int64_t grain);
  };

  void run(int64_t count, int64_t grain, RangeFunction function, void* context);
  void work(int worker);
  void worker_main(int worker);
  // Takes part in the loop that is open; false when none is.
  bool join();
  void leave();
  void close_and_wait();

  std::mutex turn_mutex_;  // one loop at a time
  // Written by the caller of a loop while none is open and nobody takes part in one.
  Loop loop_;
  std::unique_ptr<Share[]> shares_;  // by worker
  // How many workers take part in the loop, and kOpen while others may join.
  std::atomic<uint32_t> members_{0};
  std::atomic<uint32_t> generation_{0};  // of loops; 32 bits, as a futex has
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace jige

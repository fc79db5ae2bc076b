// Runs a schedule's tasks, each queue on a thread of its own, in the order that the graph enforces.
//
//   QueueRunner runner(graph, [&](int32_t task) -> Status { … });
//   JIGE_DO(runner.run());            // one step: every task once
//   runner.spans()[task].start_ns     // when it ran
//
// A task starts when its predecessors in the graph have ended; what they wrote is visible to it.
// When a task fails, or throws, no further task starts, run() returns the first failure once the
// tasks under way have ended, and the runner can be used again. Invariant: between two runs no task
// is under way. Threads: run() from one thread at a time; `execute` is called from all queues'
// threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "plan/pipeline_graph.h"

namespace jige::train {

// Nanoseconds since run() began.
struct TaskSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class QueueRunner {
 public:
  using Execute = std::function<Status(int32_t task)>;

  // The graph must outlive the runner. Threads start here and sleep until run().
  QueueRunner(const plan::PipelineGraph& graph, Execute execute);
  ~QueueRunner();
  QueueRunner(const QueueRunner&) = delete;
  QueueRunner& operator=(const QueueRunner&) = delete;

  Status run();
  // Of the last run that succeeded, by task.
  std::span<const TaskSpan> spans() const { return spans_; }

 private:
  void work(const plan::PipelineQueue& queue);
  void run_queue(const plan::PipelineQueue& queue, uint32_t round);
  Status guarded(int32_t task);
  void await(int32_t task, uint32_t round);
  void fail_run(Error error, uint32_t round);

  const plan::PipelineGraph* graph_;
  Execute execute_;
  RealClock clock_;
  int64_t start_ns_ = 0;
  std::vector<TaskSpan> spans_;
  // The round in which a task last ended. Everybody who waits for a task waits for its entry.
  std::vector<std::atomic<uint32_t>> ended_;
  std::atomic<uint32_t> round_{0};    // incremented to start a run
  std::atomic<uint32_t> working_{0};  // queues that have not finished this round
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::optional<Error> error_;
  std::vector<std::thread> threads_;
};

}  // namespace jige::train

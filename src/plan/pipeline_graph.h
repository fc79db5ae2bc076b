// The order that a schedule enforces: its tasks as a graph with edges from queues and dependencies.
//
//   JIGE_TRY(const PipelineGraph graph, PipelineGraph::create(schedule));
//   for (const int32_t task : graph.topological_order()) …
//   const HappensBefore order(graph);
//   order.before(fetch, forward);  // in every run, whatever the times
//
// before() is exact, by vector clocks: one counter for each queue and task, so memory is tasks x
// queues x 4 bytes.
// Invariants: a graph is free of cycles. Threads: read-only after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct PipelineQueue {
  int32_t device = -1;
  QueueKind kind = QueueKind::kHost;
  int32_t peer = -1;           // of receive queues: the sender
  std::vector<int32_t> tasks;  // in order
};

class PipelineGraph {
 public:
  // Fails with kCorrupt when an index in `after` is out of range, and when tasks wait for one
  // another in a circle, naming them.
  static Result<PipelineGraph> create(const PipelineSchedule& schedule);

  size_t task_count() const { return queue_of_.size(); }
  const std::vector<PipelineQueue>& queues() const { return queues_; }
  size_t queue_index(int32_t task) const { return queue_of_[static_cast<size_t>(task)]; }
  // The place of a task in its queue.
  int32_t position(int32_t task) const { return position_[static_cast<size_t>(task)]; }
  // The task before it in its queue, if any, then those in `after`.
  std::span<const int32_t> predecessors(int32_t task) const;
  const std::vector<int32_t>& topological_order() const { return topological_order_; }

 private:
  void sort_into_queues(const PipelineSchedule& schedule);
  void collect_predecessors(const PipelineSchedule& schedule);
  // False when there is a cycle.
  bool sort_topologically();
  std::vector<int32_t> find_cycle() const;

  std::vector<PipelineQueue> queues_;
  std::vector<size_t> queue_of_;
  std::vector<int32_t> position_;
  std::vector<size_t> first_predecessor_;  // one more than tasks
  std::vector<int32_t> predecessors_;
  std::vector<int32_t> topological_order_;
};

class HappensBefore {
 public:
  // The graph must outlive it.
  explicit HappensBefore(const PipelineGraph& graph);

  // Whether `a` has ended whenever `b` starts. A task is not before itself.
  bool before(int32_t a, int32_t b) const {
    return clock(b, graph_->queue_index(a)) > graph_->position(a);
  }
  // How many tasks at the head of a queue have ended whenever `task` starts.
  int32_t clock(int32_t task, size_t queue) const {
    return clocks_[static_cast<size_t>(task) * queue_count_ + queue];
  }

 private:
  const PipelineGraph* graph_;
  size_t queue_count_;
  std::vector<int32_t> clocks_;
};

}  // namespace jige::plan

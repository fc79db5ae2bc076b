#include "plan/pipeline_graph.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "plan/pipeline_limits.h"
namespace jige::plan {
namespace {

// Vector clocks take four bytes for every task and queue.
constexpr size_t kClocksMax = size_t{1} << 28;
constexpr size_t kCircleShown = 40;

}  // namespace

Result<PipelineGraph> PipelineGraph::create(const PipelineSchedule& schedule) {
  const auto count = static_cast<int64_t>(schedule.tasks.size());
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    for (const int32_t id : schedule.tasks[i].after) {
      if (id >= 0 && id < count) continue;
      return fail(Code::kCorrupt, "{} waits for task #{}, there are {}",
                  describe_task(schedule, static_cast<int32_t>(i)), id, count);
    }
  }
  PipelineGraph graph;
  graph.sort_into_queues(schedule);
  graph.collect_predecessors(schedule);
  if (graph.sort_topologically()) return graph;
  std::string text;
  const std::vector<int32_t> circle = graph.find_cycle();
  for (const int32_t task : std::span(circle).first(std::min(circle.size(), kCircleShown))) {
    text += fmt::format("\n  {} waits for", describe_task(schedule, task));
  }
  if (circle.size() > kCircleShown) {
    text += fmt::format("\n  {} others, of which the last waits for", circle.size() - kCircleShown);
  }
  return fail(Code::kCorrupt,
              "the schedule can never run; each of these waits for the next:{} the "
              "first",
              text);
}

void PipelineGraph::sort_into_queues(const PipelineSchedule& schedule) {
  std::map<std::tuple<int32_t, QueueKind, int32_t>, size_t> index_of;
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    const PipelineTask& task = schedule.tasks[i];
    const QueueKind kind = plan::queue_of(schedule, task.kind);
    const int32_t peer = kind == QueueKind::kReceive ? task.peer : -1;
    const auto [found, fresh] = index_of.try_emplace({task.device, kind, peer}, queues_.size());
    if (fresh) queues_.push_back({.device = task.device, .kind = kind, .peer = peer});
    PipelineQueue& queue = queues_[found->second];
    queue_of_.push_back(found->second);
    position_.push_back(static_cast<int32_t>(queue.tasks.size()));
    queue.tasks.push_back(static_cast<int32_t>(i));
  }
}

void PipelineGraph::collect_predecessors(const PipelineSchedule& schedule) {
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    first_predecessor_.push_back(predecessors_.size());
    const PipelineQueue& queue = queues_[queue_of_[i]];
    if (position_[i] > 0) {
      predecessors_.push_back(queue.tasks[static_cast<size_t>(position_[i] - 1)]);
    }
    const auto& after = schedule.tasks[i].after;
    predecessors_.insert(predecessors_.end(), after.begin(), after.end());
  }
  first_predecessor_.push_back(predecessors_.size());
}

std::span<const int32_t> PipelineGraph::predecessors(int32_t task) const {
  const size_t first = first_predecessor_[static_cast<size_t>(task)];
  const size_t end = first_predecessor_[static_cast<size_t>(task) + 1];
  return std::span(predecessors_).subspan(first, end - first);
}

bool PipelineGraph::sort_topologically() {
  const size_t count = task_count();
  std::vector<size_t> first(count + 1, 0);
  for (const int32_t id : predecessors_) ++first[static_cast<size_t>(id) + 1];
  for (size_t i = 0; i < count; ++i) first[i + 1] += first[i];
  std::vector<int32_t> successors(predecessors_.size());
  std::vector<size_t> fill = first;
  std::vector<size_t> waiting(count);
  for (size_t i = 0; i < count; ++i) {
    const auto before = predecessors(static_cast<int32_t>(i));
    waiting[i] = before.size();
    for (const int32_t id : before) {
      successors[fill[static_cast<size_t>(id)]++] = static_cast<int32_t>(i);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (waiting[i] == 0) topological_order_.push_back(static_cast<int32_t>(i));
  }
  for (size_t next = 0; next < topological_order_.size(); ++next) {
    const auto task = static_cast<size_t>(topological_order_[next]);
    for (size_t s = first[task]; s < first[task + 1]; ++s) {
      if (--waiting[static_cast<size_t>(successors[s])] == 0) {
        topological_order_.push_back(successors[s]);
      }
    }
  }
  return topological_order_.size() == count;
}

std::vector<int32_t> PipelineGraph::find_cycle() const {
  // Every task that was not sorted waits for another such task: walking on ends in a circle.
  std::vector<bool> sorted(task_count(), false);
  for (const int32_t task : topological_order_) sorted[static_cast<size_t>(task)] = true;
  const auto start = std::find(sorted.begin(), sorted.end(), false) - sorted.begin();
  std::vector<int32_t> path{static_cast<int32_t>(start)};
  std::vector<std::ptrdiff_t> place(task_count(), -1);  // on the path
  for (;;) {
    const int32_t last = path.back();
    place[static_cast<size_t>(last)] = std::ssize(path) - 1;
    for (const int32_t id : predecessors(last)) {
      if (sorted[static_cast<size_t>(id)]) continue;
      const std::ptrdiff_t seen = place[static_cast<size_t>(id)];
      if (seen >= 0) return {path.begin() + seen, path.end()};
      path.push_back(id);
      break;
    }
  }
}

Status check_clocks(const PipelineGraph& graph) {
  if (graph.task_count() * graph.queues().size() <= kClocksMax) return {};
  return fail(Code::kExhausted, "{} tasks on {} queues are too many to order", graph.task_count(),
              graph.queues().size());
}

HappensBefore::HappensBefore(const PipelineGraph& graph)
    : graph_(&graph),
      queue_count_(graph.queues().size()),
      clocks_(graph.task_count() * graph.queues().size(), 0) {
  for (const int32_t task : graph.topological_order()) {
    int32_t* own = clocks_.data() + static_cast<size_t>(task) * queue_count_;
    for (const int32_t id : graph.predecessors(task)) {
      const int32_t* other = clocks_.data() + static_cast<size_t>(id) * queue_count_;
      for (size_t q = 0; q < queue_count_; ++q) own[q] = std::max(own[q], other[q]);
      const size_t queue = graph.queue_index(id);
      own[queue] = std::max(own[queue], graph.position(id) + 1);
    }
  }
}

}  // namespace jige::plan

// Which nodes the jobs of a LiveCluster may have, and which tasks of job arrays become jobs.
#include <algorithm>
#include <charconv>
#include <set>

#include "slurm/live_cluster.h"
#include "slurm/node_limits.h"

namespace jige::slurm {
namespace {

constexpr int64_t kAskAgain_ns = 10 * cluster::kSecond;

// The first tasks of "3,5-9,12-20:4", as many as can be read.
std::vector<int64_t> first_tasks(const std::string& text, size_t count_max) {
  std::vector<int64_t> tasks;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto read = [&](int64_t& number) {
    const auto [behind, error] = std::from_chars(at, end, number);
    at = behind;
    return error == std::errc();
  };
  while (at < end) {
    int64_t first = 0, step = 1;
    if (!read(first)) break;
    int64_t last = first;
    if (at < end && *at == '-' && (++at, !read(last))) break;
    if (at < end && *at == ':' && (++at, !read(step) || step < 1)) break;
    for (int64_t task = first; task <= last; task += step) {
      if (tasks.size() == count_max) return tasks;
      tasks.push_back(task);
    }
    if (at < end && *at++ != ',') break;
  }
  return tasks;
}

}  // namespace

void LiveCluster::see_nodes(const Snapshot& snapshot) {
  if (closed_ != snapshot.closed) happened_ = true;
  closed_ = snapshot.closed;
  for (const SeenNode& node : snapshot.nodes) {
    const int32_t index = layout_.index_of(node.name);
    if (index >= 0) nodes_[static_cast<size_t>(index)] = node;
  }
}

// Nodes that could be the job's, were nobody else there.
int32_t LiveCluster::open_nodes(int32_t gpus_each, const NodeNeeds& needs,
                                const std::vector<int32_t>& avoided) const {
  int32_t count = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (layout_.name_of(index).empty() || layout_.gpus_of(index) < gpus_each) continue;
    if (std::ranges::find(avoided, index) != avoided.end()) continue;
    count += suits_for_good(nodes_[i], needs);
  }
  return count;
}

// Of whole nodes all.
Result<int32_t> LiveCluster::gpus_on_each(const SeenJob& seen) const {
  if (!seen.needs.whole) return seen.gpus_per_node;
  std::set<int32_t> counts;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int32_t gpus = layout_.gpus_of(static_cast<int32_t>(i));
    if (gpus < seen.gpus_per_node || !suits_for_good(nodes_[i], seen.needs)) continue;
    if (gpus > 0) counts.insert(gpus);
  }
  if (counts.size() < 2) return counts.empty() ? seen.gpus_per_node : *counts.begin();
  return fail(
      Code::kUnsupported,
      "it asks for whole nodes (--exclusive), and these have from {} to {} GPUs; name {} of "
      "them by --gres",
      *counts.begin(), *counts.rbegin(), *counts.rbegin());
}

// CPUs and memory of jobs that Jige does not stop, by node, as far as jobs say it.
std::vector<NodeUse> LiveCluster::firm_use(const Snapshot& snapshot) const {
  std::vector<NodeUse> firm(nodes_.size());
  for (const SeenJob& seen : snapshot.jobs) {
    const auto known = jobs_.find(seen.id);
    if (known != jobs_.end() && state_.job(known->second.id).stoppable) continue;
    for (const std::string& name : seen.nodes) {
      const int32_t index = layout_.index_of(name);
      if (index < 0) continue;
      const auto i = static_cast<size_t>(index);
      const NodeUse use = use_of(nodes_[i], seen.needs);
      firm[i].cpus += use.cpus;
      firm[i].memory_mb += use.memory_mb;
    }
  }
  return firm;
}

// Those where the job does not fit now, beside what nobody but it would take there.
void LiveCluster::bar_nodes(const Snapshot& snapshot) {
  const std::vector<NodeUse> firm = firm_use(snapshot);
  std::vector<NodeUse> promised(nodes_.size());
  for (const auto& [id, job] : jobs_) {
    if (state_.at(job.id).phase != cluster::Phase::kRunning || !job.seen_at.empty()) continue;
    for (const cluster::NodeShare& share : state_.at(job.id).placement) {
      const auto i = static_cast<size_t>(share.node);
      const NodeUse use = use_of(nodes_[i], job.seen.needs);
      promised[i].cpus += use.cpus;
      promised[i].memory_mb += use.memory_mb;
    }
  }
  for (auto& [id, job] : jobs_) {
    if (state_.at(job.id).phase == cluster::Phase::kRunning && !job.started) continue;
    cluster::Job& stored = store_[static_cast<size_t>(job.id)];
    const int32_t each = stored.gpus / stored.nodes;
    const NodeNeeds& needs = job.seen.needs;
    if (open_nodes(each, needs, job.avoided) < stored.nodes) job.avoided.clear();
    std::vector<int32_t> barred;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      if (layout_.name_of(index).empty()) continue;
      // Where GPUs have to become free first, CPUs and memory become free with them, but for those
      // of jobs that stay: nobody is to be stopped for one that would still not fit.
      const bool free_now = state_.free().on_node(index) >= each;
      SeenNode emptied = nodes_[i];
      emptied.cpus_used = firm[i].cpus;
      emptied.memory_used_mb = firm[i].memory_mb;
      const bool has_room =
          free_now ? has_room_now(nodes_[i], needs, promised[i]) : has_room_now(emptied, needs, {});
      const bool avoided = std::ranges::find(job.avoided, index) != job.avoided.end();
      if (avoided || !has_room || !suits_for_good(nodes_[i], needs)) barred.push_back(index);
    }
    if (barred == stored.barred) continue;
    stored.barred = std::move(barred);
    happened_ = true;
  }
}

// A task waits within its array while as many as may run at once are out of it.
Status LiveCluster::check_array(const SeenJob& seen) const {
  if (!seen.array.tasks.empty()) return fail(Code::kUnsupported, kWholeArray);
  if (seen.array.at_once_max == 0) return {};
  const auto out = std::ranges::count_if(
      jobs_, [&](const auto& entry) { return entry.second.seen.array.array == seen.array.array; });
  if (out < seen.array.at_once_max) return {};
  return fail(Code::kUnsupported, "of its array {} tasks run or wait, and no more may at once",
              seen.array.at_once_max);
}

void LiveCluster::look_at_array(const SeenJob& seen, const Moment& now) {
  int64_t out = 0, waiting = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.seen.array.array != seen.array.array) continue;
    ++out;
    waiting += job.seen.state <= SeenState::kReleased;
  }
  int64_t room = kTasksOutMax - waiting;
  if (seen.array.at_once_max > 0) room = std::min(room, seen.array.at_once_max - out);
  if (room <= 0) return;
  // Where Slurm did not do it, some time passes before it is asked again.
  Asked& asked = split_asked_[seen.array.array];
  const bool again = asked.tasks == seen.array.tasks;
  if (again && now.wall_ns - asked.wall_ns < kAskAgain_ns) return;
  asked = {.tasks = seen.array.tasks, .wall_ns = now.wall_ns};
  to_split_[seen.id] = first_tasks(seen.array.tasks, static_cast<size_t>(room));
}

}  // namespace jige::slurm

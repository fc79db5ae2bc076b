// For tests: a Slurm in memory on a virtual clock, with its manners: releases act after a while, a
// requeued job takes time to end, a job that is released without nodes goes anywhere, failed nodes
// send their jobs back into the queue, and at times nobody answers.
//
// Invariants: it never gives a GPU to two jobs, as the real one; what it counts is whether it was
// asked to. Threads: one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "slurm/backend.h"
#include "slurm/node_limits.h"

namespace jige::slurm {

struct FakeJob {
  SeenJob seen;
  double left_s = 0, saved_s = 0;   // of work, and at the last checkpoint
  std::vector<std::string> wanted;  // nodes of the release; empty: any
  int64_t due_ns = 0;               // of the next change
  bool back_to_queue = false;       // when it has ended: requeued, held
  bool cancelled = false;
  bool requeues = true;        // else Slurm refuses to
  std::vector<int64_t> tasks;  // of an array, not taken out yet
  int32_t runs = 0;
  int64_t stopped_ns = 0, began_ns = 0;
  double lost_s = 0;  // by stops without a checkpoint
};

class FakeSlurm final : public Backend {
 public:
  FakeSlurm(int node_count, int gpus, VirtualClock& clock, uint64_t seed)
      : clock_(clock), rng_(seed) {
    for (int i = 1; i <= node_count; ++i) {
      nodes_.push_back({.name = "n" + std::to_string(i),
                        .gpus = gpus,
                        .up = true,
                        .state = "idle",
                        .partitions = {"jige"}});
    }
  }

  int64_t submit(int node_count, int gpus, double length_s, const std::string& comment = "") {
    const int64_t id = next_++;
    FakeJob& job = jobs_[id];
    job.left_s = job.saved_s = length_s;
    job.seen = {.id = id,
                .name = "fake",
                .partition = "jige",
                .comment = comment.empty() ? "jige length=" + std::to_string(length_s) : comment,
                .admin_comment = "jige hold",
                .reason = "JobHeldUser",
                .state = SeenState::kHeld,
                .node_count = node_count,
                .gpus_per_node = gpus};
    return id;
  }

  int64_t submit_array(int64_t count, int gpus, double length_s, int32_t at_once_max) {
    const int64_t id = submit(1, gpus, length_s);
    FakeJob& job = jobs_[id];
    for (int64_t task = 0; task < count; ++task) job.tasks.push_back(task);
    job.seen.array = {.array = id,
                      .task = -1,
                      .tasks = fmt::format("{}", fmt::join(job.tasks, ",")),
                      .at_once_max = at_once_max};
    return id;
  }

  // Lets time pass and Slurm act.
  void tick(double seconds) {
    clock_.advance(static_cast<int64_t>(seconds * 1e9));
    for (auto& [id, job] : jobs_) {
      if (job.seen.state == SeenState::kRunning) {
        job.left_s -= seconds;
        if (job.left_s <= 0) begin_end(job, false);
      }
      if (job.seen.state == SeenState::kEnding && clock_.now_ns() >= job.due_ns) end(job);
    }
    for (auto& [id, job] : jobs_) {
      if (job.seen.state == SeenState::kReleased && clock_.now_ns() >= job.due_ns) try_start(job);
    }
  }

  Result<Snapshot> snapshot() override {
    JIGE_DO(answer());
    Snapshot snapshot{.taken_ns = clock_.now_ns(), .nodes = nodes_, .closed = closed};
    for (SeenNode& node : snapshot.nodes) {
      node.cpus_used = cpus_used(node);
    }
    for (const auto& [id, job] : jobs_) {
      if (!job.seen.slurm_state.empty() && forgets_gone) continue;
      snapshot.jobs.push_back(job.seen);
    }
    // What is asked from now on is later than the picture.
    clock_.advance(1);
    return snapshot;
  }

  Status place(int64_t id, const std::vector<std::string>& names,
               const std::string& admin_comment) override {
    JIGE_DO(answer());
    FakeJob& job = jobs_.at(id);
    if (job.seen.state > SeenState::kReleased) return refuse(id);
    for (const std::string& name : names) {
      if (free_on(name) < job.seen.gpus_per_node) ++placed_on_busy;
    }
    job.wanted = names;
    comment(job, admin_comment);
    let_go(job);
    return answer_afterwards();
  }
  Status checkpoint(int64_t id) override {
    JIGE_DO(answer());
    ++checkpoints;
    FakeJob& job = jobs_.at(id);
    // A script that has just begun has no handler yet.
    if (job.seen.state == SeenState::kRunning && clock_.now_ns() - job.began_ns < 600'000'000) {
      ++ended_by_signal;
      begin_end(job, false);
      job.left_s = 0;
    }
    job.saved_s = job.left_s;
    return {};
  }
  Status requeue_held(int64_t id) override {
    JIGE_DO(answer());
    FakeJob& job = jobs_.at(id);
    if (job.seen.state != SeenState::kRunning || !job.requeues) return refuse(id);
    ++requeues;
    begin_end(job, true);
    return answer_afterwards();
  }
  Status hold(int64_t id) override {
    JIGE_DO(answer());
    FakeJob& job = jobs_.at(id);
    if (job.seen.state > SeenState::kReleased) return refuse(id);
    job.seen.state = SeenState::kHeld;
    job.seen.reason = "JobHeldAdmin";
    return {};
  }
  Status release(int64_t id, const std::string& admin_comment) override {
    JIGE_DO(answer());
    comment(jobs_.at(id), admin_comment);
    person_releases(id);
    return {};
  }
  Status kill(int64_t id) override {
    JIGE_DO(answer());
    person_cancels(id);
    return {};
  }

  Status split(int64_t id, int64_t task) override {
    JIGE_DO(answer());
    FakeJob& whole = jobs_.at(id);
    std::vector<int64_t>& tasks = whole.tasks;
    if (std::erase(tasks, task) == 0) return refuse(id);
    FakeJob part = whole;
    part.tasks.clear();
    part.seen.array.tasks.clear();
    part.seen.array.task = task;
    comment(part, std::string(kHoldMark));
    if (tasks.empty()) {  // the last one keeps the number of the array
      whole = part;
      return {};
    }
    whole.seen.array.tasks = fmt::format("{}", fmt::join(tasks, ","));
    part.seen.id = next_++;
    jobs_[part.seen.id] = part;
    return {};
  }

  Status annotate(int64_t id, const std::string& admin_comment) override {
    ++annotations;
    annotated_s[id].push_back(static_cast<double>(clock_.now_ns()) / 1e9);
    if (refuses_annotations) return refuse(id);
    JIGE_DO(answer());
    comment(jobs_.at(id), admin_comment);
    return {};
  }

  Result<std::string> topology() override {
    JIGE_DO(answer());
    return topology_text;
  }

  // What people and machines do.
  void person_releases(int64_t id) {
    FakeJob& job = jobs_.at(id);
    if (job.seen.state != SeenState::kHeld) return;
    job.wanted.clear();
    let_go(job);
  }
  void person_holds(int64_t id) {
    if (jobs_.at(id).seen.state == SeenState::kReleased) jobs_.at(id).seen.state = SeenState::kHeld;
  }
  void person_cancels(int64_t id) {
    FakeJob& job = jobs_.at(id);
    job.cancelled = true;
    if (job.seen.state <= SeenState::kReleased) finish(job, "CANCELLED");
    if (job.seen.state == SeenState::kRunning) begin_end(job, false);
  }
  void node_down(size_t index) {
    nodes_[index].up = false;
    for (auto& [id, job] : jobs_) {
      if (std::ranges::find(job.seen.nodes, nodes_[index].name) == job.seen.nodes.end()) continue;
      const bool was_ending = job.seen.state == SeenState::kEnding;
      if (was_ending && !job.back_to_queue) {
        finish(job, "NODE_FAIL");
        continue;
      }
      job.lost_s = std::max(job.lost_s, job.saved_s - job.left_s);
      job.left_s = job.saved_s;
      job.stopped_ns = clock_.now_ns();
      ++job.seen.restarts;
      job.seen.nodes.clear();
      job.seen.node_gpus.clear();
      job.seen.state = was_ending ? SeenState::kHeld : SeenState::kReleased;
      job.due_ns = clock_.now_ns() + static_cast<int64_t>(120e9);  // Slurm's pause for requeues
    }
  }
  void node_up(size_t index) { nodes_[index].up = true; }
  // The next one of this kind, as large as the first.
  void node_comes(const std::string& kind) {
    SeenNode node = nodes_.front();
    node.name = kind + std::to_string(nodes_.size() + 1);
    node.up = true;
    nodes_.push_back(std::move(node));
  }
  // Of one that waits.
  void person_reshapes(int64_t id, int node_count, int gpus) {
    FakeJob& job = jobs_.at(id);
    if (job.seen.state > SeenState::kReleased) return;
    job.seen.node_count = node_count;
    job.seen.gpus_per_node = gpus;
  }

  // One that runs gives its last nodes back.
  void person_shrinks(int64_t id, size_t node_count) {
    FakeJob& job = jobs_.at(id);
    if (job.seen.state != SeenState::kRunning) return;
    job.seen.nodes.resize(node_count);
    job.seen.node_gpus.resize(node_count);
    job.seen.node_count = static_cast<int32_t>(node_count);
  }

  int32_t free_on(const std::string& name) const {
    int32_t free = 0;
    for (const SeenNode& node : nodes_) {
      if (node.name == name && node.up) free = node.gpus;
    }
    for (const auto& [id, job] : jobs_) {
      for (const std::string& used : job.seen.nodes)
        free -= used == name ? job.seen.gpus_per_node : 0;
    }
    return free;
  }
  int64_t unfinished() const {
    return std::ranges::count_if(
        jobs_, [](const auto& entry) { return entry.second.seen.state != SeenState::kGone; });
  }
  std::map<int64_t, FakeJob>& jobs() { return jobs_; }
  std::vector<SeenNode>& nodes() { return nodes_; }

  std::string topology_text =
      "SwitchName=a Level=0 Nodes=n[1-4]\nSwitchName=b Level=0 Nodes=n[5-8]\n";
  std::string closed;                   // of the partition
  std::vector<std::string> idle_nodes;  // start nothing, though they seem to be free
  std::function<void()> on_call;        // before each answer
  double silence = 0;         // share of calls that nobody answers; half of them act all the same
  int64_t calls_left = -1;    // then nobody answers any more; below 0: no end
  bool forgets_gone = false;  // jobs that ended are not listed
  bool refuses_annotations = false;
  int64_t annotations = 0;
  std::map<int64_t, std::vector<double>> annotated_s;  // when, by job
  int64_t placed_on_busy = 0, requeues = 0, checkpoints = 0, revoked = 0, ended_by_signal = 0;

 private:
  Status answer() {
    if (on_call) on_call();
    if (calls_left == 0) return fail(Code::kUnavailable, "nobody there");
    if (calls_left > 0) --calls_left;
    if (rng_.uniform() < silence / 2) return fail(Code::kUnavailable, "Socket timed out");
    return {};
  }
  Status answer_afterwards() {
    if (rng_.uniform() < silence / 2) return fail(Code::kUnavailable, "Socket timed out");
    return {};
  }
  static Status refuse(int64_t id) {
    return fail(Code::kInvalidArgument, "Requested operation is presently disabled for job {}", id);
  }
  void let_go(FakeJob& job) {
    job.seen.state = SeenState::kReleased;
    job.seen.reason = "Priority";
    job.due_ns = clock_.now_ns() + static_cast<int64_t>(0.8 * rng_.uniform() * 1e9);
  }
  void try_start(FakeJob& job) {
    std::vector<std::string> names = job.wanted;
    if (names.empty()) {
      for (const SeenNode& node : nodes_) {
        const bool enough = static_cast<int32_t>(names.size()) == job.seen.node_count;
        if (!enough && free_on(node.name) >= job.seen.gpus_per_node) names.push_back(node.name);
      }
    }
    if (static_cast<int32_t>(names.size()) != job.seen.node_count) return;
    if (!closed.empty()) return wait_for("PartitionDown", job);
    for (const std::string& name : names) {
      if (free_on(name) < job.seen.gpus_per_node) return;
      if (!accepts(name, job)) return wait_for("Resources", job);
    }
    // As node daemons do with a credential from the second of the stop.
    if (job.runs > 0 && !job.wanted.empty() && clock_.now_ns() - job.stopped_ns < 1'000'000'000) {
      ++revoked;
      return finish(job, "FAILED");
    }
    job.seen.nodes = names;
    job.seen.node_gpus.assign(names.size(), job.seen.gpus_per_node);
    job.seen.state = SeenState::kRunning;
    job.began_ns = clock_.now_ns();
    ++job.runs;
  }
  static void comment(FakeJob& job, const std::string& admin_comment) {
    AdminComment parts = split_admin_comment(admin_comment);
    job.seen.note = std::move(parts.note);
    job.seen.admin_comment = std::move(parts.mark);
  }
  static void wait_for(const char* reason, FakeJob& job) { job.seen.reason = reason; }
  int64_t cpus_used(const SeenNode& node) const {
    int64_t cpus = node.cpus_used;
    for (const auto& [id, job] : jobs_) {
      const bool there = std::ranges::find(job.seen.nodes, node.name) != job.seen.nodes.end();
      if (there) cpus += job.seen.needs.whole ? node.cpus : job.seen.needs.cpus;
    }
    return cpus;
  }
  bool accepts(const std::string& name, const FakeJob& job) const {
    const auto node = std::ranges::find(nodes_, name, &SeenNode::name);
    SeenNode used = *node;
    used.cpus_used = cpus_used(*node);
    const bool idle = std::ranges::find(idle_nodes, name) != idle_nodes.end();
    return !idle && suits_for_good(used, job.seen.needs) && has_room_now(used, job.seen.needs, {});
  }
  void begin_end(FakeJob& job, bool back_to_queue) {
    job.seen.state = SeenState::kEnding;
    job.back_to_queue = back_to_queue && job.left_s > 0;
    job.due_ns = clock_.now_ns() + static_cast<int64_t>((0.1 + rng_.uniform()) * 1e9);
  }
  void end(FakeJob& job) {
    if (!job.back_to_queue) return finish(job, job.cancelled ? "CANCELLED" : "COMPLETED");
    job.lost_s = std::max(job.lost_s, job.saved_s - job.left_s);
    job.left_s = job.saved_s;
    job.stopped_ns = clock_.now_ns();
    ++job.seen.restarts;
    job.seen.nodes.clear();
    job.seen.node_gpus.clear();
    job.seen.state = SeenState::kHeld;
    job.seen.reason = "JobHeldUser";
  }
  static void finish(FakeJob& job, const char* state) {
    job.seen.state = SeenState::kGone;
    job.seen.slurm_state = state;
    job.seen.nodes.clear();
    job.seen.node_gpus.clear();
  }

  VirtualClock& clock_;
  Rng rng_;
  std::vector<SeenNode> nodes_;
  std::map<int64_t, FakeJob> jobs_;
  int64_t next_ = 1;
};

}  // namespace jige::slurm

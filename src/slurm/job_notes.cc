#include "slurm/job_notes.h"

#include <algorithm>
#include <optional>

namespace jige::slurm {
namespace {

using cluster::kSecond;

constexpr int32_t kRefusalsMax = 8;
// Beyond these only about where a job stands.
constexpr size_t kPlacesExact = 10;

struct Reason {
  std::string kind, text;
};

// Where jobs stand in the queue, from 1 on.
std::map<cluster::JobId, size_t> places_in(const std::vector<cluster::JobId>& queue) {
  std::map<cluster::JobId, size_t> places;
  for (const cluster::JobId id : queue) places.emplace(id, places.size() + 1);
  return places;
}

std::string place_text(size_t place) {
  if (place <= kPlacesExact) return fmt::format("; place {} in the queue", place);
  size_t before = kPlacesExact;
  while (place > 2 * before) before *= 2;
  return fmt::format("; behind at least {} others in the queue", before);
}

// Of what is left of an array: most of it waits for those that went before.
Reason reason_of_array(const SeenJob& seen, const Snapshot& snapshot, const LiveCluster& live) {
  if (!snapshot.closed.empty()) {
    return {"closed", "waits for the partition, which is " + snapshot.closed};
  }
  int64_t waiting = 0, out = 0;
  for (const auto& [id, job] : live.jobs()) {
    if (job.seen.array.array != seen.array.array) continue;
    ++out;
    waiting += job.seen.state <= SeenState::kReleased;
  }
  const int32_t at_once = seen.array.at_once_max;
  return {"array", fmt::format("tasks become jobs of their own, at most {}; {} wait and {} run now",
                               at_once > 0 ? fmt::format("{} at once (%{})", at_once, at_once)
                                           : fmt::format("{} that wait", kTasksOutMax),
                               waiting, out - waiting)};
}

// Whether a change would reach what is left of an array and nothing else: by the number alone Slurm
// would change the tasks that are jobs already, too.
bool is_nameable(const ArrayPart& array) { return array.tasks.find("...") == std::string::npos; }

// Nothing to be said has the kind "none". Nothing at all: it is not known yet.
std::optional<Reason> reason_of(const SeenJob& seen, const Snapshot& snapshot,
                                const LiveCluster& live, const DecisionLog& log,
                                const std::map<cluster::JobId, size_t>& places) {
  const auto known = live.jobs().find(seen.id);
  if (known == live.jobs().end()) {
    if (seen.state != SeenState::kHeld) return Reason{"none", ""};
    const auto refused = live.refused().find(seen.id);
    if (refused == live.refused().end()) return std::nullopt;
    if (refused->second == kWholeArray) return reason_of_array(seen, snapshot, live);
    return Reason{refused->second, "is left alone: " + refused->second};
  }
  const LiveJob& job = known->second;
  const bool acted = job.ours || job.acted_wall_ns >= snapshot.taken_ns;
  if (acted || seen.state != SeenState::kHeld) return std::nullopt;
  if (!snapshot.closed.empty()) {
    return Reason{"closed", "waits for the partition, which is " + snapshot.closed};
  }
  if (live.wanted(job)) {
    return Reason{"next", "has its place, and starts when that is free"};
  }
  const WaitingReason* why = log.waiting(seen.id);
  if (!why) return std::nullopt;
  const auto place = places.find(job.id);
  return Reason{why->kind, why->brief + (place == places.end() ? "" : place_text(place->second))};
}

bool may_write(const SeenJob& seen) {
  if (!seen.note.empty() || seen.admin_comment.starts_with("jige")) return true;
  return seen.admin_comment.empty() && seen.reason == "JobHeldUser";
}

double seconds_since(int64_t since_ns, int64_t now_ns) {
  return static_cast<double>(now_ns - since_ns) / kSecond;
}

}  // namespace

bool JobNotes::is_due(const Known& known, bool has_note, int64_t now_ns) const {
  if (seconds_since(known.since_ns, now_ns) < options_.settle_s) return false;
  if (known.told_ns < 0) return true;
  const bool same = has_note && known.kind == known.told_kind;
  const double least_s = same ? options_.repeat_s : options_.pause_s;
  return seconds_since(known.told_ns, now_ns) >= least_s;
}

std::vector<JobNote> JobNotes::plan(const Snapshot& snapshot, const LiveCluster& live,
                                    const DecisionLog& log, int64_t now_ns) {
  if (!options_.on || now_ns < not_before_ns_) return {};
  not_before_ns_ = now_ns + static_cast<int64_t>(options_.spacing_s * kSecond);
  const std::map<cluster::JobId, size_t> places = places_in(live.queue());
  for (auto& [id, known] : known_) known.listed = false;
  struct Due {
    int64_t told_ns = -1;
    JobNote note;
  };
  std::vector<Due> due;
  for (const SeenJob& seen : snapshot.jobs) {
    if (seen.partition != live.options().partition || !is_nameable(seen.array)) continue;
    if (seen.state == SeenState::kGone) continue;
    if (const auto before = known_.find(seen.id); before != known_.end()) {
      // One that has run waits as if for the first time.
      if (before->second.restarts != seen.restarts) before->second = {.restarts = seen.restarts};
      before->second.listed = true;
    }
    if (seen.state == SeenState::kEnding || !may_write(seen)) continue;
    const std::optional<Reason> reason = reason_of(seen, snapshot, live, log, places);
    if (!reason || (reason->text.empty() && seen.note.empty())) continue;
    Known& known = known_.try_emplace(seen.id, Known{.restarts = seen.restarts}).first->second;
    known.listed = true;
    if (known.kind != reason->kind) known.since_ns = now_ns;
    known.kind = reason->kind;
    const std::string note = note_of(reason->text);
    if (note == seen.note || !is_due(known, !seen.note.empty(), now_ns)) continue;
    due.push_back(
        {known.told_ns, {seen.id, join_admin_comment({.note = note, .mark = seen.admin_comment})}});
  }
  std::erase_if(known_, [](const auto& entry) { return !entry.second.listed; });
  std::ranges::stable_sort(due, {}, &Due::told_ns);
  if (std::ssize(due) > options_.step_max) due.resize(static_cast<size_t>(options_.step_max));
  std::vector<JobNote> notes;
  for (Due& one : due) {
    Known& known = known_.at(one.note.job);
    known.told_kind = known.kind;
    known.told_ns = now_ns;
    notes.push_back(std::move(one.note));
  }
  return notes;
}

bool JobNotes::wrote(const Status& status, int64_t now_ns) {
  refusals_ = status ? 0 : refusals_ + 1;
  const bool silent = !status && (status.error().code == Code::kUnavailable ||
                                  status.error().code == Code::kCancelled);
  if (!silent && refusals_ < kRefusalsMax) return true;
  refusals_ = 0;
  not_before_ns_ = now_ns + static_cast<int64_t>(options_.repeat_s * kSecond);
  return false;
}

}  // namespace jige::slurm

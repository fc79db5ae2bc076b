#include <nlohmann/json.hpp>

#include "slurm/live_cluster.h"

namespace jige::slurm {
namespace {

constexpr int64_t kSavedMax = 3'000'000'000'000'000'000;  // 95 years in nanoseconds
constexpr int64_t kSavedCountMax = 1'000'000'000;

Result<int32_t> saved_count(const Json& object, std::string_view field, std::string_view where) {
  JIGE_TRY(const int64_t count, get_int(object, field, where));
  if (count >= 0 && count <= kSavedCountMax) return static_cast<int32_t>(count);
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must be in 0..{}", where, field, count,
              kSavedCountMax);
}

}  // namespace

Result<int64_t> get_saved_int(const Json& object, std::string_view field, std::string_view where) {
  JIGE_TRY(const int64_t value, get_int(object, field, where));
  if (value >= -kSavedMax && value <= kSavedMax) return value;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must be in {}..{}", where, field, value,
              -kSavedMax, kSavedMax);
}

Json LiveCluster::save() const {
  Json jobs = Json::array();
  const auto add = [&](int64_t id, int64_t arrival_ns, double iterations,
                       const cluster::ClusterState::History& history) {
    jobs.push_back({{"job", id},
                    {"arrival_ns", arrival_ns},
                    {"iterations", iterations},
                    {"left", history.left},
                    {"held_ns", history.held_ns},
                    {"first_start_ns", history.first_start_ns},
                    {"starts", history.starts},
                    {"preemptions", history.preemptions},
                    {"migrations", history.migrations}});
  };
  for (const auto& [id, job] : jobs_) {
    const cluster::JobState& state = state_.at(job.id);
    // What runs at a restart is taken in with a start, which would be one too many.
    const int32_t running = state.phase == cluster::Phase::kRunning ? 1 : 0;
    add(id, state_.job(job.id).arrival_ns, state_.job(job.id).iterations,
        {.left = running > 0 && !job.started ? job.left_at_start : state_.left(job.id),
         .held_ns = state_.held_ns(job.id),
         .first_start_ns = state.first_start_ns,
         .starts = state.starts - running,
         .preemptions = state.preemptions,
         .migrations = state.migrations});
  }
  for (const auto& [id, past] : past_) add(id, past.arrival_ns, past.iterations, past.history);
  return jobs;
}

Status LiveCluster::restore(const Json& saved, std::string_view where) {
  if (!saved.is_array()) return fail(Code::kCorrupt, "{}: jobs are no list", where);
  for (const Json& item : saved) {
    if (!item.is_object()) return fail(Code::kCorrupt, "{}: a job is no object", where);
    Past past;
    JIGE_TRY(const int64_t id, get_int(item, "job", where));
    JIGE_TRY(past.arrival_ns, get_saved_int(item, "arrival_ns", where));
    JIGE_TRY(past.iterations, get_number_or(item, "iterations", 0, where));
    JIGE_TRY(past.history.left, get_number(item, "left", where));
    JIGE_TRY(past.history.held_ns, get_saved_int(item, "held_ns", where));
    JIGE_TRY(past.history.first_start_ns, get_saved_int(item, "first_start_ns", where));
    JIGE_TRY(past.history.starts, saved_count(item, "starts", where));
    JIGE_TRY(past.history.preemptions, saved_count(item, "preemptions", where));
    JIGE_TRY(past.history.migrations, saved_count(item, "migrations", where));
    past_[id] = past;
  }
  return {};
}

Status LiveCluster::go_on_from(const LiveCluster& before) {
  foreign_ = before.foreign_;
  refused_ = before.refused_;
  return restore(before.save(), "memory");
}

}  // namespace jige::slurm

// Which task runs what: tables from (block, micro-batch) to the tasks of a schedule.
//
// Invariants: tables exist for well-formed schedules only (check_fields()); entries are -1 where a
// schedule lacks the task. Threads: read-only after construction.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

// Devices, blocks, micro-batches and peers within their ranges and where the kind has them. Fails
// with kCorrupt.
Status check_fields(const PipelineSchedule& schedule);

class PipelinePasses {
 public:
  // Fails with kCorrupt where two tasks claim one pass, one message, one offload or one update.
  // REQUIRES: check_fields(schedule).
  static Result<PipelinePasses> create(const PipelineSchedule& schedule);

  // F, R, X or W of a block and micro-batch.
  int32_t pass(TaskKind kind, int32_t block, int32_t micro_batch) const {
    return passes_[slot(kind)][at(block, micro_batch)];
  }
  // A message by its kind, boundary and micro-batch.
  int32_t message(TaskKind kind, int32_t boundary, int32_t micro_batch) const {
    const auto found = messages_.find({kind, boundary, micro_batch});
    return found == messages_.end() ? -1 : found->second;
  }
  int32_t offload(int32_t block) const { return offloads_[static_cast<size_t>(block)]; }
  int32_t update(int32_t block) const { return updates_[static_cast<size_t>(block)]; }

 private:
  static size_t slot(TaskKind kind) {
    return static_cast<size_t>(kind) - static_cast<size_t>(TaskKind::kForward);
  }
  size_t at(int32_t block, int32_t micro_batch) const {
    return static_cast<size_t>(block) * static_cast<size_t>(micro_batches_) +
           static_cast<size_t>(micro_batch);
  }

  int32_t micro_batches_ = 0;
  std::vector<int32_t> passes_[4];
  std::map<std::tuple<TaskKind, int32_t, int32_t>, int32_t> messages_;
  std::vector<int32_t> offloads_, updates_;
};

}  // namespace jige::plan

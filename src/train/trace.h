// What every task of a step did and when, as a Chrome trace: chrome://tracing and Perfetto show it,
// a process for each device and one for the host, a row for each queue.
//
//   JIGE_TRY(auto trace, TraceWriter::create("run.trace.json"));
//   JIGE_DO(trace.add_step(step, schedule, executor->spans()));   // after each step
//   JIGE_DO(trace.finish());
//
// Events are complete events with times in microseconds; args hold the step, blocks (first and
// last), micro-batch and peer where the task has them. Steps stand one behind the other: what is
// between them is left out. Only the first steps and so many events are taken, so that a long run
// writes no more than viewers can read; the file is there, whole, when finish() has returned or the
// limit was reached.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/file.h"
#include "base/result.h"
#include "plan/pipeline_schedule.h"
#include "train/queue_runner.h"

namespace jige::train {

struct TraceLimits {
  int64_t steps = 20;
  int64_t events = 1'000'000;  // a step that would pass it ends the trace
};

class TraceWriter {
 public:
  // Nothing stands at `path` before the trace is complete. Fails as AtomicFile::create.
  static Result<TraceWriter> create(const std::string& path, const TraceLimits& limits = {});

  // Takes a step's tasks; nothing once the trace is complete. Fails with kInvalidArgument when
  // there is not one span a task, as AtomicFile::write on a full disk.
  Status add_step(int64_t step, const plan::PipelineSchedule& schedule,
                  std::span<const TaskSpan> spans);
  // Completes the file, once; later calls do nothing.
  Status finish();
  bool complete() const { return !file_; }
  int64_t step_count() const { return step_count_; }

 private:
  TraceWriter(AtomicFile file, const TraceLimits& limits)
      : file_(std::move(file)), limits_(limits) {}
  Status add_event(std::string event);
  Status name_places(const plan::PipelineSchedule& schedule);
  Status flush();

  std::optional<AtomicFile> file_;  // until complete
  TraceLimits limits_;
  std::string pending_;
  std::set<std::pair<int32_t, int32_t>> named_;  // (process, row) that have their names
  int64_t step_count_ = 0;
  int64_t event_count_ = 0;
  int64_t offset_ns_ = 0;  // where the next step begins
};

}  // namespace jige::train

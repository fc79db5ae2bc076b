// Runs rows of schedules in turns and keeps what was measured.
//
// In every round every row is built anew, takes one step to warm up, and then the steps that count.
// So what else the machine does falls on all rows alike, and every round of every row must see the
// same losses.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/schedule_matrix.h"
#include "train/schedule_rig.h"

namespace jige::cli {

struct RunCounts {
  int64_t rounds = 3;
  int64_t steps = 2;  // that count, of each round
};

struct ScheduleRuns {
  ScheduleRow row;
  std::string refusal;          // why it does not run; the rest is empty then
  std::vector<double> seconds;  // of every step that counts
  std::vector<double> losses;   // of a round; empty for timed devices
  double predicted_s = 0;
  int64_t step_tokens = 0;
  int64_t planned_bytes = 0;               // of the fullest device
  std::vector<int64_t> device_peak_bytes;  // by device
  int64_t host_peak_bytes = 0;

  double median_s() const;
  double fastest_s() const;
  double slowest_s() const;
  int64_t fullest_bytes() const;
  // Of the median against the prediction: 0.02 where it took 2 % longer.
  double error() const { return median_s() / predicted_s - 1; }
};

// `progress` hears "round 1 of 3, spipe async". A row that does not fit its memory is refused and
// the rest run. Fails with kCancelled when interrupted, with kInternal when a row's losses differ
// from the first row's by a bit, and as a step does.
Result<std::vector<ScheduleRuns>> run_schedules(
    std::vector<ScheduleRow> rows, const train::RigOptions& options, const RunCounts& counts,
    const std::function<void(const std::string&)>& progress);

// One object a row: {"schedule", "optimizer", "step_s", …}.
Json runs_json(const ScheduleRuns& runs, bool timed);

// Tables for people. Real execution: tokens/s and bytes. Timed devices: simulated beside measured,
// and each row's step as a multiple of the shortest.
std::string real_runs_table(const std::vector<ScheduleRuns>& runs);
std::string timed_runs_table(const std::vector<ScheduleRuns>& runs);

}  // namespace jige::cli

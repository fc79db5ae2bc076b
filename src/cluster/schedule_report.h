// ScheduleReport: what a schedule gave its users, and how sure several seeds are of it.
//
//   JCT          finish - arrival: queueing always counts
//   service      time with GPUs, beside it and never instead
//   utilisation  GPUs held, of all, until the last arrival; until the end where all come at once
//   useful       GPU time that the jobs need alone, of all GPUs until the end
//   Jain index   (sum x)^2 / (n sum x^2) of x = length alone / JCT: 1 when all are slowed alike
//
// Latencies are over jobs from the middle of the arrivals, without `trim` of them at either end,
// where the cluster fills and drains. Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cluster/cluster_spec.h"
#include "cluster/simulation.h"

namespace jige::cluster {

struct ScheduleReport {
  int64_t jobs = 0;      // that count for latencies
  int64_t finished = 0;  // of all
  int64_t refused = 0;
  double jct_mean_s = 0, jct_p50_s = 0, jct_p99_s = 0, jct_max_s = 0;
  double service_mean_s = 0;
  double wait_mean_s = 0;  // without GPUs
  double alone_mean_s = 0;
  double makespan_s = 0;
  double utilisation = 0;
  double useful = 0;
  double jain = 0;
  double preemptions = 0, migrations = 0;  // a job
};

ScheduleReport make_schedule_report(const SimulationResult& result, const ClusterSpec& spec,
                                    double trim);

// JCTs of the same jobs, sorted, in seconds.
std::vector<double> sorted_jct_s(const SimulationResult& result, double trim);

// Interpolated between neighbours in rank; 0 of nothing. REQUIRES: sorted, 0 <= share <= 1.
double quantile(std::span<const double> sorted, double share);

// Mean and half of its 95 % confidence interval by Student's t; infinite for a single value.
struct Estimate {
  double mean = 0;
  double half_width = 0;
};
Estimate estimate(std::span<const double> values);
// Of value / base - 1, pair by pair: both had the same jobs. REQUIRES: one length.
Estimate estimate_change(std::span<const double> values, std::span<const double> base);

}  // namespace jige::cluster

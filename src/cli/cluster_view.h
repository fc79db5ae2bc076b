// Results of cluster simulations as text, JSON and pictures.
//
// Threads: values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "cluster/schedule_report.h"

namespace jige::cli {

// One policy at one load, over seeds.
struct ClusterPoint {
  std::string policy;
  double load = 0;                            // offered
  std::vector<cluster::ScheduleReport> runs;  // by seed
};

// The values of one figure, by seed.
std::vector<double> values_of(const ClusterPoint& point, double cluster::ScheduleReport::*figure);

// A table for people: a line a policy, grouped by load. Changes are against the policy `base` at
// the same load and seeds, left out where it is not there.
std::string cluster_table(std::span<const ClusterPoint> points, const std::string& base);
Json cluster_json(const ClusterPoint& point, std::span<const ClusterPoint> points,
                  const std::string& base);
Json schedule_json(const cluster::ScheduleReport& report);

// "12 s", "34.5 min", "6.7 h".
std::string short_time(double seconds);

}  // namespace jige::cli

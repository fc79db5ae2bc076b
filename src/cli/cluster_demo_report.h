// The result of a demonstration: what the jobs' own logs say, beside a simulation of the same jobs.
//
// Threads: values.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/cluster_demo.h"
#include "cli/cluster_demo_check.h"
#include "cluster/contention.h"
#include "cluster/policy.h"

namespace jige::cli {

struct SubmittedJob {
  int64_t id = 0;     // Slurm's
  double unix_s = 0;  // when it was submitted
};

struct DemoReport {
  int64_t jobs = 0;
  DemoFindings findings;
  double jct_mean_s = 0, jct_p99_s = 0;                      // of the cluster, by the jobs' logs
  double simulated_jct_mean_s = 0, simulated_jct_p99_s = 0;  // of the same jobs and arrivals
  double jct_error_mean = 0;                                 // mean of |Slurm / simulation - 1|
  int64_t starts = 0, restarts = 0;
  double start_p50_s = 0, start_p99_s = 0, start_max_s = 0;  // of the wall
  double seconds = 0;                                        // of the wall
};

struct DemoScene {
  DemoOptions options;
  cluster::ClusterSpec spec;
  cluster::Workload workload;
  std::vector<SubmittedJob> submitted;  // in the order of the workload, as far as it came
  std::string slurm_folder;
};

// Fails where a log cannot be read, and as the simulation does.
Result<DemoReport> make_demo_report(const DemoScene& scene,
                                    std::unique_ptr<cluster::Contention> contention,
                                    cluster::Policy& policy, double end_unix_s);

Json demo_json(const DemoReport& report);
std::string demo_text(const DemoReport& report);

}  // namespace jige::cli

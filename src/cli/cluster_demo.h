// The demonstration of `jige cluster run`: a Slurm on this machine (tools/demo-slurm) with GPUs
// that are not there, and jobs that only sleep, at the speed of the network model
// (slurm/demo_job.h).
//
// What it shows is enactment: that the scheduler's decisions happen in a real Slurm, how soon, and
// that the simulation of the same jobs gives the same times. It says nothing about networks.
//
// Threads: one thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cluster/workload.h"

namespace jige::cli {

struct DemoOptions {
  std::string folder;  // of the Slurm; empty: one in /tmp that goes with it
  std::string state;   // of the scheduler
  int64_t jobs = 60;
  double load = 0.9;
  double length_s = 1200;  // median, of the cluster
  double time_scale = 60;
  int64_t seed = 1;
};

// A file of tools/: in $JIGE_TOOLS, ./tools or the source tree. Fails with kNotFound.
Result<std::string> tool_path(const std::string& name);

// A Slurm that lives as long as the object, and at most as long as this process.
class DemoSlurm {
 public:
  // Fails with kUnavailable where Slurm is not installed, naming the packages.
  static Result<DemoSlurm> start(const std::string& folder);
  DemoSlurm(DemoSlurm&& other) noexcept : folder_(std::exchange(other.folder_, "")) {}
  DemoSlurm& operator=(DemoSlurm&&) = delete;
  ~DemoSlurm();

  const std::string& folder() const { return folder_; }
  // Whether its plugin holds jobs; else they are submitted with --hold, which users can undo.
  bool holds() const { return holds_; }

 private:
  explicit DemoSlurm(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
  bool holds_ = false;
};

// The jobs, by arrival. The same options give the same jobs.
cluster::Workload demo_workload(const DemoOptions& options, const cluster::ClusterSpec& spec);

// sbatch of one of them; its number.
Result<int64_t> submit_demo_job(const DemoOptions& options, const DemoSlurm& slurm,
                                const cluster::Workload& workload, size_t index,
                                const cluster::ClusterSpec& spec);

}  // namespace jige::cli

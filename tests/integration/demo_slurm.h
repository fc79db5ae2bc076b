// A real Slurm for tests (tools/demo-slurm): 8 nodes in two leaves with 4 pretended GPUs each, from
// Debian's packages, in a folder of the test's own. SLURM_CONF leads to it while it lives.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/process.h"
#include "integration/process.h"

namespace jige::integration {

// Expects that it ends with 0.
ProcessOutcome must_run(const std::vector<std::string>& words, double limit_s = 60);

// Why no Slurm can be started here; empty where one can.
std::string missing_for_slurm();

// Whether the condition came to hold.
bool wait_for(double seconds, const std::function<bool()>& condition);

// Processes that carry the folder of a demo Slurm in their environment, or stand in it.
int64_t processes_of(const std::string& folder);

class DemoSlurm {
 public:
  explicit DemoSlurm(const TestFolder& folder);
  ~DemoSlurm();
  DemoSlurm(const DemoSlurm&) = delete;
  DemoSlurm& operator=(const DemoSlurm&) = delete;

  // Words of tools/demo-slurm without the folder.
  void control(const std::vector<std::string>& words);
  // A job that computes and writes checkpoints (`jige cluster demo-job`).
  int64_t submit(int nodes, int gpus, double seconds);
  // One that sleeps, with words for sbatch; its number.
  int64_t submit_sleep(double seconds, const std::vector<std::string>& words);
  // Of a scheduler that ends with the last job.
  std::vector<std::string> run_words() const;
  // What a job of submit() wrote.
  std::string log(int64_t id) const;
  int64_t running() const;
  // "RUNNING n1", as squeue calls state and nodes; empty: not known.
  std::string state_of(int64_t id) const;
  // GPUs a node of submit(), by job.
  const std::map<int64_t, int>& jobs() const { return gpus_; }
  const std::string& folder() const { return folder_; }
  const std::string& state() const { return state_; }
  // The scheduler's log.
  std::string decisions() const;

 private:
  std::string folder_, state_;
  std::map<int64_t, int> gpus_;
};

}  // namespace jige::integration

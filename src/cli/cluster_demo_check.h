// What the jobs of a demonstration wrote about themselves: whether two ever had one GPU, whether
// any lost work, how soon they began, when they ended.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::cli {

// One stint of a job with its GPUs.
struct Stint {
  double from_s = 0, to_s = 0;  // Unix time; to_s < 0: no end was written
  std::vector<std::string> nodes;
  std::vector<int32_t> first_node_gpus;   // their numbers
  double from_work_s = 0, to_work_s = 0;  // of its work, in seconds of the wall
  bool ended = false;                     // its work was done
};

// The log of one job. Fails with kCorrupt, naming the line.
Result<std::vector<Stint>> read_job_log(std::string_view text, std::string_view where);

struct DemoJob {
  int64_t id = 0;
  int32_t gpus_per_node = 0;
  std::vector<Stint> stints;
};

struct DemoFindings {
  int64_t double_booked = 0;  // moments at which a node had more GPUs in use than it has, or a GPU
                              // two jobs
  int64_t unfinished = 0;
  int64_t twice_ended = 0;
  double rolled_back_s_max = 0;    // of work, by a restart
  std::vector<std::string> texts;  // of the first few
};

// A stint without an end is taken to last until `end_s`, or the next of the job.
DemoFindings check_demo_jobs(const std::vector<DemoJob>& jobs, int32_t gpus_per_node, double end_s);

// Seconds from the last release of a job before each of its starts until its first line, from the
// scheduler's decisions.
Result<std::vector<double>> start_latencies_s(std::string_view decisions,
                                              const std::vector<DemoJob>& jobs);

}  // namespace jige::cli

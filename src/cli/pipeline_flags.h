// The flags that `jige plan train` and `jige simulate train` share: the model and its costs, the
// machine, and what the planner may choose.
//
// Costs come from a file (--costs), from a model's shape and assumed rates, or are measured here
// (--measure). With --device the devices are parts of GPUs of this machine, in turns: budgets are
// what these have, and what is measured is theirs.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_planner.h"

namespace jige::cli {

class Flags;

struct PipelineFlags {
  // Model and costs.
  std::string folder, size, costs_file;
  int64_t vocab_size = 0;  // of `size`; 0: its own
  int64_t micro_batch_tokens = 2048;
  int64_t context = 0;
  std::string dtype = "auto";
  bool measure = false;
  int64_t threads = 1;  // of each device, where times are measured
  double device_tflops = 40;
  double fetch_gb_per_s = 10;
  double link_gb_per_s = 10;
  double host_optimizer = 5e8;
  double device_optimizer = 2e10;
  // Machine.
  std::string device = "cpu";
  int64_t devices = 4;        // of GPUs as many as these, unless it is given
  int64_t micro_batches = 0;  // 0: twice as many as devices
  int64_t device_memory = 0;  // 0: no limit
  int64_t host_memory = 0;
  // What may be chosen.
  std::string schedule = "auto";
  std::string optimizer = "auto";
  std::string parameters = "auto";
  std::string recompute = "auto";
  std::string clip = "auto";
  int64_t forward_stages = 0;  // 0: searched
  int64_t backward_stages = 0;
  int64_t stages_max = 8;
  bool quiet = false;            // no progress
  const Flags* flags = nullptr;  // as declared

  void declare(Flags& declared);
  // Looks for the GPUs that are named, and measures where that is asked for. Fails with
  // kInvalidArgument unless exactly one source of costs is given, as named_gpus and
  // train::share_gpus, and as reading or measuring costs does.
  Result<plan::TrainPlanRequest> request();
  // Of which the devices are parts, in turns; none: processors. Behind request().
  const std::vector<int>& gpus() const { return gpus_; }
  // Fails with kInvalidArgument where a flag is given that would do nothing.
  Status check_given() const;
  int32_t micro_batch_count() const;
  // "110m, 4 devices, 8 micro-batches of 2048 tokens".
  std::string summary() const;

 private:
  // Takes the GPUs, and as many devices where no number is given.
  Status find_gpus();
  Status set_budget(plan::MemoryBudget& budget) const;

  std::vector<int> gpus_;
};

}  // namespace jige::cli

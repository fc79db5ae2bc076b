// The flags of `jige train` that spread a model over several devices with little memory each.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/pipeline_plan.h"

namespace jige::cli {

class Flags;

struct TrainPipelineFlags {
  int64_t devices = 0;  // 0: no pipeline, unless another flag or several GPUs ask for one
  int64_t device_memory = 0;
  int64_t host_memory = 0;
  std::string pipeline = "auto", optimizer = "auto", parameters = "auto", recompute = "auto";
  std::string clip = "auto";
  int64_t forward_stages = 0, backward_stages = 0;
  std::string times = "measured";
  std::string plan_file;
  std::string trace_file;

  void declare(Flags& flags);
  // Nothing where neither a flag asks for a pipeline nor there are several GPUs (none: the
  // processor computes). Fails with kInvalidArgument on contradictions and on a plan for other
  // devices, and as reading a plan does.
  Result<std::optional<train::PipelineOptions>> options(const std::vector<int>& gpus) const;

 private:
  Status read_plan(const std::vector<int>& gpus, train::PipelineOptions& made) const;
};

}  // namespace jige::cli

// The flags of `jige train` that spread a model over several devices with little memory each.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  // Nothing where neither a flag asks for a pipeline nor there are several GPUs. Fails with
  // kInvalidArgument on contradictions, and as reading a plan does.
  Result<std::optional<train::PipelineOptions>> options(int64_t gpu_count) const;
};

}  // namespace jige::cli

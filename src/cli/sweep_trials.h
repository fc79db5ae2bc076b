// The trials of `jige sweep`: flags of `jige train` that all have, and a grid of those that differ.
//
//   --grid lr=1e-3,2e-3 --grid decay-share=0.1,0.3 -- --data a.jsonl --schedule wsd
//   gives lr=1e-3,decay-share=0.1   lr=1e-3,decay-share=0.3   lr=2e-3,decay-share=0.1   …
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/device_flags.h"
#include "cli/train_flags.h"
#include "train/sweep.h"

namespace jige::cli {

struct GridFlag {
  std::string flag;  // "lr", without dashes
  std::vector<std::string> values;
};

// Reads "lr=1e-3,2e-3". Fails with kInvalidArgument on what has no name or no value, and where a
// value or a flag is given twice.
Result<std::vector<GridFlag>> read_grid(const std::vector<std::string>& words);

struct TrialRequest {
  TrainFlags flags;
  DeviceFlags device;
  train::SweepTrial trial;  // its model may have to be made first (new_model.h)
};

// Every trial of the grid, its options checked. `words` are flags of `jige train`. Fails with
// kInvalidArgument or kUnsupported naming the flag, and the trial where it is not of all, as
// TrainFlags does, on flags that a sweep has itself or does not support, and on more than
// train::kSweepTrialsMax trials.
Result<std::vector<TrialRequest>> make_trials(const std::vector<GridFlag>& grid,
                                              const std::vector<std::string>& words,
                                              const std::string& out_folder);

// "lr=1e-3 decay-share=0.1".
std::string settings_text(const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace jige::cli

// The beginning of a trial where another one has been: that one's checkpoint and log, under the
// identity of the trial that begins.
//
// Threads: pure functions on files.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "train/options.h"
#include "train/sweep_record.h"

namespace jige::train {

struct TrialStart {
  std::string branch;  // a folder that holds the checkpoint, as a run's "checkpoints"
  std::string log;     // of the run that it is from
};

// Makes OUT/log.jsonl and then OUT/checkpoints of `options`. Steps and measurements of the log come
// with it; what the other run says of itself does not. The options must differ from those of the
// checkpoint in schedule and length alone. Fails with kNotFound or kCorrupt where branch or log are
// not there or damaged, kExhausted, kIo.
Status start_trial(const TrialStart& from, const TrainOptions& options);

// Fills in what the log of a run that has ended says: losses and seconds. Fails with kNotFound,
// kIo, or kCorrupt where it has no step.
Status read_losses(const std::string& log_path, TrialRecord& trial);

}  // namespace jige::train

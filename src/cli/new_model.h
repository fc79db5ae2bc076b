// The tokenizer and the configuration of a model that is trained from nothing.
//
//   tokenizer   --tokenizer, else OUT/tokenizer, which is trained from the data. It is trained anew
//               until the run has a checkpoint: from then on it belongs to the run.
//   config      --config, else the size and shape flags, with the tokenizer's vocabulary
// Before OUT/tokenizer is written, the run's lock is taken and put into the options: a run that is
// at work keeps the tokenizer it began with.
// Threads: one thread.
#pragma once

#include "base/result.h"
#include "cli/train_flags.h"
#include "train/options.h"

namespace jige::cli {

// Fills config and tokenizer_folder of `options`. Fails as the readers and the tokenizer's training
// do, with kInvalidArgument where flags and files contradict each other, and with kUnavailable
// where another process trains into OUT.
Status prepare_new_model(const TrainFlags& flags, bool quiet, train::TrainOptions& options);

}  // namespace jige::cli

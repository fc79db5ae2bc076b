// Which ranks compute on the same GPU, and what it has for them.
//
// All ranks call it, before any of them takes memory. Threads: one thread at a time.
#pragma once

#include <optional>

#include "train/options.h"

namespace jige::train {

// Fills ranks->on_device of options with a group and, where a GPU is named and no limit of memory,
// the limit: what the GPU has left once each process that uses it is there, the same for all of
// them. Fails with kInvalidArgument where some ranks compute on GPUs and others do not, and as
// cuda_free_bytes.
Status share_device(TrainOptions& options);

}  // namespace jige::train

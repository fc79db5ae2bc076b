// The memory of a run that is being prepared, against its limit (run_setup.h).
//
// Threads: one thread at a time.
#pragma once

#include "base/result.h"
#include "train/run_setup.h"

namespace jige::train {

// Of a run without a pipeline, before any data is touched: fills in what it takes, and its limit.
// Fails with kExhausted where it does not fit, saying what would, and as AnswerSource::memory_bytes
// and ReferenceModel::memory_bytes. REQUIRES: a model and its memory.
Status check_memory(RunSetup& setup);

// Adds what is known once data is read: where documents and sequences begin, the reference of
// pairs, prompts themselves. Fails in the same way; of a pipeline, nothing is checked yet.
Status check_read_memory(RunSetup& setup);

}  // namespace jige::train

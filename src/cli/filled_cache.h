// A key/value cache that has been written, for measurements of steps behind long contexts.
//
// Memory that was never written is one page of zeros, however much of it is read: a step behind a
// context that nothing ran through reads its keys from the processor's caches and looks faster than
// any can be. And the system gives memory when it is first written, a page at a time, while the
// step that writes it waits.
// Threads: as the model.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/inference.h"

namespace jige::cli {

// Writes the cache blocks of positions [0, tokens) of a sequence that has the blocks 0, 1, 2 …: all
// hold the keys and values of the same few tokens, which takes one step. Where the model has states
// all tokens run, and the first state stands behind them. Fails as forward() and copy_block() do.
Status fill_cache(model::InferenceModel& model, int64_t tokens);

// Writes every block once, so that the system has given the memory of the cache: takes one step and
// copies of blocks. What the first state holds is of no use then. Fails likewise.
Status write_cache(model::InferenceModel& model);

}  // namespace jige::cli

// Draws the answers of `jige train --grpo` (train/rollout.h) with the engine that serves: many at
// once, those of a group with one prompt in the cache. The engine borrows the weights that are
// being trained, so nothing is copied, and what it draws with are their bits.
//
// Threads: one thread at a time; the engine has one of its own while answers are drawn.
#pragma once

#include <memory>

#include "train/rollout.h"

namespace jige::cli {

std::shared_ptr<train::AnswerSource> make_answer_engine();

}  // namespace jige::cli

// Dropout of a run: which combinations there are, and what each step drops.
//
// A pool of N subnetworks is trained M at a time (gyro dropout, Lee et al., MLSys 2022). The pool
// is put into an order by the seed, and cut into N / M groups; a run of S steps gives group t the
// steps from ⌊t S M / N⌋ on. So each subnetwork is trained in one turn, all turns are as long but
// for a step, and none is left out. (The published ones draw the groups with replacement, by which
// about a third of the pool never has a turn.) Without a pool the M subnetworks are new in each
// step. Which one of its M a step begins with goes round with the steps, so that where there are
// fewer sequences than subnetworks all get their share.
//
// All of it is a function of seed, step and the number of steps: nothing is kept in checkpoints.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "base/result.h"
#include "model/architecture.h"
#include "model/step_dropout.h"
#include "train/options.h"

namespace jige::train {

inline constexpr int64_t kDropoutPoolMax = 65536;
inline constexpr int64_t kDropoutAtOnceMax = 1024;

// That blocks of a model's feed-forward layers can be dropped as asked for. Fails with
// kInvalidArgument where they cannot be cut so, kUnsupported on models without such layers.
Status check_block_dropout(const model::Architecture& architecture, const TrainOptions& options);

// That so many steps give every subnetwork of the pool a turn.
Status check_dropout_turns(const TrainOptions& options, int64_t steps_total);

// Scratch that dropping blocks takes of each thread, of so many, as model::thread_scratch_bytes()
// says of whole products.
int64_t block_scratch_bytes(const model::Architecture& architecture, const TrainOptions& options,
                            int threads);

// What a step of so many tokens drops. `step` counts from 1.
model::StepDropout step_dropout(const TrainOptions& options, int64_t step, int64_t token_count);

// Of an identity (options.h), what is about dropout.
void add_dropout_identity(const TrainOptions& options, Json& identity);

// Floating-point operations of a forward pass of T tokens that blocks leave out.
double dropped_flops(const model::Architecture& architecture, const TrainOptions& options,
                     double token_count);

}  // namespace jige::train

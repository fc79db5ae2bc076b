// Loss on held-out sequences.
//
// The mean over all targets, exact and independent of packing (base/exact_sum.h). Where there is
// more than `tokens_max`, a fixed choice keyed by the seed is evaluated, always the same.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "train/corpus.h"
#include "train/step_engine.h"
#include "train/step_plan.h"

namespace jige::train {

struct EvaluationOptions {
  int64_t tokens_max = 0;  // inputs
  int64_t micro_batch_tokens = 0;
  uint64_t seed = 0;
};

// The micro-batches every evaluation of a run takes; empty without sequences.
std::vector<MicroBatch> choose_evaluation(std::span<const Sequence> held_out,
                                          const EvaluationOptions& options);

struct Evaluation {
  double loss = 0;  // mean, in nats
  int64_t learned_count = 0;
};

// `progress` hears of the inputs done; nothing where it says not to go on. REQUIRES: micro_batches
// is not empty; several ranks go on. Fails as Corpus::read and StepEngine::evaluate.
Result<std::optional<Evaluation>> evaluate(const Corpus& corpus,
                                           std::span<const MicroBatch> micro_batches,
                                           StepEngine& engine, const WalkProgress& progress);

}  // namespace jige::train

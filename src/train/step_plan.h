// Which sequences a step learns from, and how they are packed into micro-batches.
//
// The order of an epoch is a permutation keyed by (seed, epoch); epochs follow one another. The
// cursor is the number of sequences taken since the start of the run: it says exactly where the
// data stands. A step takes sequences in order as long as their inputs fit into `step_tokens` (at
// least one); its micro-batches take them in the same order as long as they fit into
// `micro_batch_tokens`. So the micro-batch size changes neither what a step learns nor the order of
// its tokens. Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/given_row.h"
#include "tensor/view.h"
#include "train/corpus.h"
#include "train/permutation.h"
#include "train/sequences.h"

namespace jige::train {

// Sequences that run together, one behind the other.
struct MicroBatch {
  std::vector<Sequence> sequences;
  int64_t input_count = 0;
  int64_t learned_count = 0;
};

// Packs sequences into micro-batches in their order.
// REQUIRES: no sequence is longer than `micro_batch_tokens`.
std::vector<MicroBatch> pack_micro_batches(std::span<const Sequence> sequences,
                                           int64_t micro_batch_tokens);

// The same in a multiple of `parts` micro-batches of about equal size, so that as many ranks have
// equal work; fewer where there are not enough sequences, more where one would be too long.
std::vector<MicroBatch> pack_evenly(std::span<const Sequence> sequences, int64_t micro_batch_tokens,
                                    int64_t parts);

// Of all of them.
int64_t input_count_of(std::span<const MicroBatch> micro_batches);

struct StepPlan {
  std::vector<MicroBatch> micro_batches;
  uint64_t cursor_end = 0;    // where the next step begins
  int64_t input_count = 0;    // tokens of all micro-batches
  int64_t learned_count = 0;  // targets of all micro-batches
};

// The weight of every target in the step's gradient, that of the mean loss.
inline float loss_weight_of(const StepPlan& plan) {
  return static_cast<float>(1.0 / static_cast<double>(plan.learned_count));
}

// The weight of every token's loss for unequal use of experts: `balance` times that of the mean
// over all tokens of the step, learned or not.
inline float balance_weight_of(const StepPlan& plan, double balance) {
  return static_cast<float>(balance / static_cast<double>(plan.input_count));
}

// Hears now and then how much of a walk through the run is done; returns whether to go on.
using WalkProgress = std::function<bool(int64_t done, int64_t total)>;

struct StepPlannerOptions {
  uint64_t seed = 0;
  int64_t step_tokens = 0;
  int64_t micro_batch_tokens = 0;
  uint64_t cursor_max = UINT64_MAX;  // the run ends here, within a step if need be
  int64_t parts = 1;                 // as pack_evenly; 1: as pack_micro_batches
};

class StepPlanner {
 public:
  // `sequences` must outlive the planner. REQUIRES: not empty.
  StepPlanner(std::span<const Sequence> sequences, const StepPlannerOptions& options);

  // The step that begins at `cursor`. REQUIRES: cursor < cursor_max.
  StepPlan plan(uint64_t cursor);
  // How many steps there are from 0 to cursor_max; `steps_max + 1` stands for any number above
  // `steps_max`. Walks them all where sequences differ in length, for then the order of every epoch
  // decides. Fails with kCancelled where the progress says so.
  Result<int64_t> count_steps(int64_t steps_max, const WalkProgress& progress = {});
  // The most micro-batches that one of the first `steps` steps has. Walks and fails in the same
  // way.
  Result<int64_t> most_micro_batches(int64_t steps, const WalkProgress& progress = {});
  // The sequence at a place of the run.
  const Sequence& sequence_at(uint64_t cursor);
  double epoch_of(uint64_t cursor) const;

 private:
  // Reads the sequences of the step that begins at `cursor` into sequences_of_step_, and gives the
  // place behind them.
  uint64_t read_step(uint64_t cursor);
  // How many sequences every full step takes where all have one length; nullopt where not.
  std::optional<uint64_t> equal_steps() const;
  // No run to cursor_max has fewer steps.
  double least_steps() const;

  std::span<const Sequence> sequences_;
  StepPlannerOptions options_;
  uint64_t epoch_ = 0;
  std::optional<Permutation> order_;  // of epoch_
  std::vector<Sequence> sequences_of_step_;
};

// An image of a micro-batch, whose tokens stand from `row` on.
struct BatchImage {
  int32_t row = 0;
  int32_t sequence = 0;
  const CorpusImage* image = nullptr;
  const std::string* path = nullptr;  // of the tokens that it is beside
};

// A micro-batch as the model sees it, in host memory.
struct HostBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;       // from 0 in every sequence
  std::vector<int32_t> targets;         // -1 where nothing is learned
  std::vector<int32_t> counts;          // rows of each sequence; of a pair the two, chosen first
  std::vector<BatchImage> images = {};  // by their rows
  // What ImageRows::read makes of these, in its own memory until it reads others: rows in place of
  // tokens' embeddings, those that see one another, and where heads turn by the places of images,
  // the angles of all rows, which positions name then.
  std::vector<model::GivenRow> given = {};
  std::vector<model::RowRange> mutual = {};
  TensorView angles = {};
};

// Reads a micro-batch's tokens, and finds its images, but for what ends a sequence with its last
// token, which is no input: nothing is learned behind it. Fails as Corpus::read.
Status read_batch(const Corpus& corpus, const MicroBatch& micro_batch, HostBatch& batch);

}  // namespace jige::train

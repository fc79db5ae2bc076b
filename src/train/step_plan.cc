#include "train/step_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"

namespace jige::train {
namespace {

constexpr uint64_t kPulseSequences = uint64_t{1} << 18;  // less than a tenth of a second

// Tells a walk's progress every kPulseSequences sequences.
class WalkPulse {
 public:
  WalkPulse(const WalkProgress& progress, int64_t total) : progress_(progress), total_(total) {}

  Status passed(uint64_t cursor, int64_t done) {
    if (!progress_ || cursor < due_) return {};
    due_ = cursor + kPulseSequences;
    if (progress_(done, total_)) return {};
    return fail(Code::kCancelled, "stopped while the steps were counted");
  }

 private:
  const WalkProgress& progress_;
  int64_t total_;
  uint64_t due_ = kPulseSequences;
};

}  // namespace

int64_t input_count_of(std::span<const MicroBatch> micro_batches) {
  int64_t count = 0;
  for (const MicroBatch& micro_batch : micro_batches) count += micro_batch.input_count;
  return count;
}

std::vector<MicroBatch> pack_micro_batches(std::span<const Sequence> sequences,
                                           int64_t micro_batch_tokens) {
  std::vector<MicroBatch> packed;
  for (const Sequence& sequence : sequences) {
    JIGE_CHECK(sequence.count <= micro_batch_tokens, "a sequence of {} in a micro-batch of {}",
               sequence.count, micro_batch_tokens);
    if (packed.empty() || packed.back().input_count + sequence.count > micro_batch_tokens) {
      packed.emplace_back();
    }
    packed.back().sequences.push_back(sequence);
    packed.back().input_count += sequence.count;
    packed.back().learned_count += sequence.learned_count;
  }
  return packed;
}

std::vector<MicroBatch> pack_evenly(std::span<const Sequence> sequences, int64_t micro_batch_tokens,
                                    int64_t parts) {
  const std::vector<MicroBatch> fewest = pack_micro_batches(sequences, micro_batch_tokens);
  const auto fewest_count = static_cast<int64_t>(fewest.size());
  const int64_t count = (fewest_count + parts - 1) / parts * parts;
  if (count == fewest_count) return fewest;
  int64_t total = 0;
  for (const MicroBatch& micro_batch : fewest) total += micro_batch.input_count;
  std::vector<MicroBatch> packed;
  int64_t taken = 0;
  for (const Sequence& sequence : sequences) {
    // The border lies where the sequence's middle would pass the share of those before.
    const int64_t due = total * static_cast<int64_t>(packed.size()) / count;
    const bool even =
        static_cast<int64_t>(packed.size()) < count && taken + sequence.count / 2 > due;
    const bool full =
        packed.empty() || packed.back().input_count + sequence.count > micro_batch_tokens;
    if (even || full) packed.emplace_back();
    packed.back().sequences.push_back(sequence);
    packed.back().input_count += sequence.count;
    packed.back().learned_count += sequence.learned_count;
    taken += sequence.count;
  }
  return packed;
}

StepPlanner::StepPlanner(std::span<const Sequence> sequences, const StepPlannerOptions& options)
    : sequences_(sequences), options_(options) {
  JIGE_CHECK(!sequences.empty(), "no sequences to plan steps with");
}

const Sequence& StepPlanner::sequence_at(uint64_t cursor) {
  const uint64_t epoch = cursor / sequences_.size();
  if (!order_ || epoch != epoch_) {
    order_.emplace(derive_key(options_.seed, "data order", epoch), sequences_.size());
    epoch_ = epoch;
  }
  return sequences_[(*order_)(cursor % sequences_.size())];
}

double StepPlanner::epoch_of(uint64_t cursor) const {
  return static_cast<double>(cursor) / static_cast<double>(sequences_.size());
}

uint64_t StepPlanner::read_step(uint64_t cursor) {
  sequences_of_step_ = {sequence_at(cursor++)};
  int64_t taken = sequences_of_step_[0].count;
  for (; cursor < options_.cursor_max; ++cursor) {
    const Sequence& next = sequence_at(cursor);
    taken += next.count;
    if (taken > options_.step_tokens) break;
    sequences_of_step_.push_back(next);
  }
  return cursor;
}

StepPlan StepPlanner::plan(uint64_t cursor) {
  JIGE_CHECK(cursor < options_.cursor_max, "step at {} of {}", cursor, options_.cursor_max);
  StepPlan plan{.cursor_end = read_step(cursor)};
  plan.micro_batches = pack_evenly(sequences_of_step_, options_.micro_batch_tokens, options_.parts);
  for (const MicroBatch& micro_batch : plan.micro_batches) {
    plan.input_count += micro_batch.input_count;
    plan.learned_count += micro_batch.learned_count;
  }
  return plan;
}

std::optional<uint64_t> StepPlanner::equal_steps() const {
  const int32_t count = sequences_[0].count;
  const bool equal = std::all_of(sequences_.begin(), sequences_.end(),
                                 [&](const Sequence& one) { return one.count == count; });
  if (!equal) return std::nullopt;
  return static_cast<uint64_t>(std::max<int64_t>(options_.step_tokens / count, 1));
}

double StepPlanner::least_steps() const {
  int64_t epoch_tokens = 0;
  int64_t step_tokens = options_.step_tokens;
  for (const Sequence& sequence : sequences_) {
    epoch_tokens += sequence.count;
    step_tokens = std::max<int64_t>(step_tokens, sequence.count);
  }
  const uint64_t epochs = options_.cursor_max / sequences_.size();
  return static_cast<double>(epochs) * static_cast<double>(epoch_tokens) /
         static_cast<double>(step_tokens);
}

Result<int64_t> StepPlanner::count_steps(int64_t steps_max, const WalkProgress& progress) {
  if (const auto each = equal_steps()) {
    const uint64_t steps = options_.cursor_max / *each + (options_.cursor_max % *each > 0);
    return static_cast<int64_t>(std::min(steps, static_cast<uint64_t>(steps_max) + 1));
  }
  if (least_steps() > static_cast<double>(steps_max) + 1) return steps_max + 1;
  int64_t steps = 0;
  WalkPulse pulse(progress, static_cast<int64_t>(options_.cursor_max));
  for (uint64_t cursor = 0; cursor < options_.cursor_max && steps <= steps_max; ++steps) {
    cursor = read_step(cursor);
    JIGE_DO(pulse.passed(cursor, static_cast<int64_t>(cursor)));
  }
  return steps;
}

Result<int64_t> StepPlanner::most_micro_batches(int64_t steps, const WalkProgress& progress) {
  // Of equal steps the first is no smaller than another.
  if (equal_steps()) steps = std::min<int64_t>(steps, 1);
  size_t most = 0;
  uint64_t cursor = 0;
  WalkPulse pulse(progress, steps);
  for (int64_t step = 0; step < steps && cursor < options_.cursor_max; ++step) {
    const StepPlan planned = plan(cursor);
    most = std::max(most, planned.micro_batches.size());
    cursor = planned.cursor_end;
    JIGE_DO(pulse.passed(cursor, step));
  }
  return static_cast<int64_t>(most);
}

namespace {

// Reads `count` inputs from `begin` on and what they predict, behind what the batch has; `masked`
// where not all of it is learned.
Status append_sequence(const Corpus& corpus, int64_t begin, int32_t count, bool masked,
                       HostBatch& batch) {
  const size_t row = batch.tokens.size();
  const auto rows = static_cast<size_t>(count);
  batch.tokens.resize(row + rows);
  batch.positions.resize(row + rows);
  batch.targets.resize(row + rows);
  const std::span<int32_t> targets = std::span(batch.targets).subspan(row);
  JIGE_DO(corpus.read(begin, std::span(batch.tokens).subspan(row)));
  JIGE_DO(corpus.read(begin + 1, targets));
  std::iota(batch.positions.begin() + static_cast<std::ptrdiff_t>(row), batch.positions.end(), 0);
  if (masked) {
    std::vector<uint8_t> learned(rows);
    JIGE_DO(corpus.read_learned(begin + 1, learned));
    for (size_t i = 0; i < rows; ++i) {
      if (learned[i] == 0) targets[i] = -1;
    }
  }
  const Corpus::PartImages found = corpus.images_at(begin, count);
  for (const CorpusImage& image : found.images) {
    const int64_t place = found.part->begin + image.token - begin;
    if (place + image.count > count) break;
    batch.images.push_back({.row = static_cast<int32_t>(static_cast<int64_t>(row) + place),
                            .sequence = static_cast<int32_t>(batch.counts.size()),
                            .image = &image,
                            .path = &found.part->path});
  }
  batch.counts.push_back(count);
  return {};
}

}  // namespace

Status read_batch(const Corpus& corpus, const MicroBatch& micro_batch, HostBatch& batch) {
  batch.tokens.clear();
  batch.positions.clear();
  batch.targets.clear();
  batch.counts.clear();
  batch.images.clear();
  batch.given.clear();
  batch.mutual.clear();
  batch.angles = {};
  const bool pairs = corpus.holds_pairs();
  for (const Sequence& sequence : micro_batch.sequences) {
    const bool masked = sequence.learned_count != sequence.count;
    if (!pairs) {
      JIGE_DO(append_sequence(corpus, sequence.begin, sequence.count, masked, batch));
      continue;
    }
    const int64_t middle = corpus.document_end(sequence.begin);
    const auto chosen = static_cast<int32_t>(middle - sequence.begin - 1);
    JIGE_DO(append_sequence(corpus, sequence.begin, chosen, masked, batch));
    JIGE_DO(append_sequence(corpus, middle, sequence.count - chosen, masked, batch));
  }
  return {};
}

}  // namespace jige::train
